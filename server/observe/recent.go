package observe

import (
	"strings"
	"sync"
	"time"
)

// recent counts the requests and bytes of each name in the last minute or two.
type recent struct {
	mu     sync.Mutex
	began  time.Duration
	now    map[string]*Count
	before map[string]*Count // counts of the window before this one
}

// Count is a number of requests, and how many bytes they have.
type Count struct{ Requests, Bytes int64 }

const (
	window   = time.Minute
	maxNames = 2000 // the limit of names in a window
	maxName  = 256  // the limit of bytes in a name
)

// Add adds c to the counts of a name at the time `now`. It ignores a name that is too long, and a new name if
// the window already has maxNames names. The caller may reuse the memory of the name, so Add stores a copy of
// it in the map.
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

// turn begins a new window when the present one is over.
func (r *recent) turn(now time.Duration) {
	if r.now != nil && now-r.began < window {
		return
	}
	r.before = r.now
	if now-r.began >= 2*window {
		r.before = nil // nothing happened for a whole window
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
