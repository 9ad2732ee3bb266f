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

	mu     sync.Mutex
	expiry *session.Expiry
}

func newTracker() *tracker {
	return &tracker{start: time.Now(), expiry: session.NewExpiry()}
}

func (t *tracker) now() time.Duration { return time.Since(t.start) }

// touch notes that a session with this timeout, in ms, was heard from just now.
func (t *tracker) touch(id int64, timeout int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expiry.Touch(id, time.Duration(timeout)*time.Millisecond, t.now())
}

func (t *tracker) touchAll(list []state.Touch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, h := range list {
		t.expiry.Heard(h.Session, now-time.Duration(h.Age)*time.Millisecond)
	}
}

func (t *tracker) remove(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expiry.Remove(id)
}

// replace replaces all known sessions by those of another state, with their full timeouts.
func (t *tracker) replace(sessions *session.Table) {
	t.mu.Lock()
	t.expiry = session.NewExpiry()
	t.mu.Unlock()
	sessions.All(func(s session.Session) { t.touch(s.ID, s.Timeout) })
}

// due returns up to limit sessions whose deadline is before at.
func (t *tracker) due(at time.Time, limit int) []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.expiry.Due(at.Sub(t.start), limit, nil)
}

// next returns how long it takes until due would return a session, at most limit.
func (t *tracker) next(grace, limit time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now() - grace
	return max(t.expiry.Next(now+limit)-now, time.Millisecond)
}

// stallCredit is how many times the length of a stall every session gets for it: its client may
// have to connect again first.
const stallCredit = 4

// stalled gives every session more time because this server did not listen for a while. No session gets more
// than its full timeout from now on, so a server that stalls often still expires silent sessions.
func (t *tracker) stalled(long time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.expiry.All(func(id int64, timeout, at time.Duration) {
		t.expiry.Heard(id, min(now, at-timeout+stallCredit*long))
	})
}

// left returns the time left to a session.
func (t *tracker) left(id int64) (left time.Duration, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, known := t.expiry.Of(id)
	return at - t.now(), known
}

// deadlines returns the time left to each session.
func (t *tracker) deadlines() map[int64]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	left := make(map[int64]time.Duration, t.expiry.Len())
	t.expiry.All(func(id int64, _, at time.Duration) { left[id] = at - now })
	return left
}
