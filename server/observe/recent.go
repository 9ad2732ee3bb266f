package observe

import (
	"strings"
	"sync"
	"time"
)

// recent counts requests and bytes by name. The counts cover the last minute or two.
type recent struct {
	mu     sync.Mutex
	began  time.Duration
	now    map[string]*Count
	before map[string]*Count // counts of the window before this one
}

// Count has the number of requests, and their bytes.
type Count struct{ Requests, Bytes int64 }

const (
	window   = time.Minute
	maxNames = 2000 // the limit of names in a window
	maxName  = 256  // the limit of bytes in a name
)

// Add adds c to the counts of a name. It ignores a name that is too long, and a new one if the window is full
// of names. It copies the name, because the caller uses its memory again.
func (r *recent) Add(name string, c Count, now time.Duration) {
	if name == "" || len(name) > maxName {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	was, known := r.now[name]
	if !known {
		if len(r.now) >= maxNames {
			return
		}
		was = new(Count)
		r.now[strings.Clone(name)] = was
	}
	was.Requests, was.Bytes = was.Requests+c.Requests, was.Bytes+c.Bytes
}

// turn begins another window if a minute has passed since this one began.
func (r *recent) turn(now time.Duration) {
	if r.now != nil && now-r.began < window {
		return
	}
	r.before = r.now
	if now-r.began >= 2*window {
		r.before = nil // a whole window has passed in which nothing was counted
	}
	r.now, r.began = make(map[string]*Count), now
}

// Counts returns the counts of this window and the one before it together.
func (r *recent) Counts(now time.Duration) map[string]Count {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	counts := make(map[string]Count)
	for _, m := range []map[string]*Count{r.before, r.now} {
		for name, c := range m {
			was := counts[name]
			counts[name] = Count{was.Requests + c.Requests, was.Bytes + c.Bytes}
		}
	}
	return counts
}
