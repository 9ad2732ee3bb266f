package metrics

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Counter counts up. Its zero value is ready for use by several goroutines.
type Counter = atomic.Int64

// The histogram has 8 buckets for each power of two. That makes a quantile exact to about 6 percent, and
// takes 1 KiB.
const (
	subBits = 3
	subs    = 1 << subBits
	buckets = subs * (41 - subBits) // enough for values below 2^40, which is twelve days in microseconds
)

// window is the length of a window. Quantiles cover the values of the last one or two windows. A quantile of
// all values since the start would hide what happens now.
const window = 5 * time.Minute

// Recorder collects a distribution. To record a value takes a few atomic operations, and no lock. The zero
// value is ready.
//
// The count, the sum, the least and the greatest cover the time since the last reset. The quantiles cover the
// last one or two windows. Only Value looks at the clock and begins a window.
type Recorder struct {
	count, sum atomic.Int64
	bounds
	current atomic.Pointer[histogram]

	mu       sync.Mutex // held by readers only
	previous *histogram // of the window before this one
	since    time.Time  // when `current` began
}

type histogram [buckets]atomic.Uint32

// bounds are the least and the greatest of some values. One more than each is stored, as 0 stands for no
// value.
type bounds struct{ least, greatest atomic.Int64 }

func (b *bounds) note(v int64) {
	v++
	for old := b.least.Load(); old == 0 || v < old; old = b.least.Load() {
		if b.least.CompareAndSwap(old, v) {
			break
		}
	}
	for old := b.greatest.Load(); v > old; old = b.greatest.Load() {
		if b.greatest.CompareAndSwap(old, v) {
			break
		}
	}
}

func (b *bounds) clear() {
	b.least.Store(0)
	b.greatest.Store(0)
}

// Observe records v. Negative values count as zero.
func (r *Recorder) Observe(v int64) { r.ObserveN(v, 1) }

// ObserveN records v n times. It costs as much as recording v once.
func (r *Recorder) ObserveN(v, n int64) {
	v = max(v, 0)
	h := r.current.Load()
	if h == nil {
		h = r.begin()
	}
	h[bucketOf(v)].Add(uint32(n))
	r.count.Add(n)
	r.sum.Add(v * n)
	r.note(v)
}

// ObserveTime records a duration in microseconds, for a Recorder that is read
// with unit 1000.
func (r *Recorder) ObserveTime(d time.Duration) { r.Observe(d.Microseconds()) }

// begin gives a Recorder its first histogram. It is made late because most Recorders are never used.
func (r *Recorder) begin() *histogram {
	r.current.CompareAndSwap(nil, new(histogram))
	return r.current.Load()
}

// Value returns the recorded values, each divided by `unit`.
func (r *Recorder) Value(now time.Time, unit float64) Summary {
	s := Summary{
		Count: r.count.Load(),
		Sum:   float64(r.sum.Load()) / unit,
		Min:   float64(max(r.least.Load()-1, 0)) / unit,
		Max:   float64(max(r.greatest.Load()-1, 0)) / unit,
	}
	if s.Count == 0 {
		return s
	}
	counts, total := r.collect(now)
	s.setQuantiles(&counts, total, unit)
	return s
}

// setQuantiles computes the quantiles from the number of values in each bucket. `total` is their sum.
func (s *Summary) setQuantiles(counts *[buckets]uint64, total uint64, unit float64) {
	at := func(q float64) float64 {
		v := float64(quantile(counts, total, q)) / unit
		return min(max(v, s.Min), s.Max)
	}
	if total > 0 {
		s.P50, s.P90, s.P95, s.P99, s.P999 = at(0.5), at(0.9), at(0.95), at(0.99), at(0.999)
	}
}

// Reset forgets everything. Of values that are recorded at the same moment, it may keep a part.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.previous = nil
	if r.current.Load() != nil {
		r.current.Store(new(histogram))
	}
	r.count.Store(0)
	r.sum.Store(0)
	r.clear()
}

// collect adds up the histograms, and starts a new window if the present one is over.
func (r *Recorder) collect(now time.Time) (counts [buckets]uint64, total uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.current.Load()
	for _, h := range []*histogram{current, r.previous} {
		if h == nil {
			continue
		}
		for i := range h {
			n := uint64(h[i].Load())
			counts[i] += n
			total += n
		}
	}
	switch {
	case r.since.IsZero():
		r.since = now
	case now.Sub(r.since) >= window:
		r.previous, r.since = current, now
		r.current.Store(new(histogram))
	}
	return counts, total
}

// bucketOf returns the bucket of v. Values below 8 have a bucket each. For a larger value, its highest bit
// and the three bits after that choose the bucket.
func bucketOf(v int64) int {
	if v < subs {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - 1 - subBits
	return min(shift*subs+int(v>>shift), buckets-1)
}

// valueOf returns a value in the middle of a bucket.
func valueOf(bucket int) int64 {
	if bucket < 2*subs {
		return int64(bucket)
	}
	shift := bucket/subs - 1
	low := int64(bucket-shift*subs) << shift
	return low + 1<<shift/2
}

// quantile returns the value below which the share q of all values lies.
func quantile(counts *[buckets]uint64, total uint64, q float64) int64 {
	rank := uint64(q * float64(total))
	if rank >= total {
		rank = total - 1
	}
	for i, n := range counts {
		if rank < n {
			return valueOf(i)
		}
		rank -= n
	}
	return 0
}
