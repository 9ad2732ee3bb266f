package observe

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// slowLogged is how many slow requests Slow logs in a second.
const slowLogged = 10

// Slow logs requests that take longer than a bound, and counts those beyond ten a second.
type Slow struct {
	Bound time.Duration
	Log   *slog.Logger

	Seen, Skipped atomic.Int64
	window        atomic.Int64 // the second, on the server's clock, and how many it has, in the lowest bits
}

// Request looks at an answered request. It suits the argument of Init.
func (s *Slow) Request(r *Request) {
	took := r.Answered - r.Arrived
	if took < s.Bound {
		return
	}
	s.Seen.Add(1)
	second := int64(r.Answered / time.Second)
	for {
		w := s.window.Load()
		next := w + 1
		if w>>32 != second {
			next = second<<32 + 1
		}
		if next&0xffffffff > slowLogged {
			s.Skipped.Add(1)
			return
		}
		if s.window.CompareAndSwap(w, next) {
			break
		}
	}
	s.Log.Warn("slow request", "operation", r.Op.String(), "path", r.Path(), "session",
		fmt.Sprintf("%#x", uint64(r.Session)), "addr", r.Addr, "took", took.Round(time.Microsecond),
		"waited", (r.Begun - r.Arrived).Round(time.Microsecond),
		"carried_out", (r.Answered - r.Begun).Round(time.Microsecond), "code", int32(r.Code))
}
