package disk

import (
	"sync/atomic"
	"time"
)

// Latency sums up durations, cheaply and from any goroutine.
type Latency struct {
	count, sum, max atomic.Int64 // sum and max in ns
}

// Add counts one duration.
func (l *Latency) Add(d time.Duration) {
	l.count.Add(1)
	l.sum.Add(int64(d))
	for {
		m := l.max.Load()
		if int64(d) <= m || l.max.CompareAndSwap(m, int64(d)) {
			return
		}
	}
}

// Summary returns the number of durations, their sum and the longest.
func (l *Latency) Summary() (count int64, sum, longest time.Duration) {
	return l.count.Load(), time.Duration(l.sum.Load()), time.Duration(l.max.Load())
}
