package session

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// Epoch is one session, from its beginning until the server or Close ends it. A lease belongs to one epoch.
// The local deadline may end the leases of an epoch although the session still lives.
type Epoch struct {
	k    *Keeper
	conn *zk.Conn
	sid  int64         // set before other goroutines see the epoch
	gone chan struct{} // closed when the session is over

	mu        sync.Mutex
	timeout   time.Duration
	confirmed Reading // when the last answered heartbeat, or the request for the session, was sent
	overdue   bool    // the deadline has passed, and the server has not answered since
	moved     bool    // the session has a new connection, on which no heartbeat has been answered yet
	over      Reason
	holds     map[Dependent]struct{}
}

// newEpoch returns an epoch whose session the client requests now.
func newEpoch(k *Keeper) *Epoch {
	return &Epoch{k: k, confirmed: k.Now(), gone: make(chan struct{}), holds: map[Dependent]struct{}{}}
}

// Reason is the reason why the leases of an epoch are over.
type Reason uint8

const (
	Expired Reason = iota + 1 // the server ended the session
	Silent                    // the server has been silent, and may soon end the session
	Closed                    // the client was closed
)

// Dependent is an object that must end together with its epoch.
type Dependent interface{ EpochOver(why Reason) }

// begin() records the session's id and timeout whenever a connection is attached. The first attachment also
// confirms the session, as a heartbeat does, because the leader has created the session after the client
// asked for it.
func (e *Epoch) begin(sid int64, timeout time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timeout, e.moved = timeout, e.sid != 0
	if e.sid == 0 { // later attachments have the same id
		e.sid = sid
		e.overdue = e.left(e.k.Now()) <= 0
	}
}

// asking() records that a heartbeat is about to be sent.
func (e *Epoch) asking() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.moved = false
}

// ID returns the id of the session.
func (e *Epoch) ID() int64 { return e.sid }

// Conn returns the connection of the session.
func (e *Epoch) Conn() *zk.Conn { return e.conn }

// Gone is closed when the session is over.
func (e *Epoch) Gone() <-chan struct{} { return e.gone }

// Ended reports whether the server, or Close, ended the session.
func (e *Epoch) Ended() bool {
	select {
	case <-e.gone:
		return true
	default:
		return false
	}
}

// Timeout returns the timeout that the server has granted.
func (e *Epoch) Timeout() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timeout
}

// Add registers an object that ends with the epoch. It returns false if the epoch is not valid.
func (e *Epoch) Add(h Dependent) bool {
	if !e.Valid() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over != 0 || e.overdue {
		return false
	}
	e.holds[h] = struct{}{}
	return true
}

// Remove removes an object that Add registered.
func (e *Epoch) Remove(h Dependent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.holds, h)
}

// loseAll ends every lease of the epoch.
func (e *Epoch) loseAll(why Reason) {
	e.mu.Lock()
	holds := slices.Collect(maps.Keys(e.holds))
	e.mu.Unlock()
	for _, h := range holds {
		h.EpochOver(why)
	}
}

// finish() ends the epoch.
func (e *Epoch) finish(why Reason) {
	e.mu.Lock()
	first := e.over == 0
	if first {
		e.over = why
		close(e.gone)
	}
	e.mu.Unlock()
	if first {
		e.loseAll(why)
	}
}

// Rest waits for the timer or for one of the signals; each of them may be nil. Afterwards the caller must
// check everything again. The end of the session or of ctx also ends the wait, with an error.
func (e *Epoch) Rest(ctx context.Context, timer <-chan time.Time, signals ...<-chan struct{}) error {
	var s [3]<-chan struct{}
	copy(s[:], signals)
	select {
	case <-timer:
	case <-s[0]:
	case <-s[1]:
	case <-s[2]:
	case <-e.gone:
		return zk.ErrSessionExpired
	case <-ctx.Done():
		return CtxErr(ctx)
	}
	return nil
}

// RestAwhile is like Rest, but also returns when the next regular look is due.
func (e *Epoch) RestAwhile(ctx context.Context, signals ...<-chan struct{}) error {
	return e.Rest(ctx, e.Recheck(true), signals...)
}

// Recheck ticks when a waiter must look at its node again, in case the server does not send the event. It
// ticks rarely if a watch reports the node's end, and as often as heartbeats if the session may not read the
// node. The period is random, so that waiters that began together do not look at the same time.
func (e *Epoch) Recheck(hidden bool) <-chan time.Time {
	d := e.k.opt.Safety
	if d < 0 {
		d = e.LookAgain(hidden)
	}
	return time.Tick(d*3/4 + rand.N(d/2+1)) // nil if d is 0
}

// LookAgain returns the time until a waiter must look at its node again if there is no event.
func (e *Epoch) LookAgain(hidden bool) time.Duration {
	d := e.Timeout()
	if hidden {
		d = Heartbeat(d)
	}
	return d + rand.N(d/4+1)
}
