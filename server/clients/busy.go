package clients

import (
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// busyEvery is which of a connection's requests are looked at for busyPaths.
const busyEvery = 16

// busyPaths counts, in a sample of the requests, which paths they name.
type busyPaths struct {
	mu      sync.Mutex
	began   time.Duration
	now     map[string]int
	before  map[string]int // of the window before
	covered time.Duration  // how long that window was
}

const (
	busyWindow = time.Minute
	busyKept   = 2000 // paths of a window
	busyPath   = 256  // bytes of a path
)

// note counts one request. It waits for nobody: it is only a sample.
func (b *busyPaths) note(op jute.OpCode, body []byte, now time.Duration) {
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete, jute.OpExists,
		jute.OpGetData,
		jute.OpSetData, jute.OpGetACL, jute.OpSetACL, jute.OpGetChildren, jute.OpGetChildren2, jute.OpSync:
	default:
		return
	}
	d := jute.NewDecoder(body)
	path, ok := d.String()
	if !ok || d.Err() != nil || path == "" || len(path) > busyPath || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	b.turn(now)
	if _, known := b.now[path]; known {
		b.now[path]++
	} else if len(b.now) < busyKept {
		b.now[strings.Clone(path)] = 1
	}
}

// turn begins a new window when it is time.
func (b *busyPaths) turn(now time.Duration) {
	if b.now != nil && now-b.began < busyWindow {
		return
	}
	b.before, b.covered = b.now, now-b.began
	if b.covered >= 2*busyWindow {
		b.before = nil // nothing was asked for a whole window
	}
	b.now, b.began = make(map[string]int), now
}

// BusyPaths returns how many requests named a path in the last minute or two,
// as far as a sample tells: one request in sixteen is looked at.
func (s *Server) BusyPaths() (counts map[string]int, over time.Duration) {
	b := &s.busy
	now := s.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	counts = make(map[string]int)
	for _, m := range []map[string]int{b.before, b.now} {
		for path, n := range m {
			counts[path] += n * busyEvery
		}
	}
	over = now - b.began
	if b.before != nil {
		over += b.covered
	}
	return counts, over
}
