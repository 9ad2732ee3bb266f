package raftfsm

import (
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
)

// tracker holds the deadlines of all sessions while this server leads. It
// lives for one leadership term: a new leader knows nothing of earlier touches
// and gives every session its full timeout.
type tracker struct {
	start time.Time // origin of the monotonic times below

	mu       sync.Mutex
	expiry   *session.Expiry
	timeouts map[int64]time.Duration
}

func newTracker() *tracker {
	return &tracker{start: time.Now(), expiry: session.NewExpiry(), timeouts: map[int64]time.Duration{}}
}

func (t *tracker) now() time.Duration { return time.Since(t.start) }

// touch notes that a session was heard from age ago. A timeout of 0 keeps the
// one known; sessions not known are left alone.
func (t *tracker) touch(id int64, timeout int32, age time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if timeout > 0 {
		t.timeouts[id] = time.Duration(timeout) * time.Millisecond
	}
	if d, ok := t.timeouts[id]; ok {
		t.expiry.Touch(id, d, t.now()-age)
	}
}

func (t *tracker) touchAll(list []state.Touch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, h := range list {
		if d, ok := t.timeouts[h.Session]; ok {
			t.expiry.Touch(h.Session, d, now-time.Duration(h.Age)*time.Millisecond)
		}
	}
}

func (t *tracker) remove(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.timeouts, id)
	t.expiry.Remove(id)
}

// replace takes the place of all that is known by the sessions of another state,
// with their full timeouts.
func (t *tracker) replace(sessions *session.Table) {
	t.mu.Lock()
	t.expiry, t.timeouts = session.NewExpiry(), map[int64]time.Duration{}
	t.mu.Unlock()
	sessions.All(func(s session.Session) { t.touch(s.ID, s.Timeout, 0) })
}

// due appends the sessions whose time was over grace ago.
func (t *tracker) due(grace time.Duration, limit int, out []int64) []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.expiry.Due(t.now()-grace, limit, out)
}

// stallCredit is how much more time than a stall took every session gets for
// it: its client may have to connect again first.
const stallCredit = 4

// stalled makes good to every session that nobody listened for so long, with at
// most its full timeout from now on. It is not more, so that a server that
// stalls often still expires those that are silent.
func (t *tracker) stalled(long time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for id, d := range t.timeouts {
		if at, ok := t.expiry.Deadline(id); ok {
			t.expiry.Touch(id, d, min(now, at-d+stallCredit*long))
		}
	}
}

// deadlines lists what is left to each session.
func (t *tracker) deadlines() map[int64]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	left := make(map[int64]time.Duration, len(t.timeouts))
	for id := range t.timeouts {
		if at, ok := t.expiry.Deadline(id); ok {
			left[id] = at - now
		}
	}
	return left
}
