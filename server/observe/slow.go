package observe

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/server/report"
)

// slowLogged is how many slow requests Slow logs in a second.
const slowLogged = 10

// Slow logs requests that take longer than a bound. It logs at most ten in a second, and counts the rest. Of
// all requests it measures how long the stages take.
type Slow struct {
	Bound time.Duration
	Log   *slog.Logger

	seen, skipped atomic.Int64
	// the present second, and in the lowest bits how many lines were logged in it
	window atomic.Int64
	times  [len(stages)]times
}

// bounds are the upper bounds of a histogram's buckets.
var bounds = [...]time.Duration{100 * time.Microsecond, 500 * time.Microsecond, time.Millisecond,
	5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond, time.Second, 5 * time.Second}

// times is a histogram: the number of requests in each bucket, and the sum of their times.
type times struct {
	counts [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (t *times) add(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	t.counts[i].Add(1)
	t.sum.Add(int64(d))
}

// Request looks at a request that has its answer. It is the function `follow` of Clients.Init.
func (s *Slow) Request(r *Request) {
	took := r.stages()
	for i, d := range took {
		if d > 0 {
			s.times[i].add(d)
		}
	}
	if r.Answered-r.Arrived < s.Bound {
		return
	}
	s.seen.Add(1)
	second := int64(r.Answered / time.Second)
	for {
		w := s.window.Load()
		next := w + 1
		if w>>32 != second {
			next = second<<32 + 1
		}
		if next&0xffffffff > slowLogged {
			s.skipped.Add(1)
			return
		}
		if s.window.CompareAndSwap(w, next) {
			break
		}
	}
	line := []any{"operation", r.Op.String(), "path", r.Path(), "session", fmt.Sprintf("%#x", uint64(r.Session)),
		"addr", r.Addr, "took", (r.Answered - r.Arrived).Round(time.Microsecond)}
	for i, d := range took {
		if d > 0 {
			line = append(line, stages[i], d.Round(time.Microsecond))
		}
	}
	s.Log.Warn("slow request", append(line, "code", int32(r.Code))...)
}

// Status adds the figures to a status.
func (s *Slow) Status(to *report.Status) {
	to.Measure("slow_requests_total", "Requests that took longer than --slow-request.", float64(s.seen.Load()))
	to.Measure("slow_requests_skipped_total", "Slow requests that were not logged: more than ten in a second.",
		float64(s.skipped.Load()))
	for i, stage := range stages {
		t, h := &s.times[i], report.Histogram{Buckets: map[float64]uint64{}}
		for b, bound := range bounds {
			h.Count += t.counts[b].Load()
			h.Buckets[bound.Seconds()] = h.Count
		}
		h.Count += t.counts[len(bounds)].Load()
		h.Sum = time.Duration(t.sum.Load()).Seconds()
		to.Extra = append(to.Extra, report.Sample{Name: "request_stage_seconds", Histogram: &h,
			Help: "Time of requests by stage, with --slow-request. A write waited for earlier requests, was " +
				"logged by a majority, and was applied. Another request waited and was carried out.",
			Labels: []report.Pair{{Key: "stage", Value: stage}}})
	}
}
