package main

import (
	"math"
	"time"
)

// hist is a histogram of durations with buckets about 1 % wide.
type hist struct {
	counts [2048]int64
	n      int64
	sum    time.Duration
	max    time.Duration
}

// tails are quantiles of a latency: the median, 99 % and 99.9 %.
type tails [3]time.Duration

func (h *hist) tails() (t tails) {
	for i, q := range []float64{0.5, 0.99, 0.999} {
		t[i] = h.quantile(q)
	}
	return t
}

const bucketsPerDoubling = 64

func bucketOf(d time.Duration) int {
	if d < time.Microsecond {
		return 0
	}
	return min(int(math.Log2(float64(d)/1000)*bucketsPerDoubling), len(hist{}.counts)-1)
}

func (h *hist) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.n++
	h.sum += d
	h.max = max(h.max, d)
}

func (h *hist) merge(o *hist) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// quantile() returns the middle of the bucket that holds the quantile q, a number from 0 to 1.
func (h *hist) quantile(q float64) time.Duration {
	rest := int64(q * float64(h.n))
	for i, c := range h.counts {
		if rest -= c; rest < 0 {
			return min(h.max, time.Duration(1000*math.Exp2((float64(i)+0.5)/bucketsPerDoubling)))
		}
	}
	return h.max
}
