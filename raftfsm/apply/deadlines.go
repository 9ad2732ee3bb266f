package apply

import (
	"sync"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
)

// Deadlines hold the deadlines of all sessions while this server leads. They last for one leadership term: a
// new leader knows nothing of earlier touches and gives every session its full timeout.
type Deadlines struct {
	start time.Time // the times below count from start, on the monotonic clock

	mu     sync.Mutex
	expiry *session.Expiry
}

func newDeadlines() *Deadlines {
	return &Deadlines{start: time.Now(), expiry: session.NewExpiry()}
}

func (t *Deadlines) now() time.Duration { return time.Since(t.start) }

// Touch notes that a session with this timeout, in ms, was heard from just now.
func (t *Deadlines) Touch(id int64, timeout int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expiry.Touch(id, time.Duration(timeout)*time.Millisecond, t.now())
}

// Heard notes that these sessions were heard from.
func (t *Deadlines) Heard(list []state.Touch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, h := range list {
		t.expiry.Heard(h.Session, now-time.Duration(h.Age)*time.Millisecond)
	}
}

// Remove forgets a session.
func (t *Deadlines) Remove(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expiry.Remove(id)
}

// HeardOf touches the sessions of proposed requests: a write or sync must keep its session alive at the
// leader.
func (t *Deadlines) HeardOf(bl *entries.Block) {
	rest := bl.Requests
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for range bl.Count {
		id, next := entries.PeekRequest(rest)
		t.expiry.Heard(id, now)
		rest = next
	}
}

// replace replaces all known sessions by the sessions of another state, with their full timeouts.
func (t *Deadlines) replace(sessions *session.Table) {
	t.mu.Lock()
	t.expiry = session.NewExpiry()
	t.mu.Unlock()
	sessions.All(func(s session.Session) { t.Touch(s.ID, s.Timeout) })
}

// Due returns up to `limit` sessions whose deadline is before the time `at`.
func (t *Deadlines) Due(at time.Time, limit int) []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.expiry.Due(at.Sub(t.start), limit, nil)
}

// Next returns the time that remains until `grace` after the first deadline, but at most `limit`.
func (t *Deadlines) Next(grace, limit time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now() - grace
	return max(t.expiry.Next(now+limit)-now, time.Millisecond)
}

// A session gets stallCredit times the length of a stall as extra time. The factor is above 1, because the
// client may have to connect again first.
const stallCredit = 4

// Stalled gives every session more time because this server was stalled and heard no session for a while.
// After the call no session has more time left than its full timeout. So a server that stalls often still
// expires silent sessions.
func (t *Deadlines) Stalled(long time.Duration) {
	now := t.now()
	t.each(func(e *session.Expiry, id int64, timeout, at time.Duration) {
		e.Heard(id, min(now, at-timeout+stallCredit*long))
	})
}

// piece is how many sessions each() handles under one hold of the lock.
const piece = 4096

// each calls f for every session, with the lock held. Every proposal needs the lock, and a pass over a
// million sessions takes half a second, so each() gives up the lock after every piece. It may pass over
// sessions that come or go in the meantime.
func (t *Deadlines) each(f func(e *session.Expiry, id int64, timeout, at time.Duration)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, n := t.expiry, 0
	e.All(func(id int64, timeout, at time.Duration) {
		f(e, id, timeout, at)
		if n++; n%piece == 0 {
			t.mu.Unlock()
			t.mu.Lock()
		}
	})
}

// Left returns the time left to a session.
func (t *Deadlines) Left(id int64) (left time.Duration, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, known := t.expiry.Of(id)
	return at - t.now(), known
}

// All returns the time left to each session.
func (t *Deadlines) All() map[int64]time.Duration {
	t.mu.Lock()
	n := t.expiry.Len()
	t.mu.Unlock()
	now, left := t.now(), make(map[int64]time.Duration, n) // the map of a million sessions takes long to make
	t.each(func(_ *session.Expiry, id int64, _, at time.Duration) { left[id] = at - now })
	return left
}
