package session

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Epoch is one session, until the server or Close ends it. A lease belongs to one epoch. The local
// deadline may end the leases of an epoch while the epoch goes on.
type Epoch struct {
	k    *Keeper
	conn *zk.Conn
	sid  int64         // set before other goroutines see the epoch
	gone chan struct{} // closed when the session is over

	mu        sync.Mutex
	timeout   time.Duration
	confirmed Reading // time before sending the latest heartbeat that was answered, or asking for the session
	overdue   bool    // the deadline passed and nothing was heard since
	moved     bool    // to another connection, on which no heartbeat was sent yet
	over      Reason
	holds     map[Dependent]struct{}
}

// newEpoch returns an epoch whose session is asked for at this moment.
func newEpoch(k *Keeper) *Epoch {
	return &Epoch{k: k, confirmed: k.Now(), gone: make(chan struct{}), holds: map[Dependent]struct{}{}}
}

// Reason says why the leases of an epoch are over.
type Reason uint8

const (
	Expired Reason = iota + 1 // the server ended the session
	Silent                    // the server was not heard from, and may end the session soon
	Closed                    // the client was closed
)

// Dependent is what lives no longer than an epoch.
type Dependent interface{ EpochOver(why Reason) }

// begin records the session's id and timeout, at every attachment. No heartbeat says more than the
// first one: the leader has begun the session since it was asked for.
func (e *Epoch) begin(sid int64, timeout time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timeout, e.moved = timeout, e.sid != 0
	if e.sid == 0 { // of a later attachment it is the same
		e.sid = sid
		e.overdue = e.left(e.k.Now()) <= 0
	}
}

// asking notes that a heartbeat is sent.
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

// Timeout returns the timeout as granted by the server.
func (e *Epoch) Timeout() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timeout
}

// left is the time until the deadline. e.mu is held.
func (e *Epoch) left(now Reading) time.Duration {
	return e.k.opt.usable(e.timeout) - now.Since(e.confirmed)
}

// Remaining is the time until the deadline, zero or less if it has passed.
func (e *Epoch) Remaining(now Reading) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left(now)
}

// outlived reports whether the session was not confirmed for its whole timeout.
func (e *Epoch) outlived() bool {
	now := e.k.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Since(e.confirmed) > e.timeout
}

// ValidUntil returns the deadline as a time of day, in the past if the epoch is not valid.
func (e *Epoch) ValidUntil() time.Time {
	now := e.k.Now()
	if e.Ended() {
		return now.Wall.Add(-time.Nanosecond)
	}
	return now.Wall.Add(e.Remaining(now))
}

// Valid computes from the clock whether the session is certainly alive.
func (e *Epoch) Valid() bool { return e.WhyOver() == 0 }

// WhyOver returns why leases of the session are lost at this moment, by the clock too, and 0 while
// they are valid.
func (e *Epoch) WhyOver() Reason {
	e.checkDeadline()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over != 0:
		return e.over
	case e.overdue || e.left(e.k.Now()) <= 0:
		return Silent
	}
	return 0
}

// alive reports whether nothing is known that ends the leases of the session.
func (e *Epoch) alive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.overdue && e.over == 0
}

// checkDeadline ends the leases if the deadline has passed.
func (e *Epoch) checkDeadline() {
	now := e.k.Now()
	e.mu.Lock()
	late := !e.overdue && e.left(now) <= 0
	if late {
		e.overdue = true
	}
	e.mu.Unlock()
	if !late || e.Ended() {
		return
	}
	e.k.opt.Log.Info("session not confirmed in time, leases given up", "session", recipe.Session(e.sid))
	e.loseAll(Silent)
	e.k.update(func() {})
}

// confirm records that the server answered a heartbeat sent at t. If the deadline passed before,
// the earlier leases stay lost.
func (e *Epoch) confirm(t Reading) {
	e.checkDeadline()
	e.mu.Lock()
	if t.Mono > e.confirmed.Mono {
		e.confirmed = t
	}
	e.overdue = e.left(e.k.Now()) <= 0
	e.mu.Unlock()
	e.k.update(func() {})
}

// wrote records that the server carried out a write sent at t: the leader has heard of the session
// then, as by a heartbeat.
func (e *Epoch) wrote(t Reading) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.overdue && t.Mono > e.confirmed.Mono && e.left(t) > 0 {
		e.confirmed = t
	}
}

// quiet returns how long the session was not confirmed, and after how long a heartbeat is due. A
// session without holds only keeps its places and needs fewer heartbeats.
func (e *Epoch) quiet(now Reading) (since, due time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	due = Heartbeat(e.timeout)
	if len(e.holds) == 0 {
		due = e.timeout / 3
	}
	if e.moved {
		return due, due
	}
	return now.Since(e.confirmed), due
}

// Add registers a hold for loss. It fails if the epoch is not valid.
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

// Remove forgets a hold.
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

// finish ends the epoch.
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

// Rest waits for the timer or one of the signals, each of which may be nil; the caller looks at
// everything again afterwards. The error is the end of the session or of ctx, either of which ends
// every wait.
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

// RestAwhile is Rest that also returns when another look is due anyway.
func (e *Epoch) RestAwhile(ctx context.Context, signals ...<-chan struct{}) error {
	return e.Rest(ctx, e.Recheck(true), signals...)
}

// Recheck ticks for another look at an awaited node, in case the server withholds its event: rarely
// where a watch tells of the node's end, and with every heartbeat where the node may not be read.
// The first tick comes early for some, so that waiters that began together do not look together.
func (e *Epoch) Recheck(hidden bool) <-chan time.Time {
	d := e.k.opt.Safety
	if d < 0 {
		d = e.LookAgain(hidden)
	}
	return time.Tick(d*3/4 + rand.N(d/2+1)) // nil for 0
}

// LookAgain returns the time until another look at a node, whatever its watch says.
func (e *Epoch) LookAgain(hidden bool) time.Duration {
	d := e.Timeout()
	if hidden {
		d = Heartbeat(d)
	}
	return d + rand.N(d/4+1)
}
