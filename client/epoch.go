package client

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

// epoch is one session, until the server or Close ends it. A lease belongs to one epoch. The local
// deadline may end the leases of an epoch while the epoch goes on.
type epoch struct {
	k    *keeper
	conn *zk.Conn
	sid  int64         // set before other goroutines see the epoch
	gone chan struct{} // closed when the session is over

	mu        sync.Mutex
	timeout   time.Duration
	confirmed reading // time before sending the latest heartbeat that was answered, or asking for the session
	overdue   bool    // the deadline passed and nothing was heard since
	moved     bool    // to another connection, on which no heartbeat was sent yet
	over      overReason
	holds     map[dependent]struct{}
}

// overReason says why the leases of an epoch are over.
type overReason uint8

const (
	overExpired overReason = iota + 1 // the server ended the session
	overSilent                        // the server was not heard from, and may end the session soon
	overClosed                        // the client was closed
)

// dependent is what lives no longer than an epoch.
type dependent interface{ epochOver(why overReason) }

// begin records the session's id and timeout, at every attachment. No heartbeat says more than the
// first one: the leader has begun the session since it was asked for.
func (e *epoch) begin(sid int64, timeout time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timeout, e.moved = timeout, e.sid != 0
	if e.sid == 0 { // of a later attachment it is the same
		e.sid = sid
		e.overdue = e.left(e.k.opt.clock.Now()) <= 0
	}
}

// asking notes that a heartbeat is sent.
func (e *epoch) asking() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.moved = false
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// ended reports whether the server, or Close, ended the session.
func (e *epoch) ended() bool {
	return isClosed(e.gone)
}

func (e *epoch) sessionTimeout() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timeout
}

// left is the time until the deadline. e.mu is held.
func (e *epoch) left(now reading) time.Duration {
	return e.k.opt.usable(e.timeout) - now.since(e.confirmed)
}

// remaining is the time until the deadline, zero or less if it has passed.
func (e *epoch) remaining(now reading) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left(now)
}

// outlived reports whether the session was not confirmed for its whole timeout.
func (e *epoch) outlived() bool {
	now := e.k.opt.clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.since(e.confirmed) > e.timeout
}

// validUntil returns the deadline as a time of day, in the past if the epoch is not valid.
func (e *epoch) validUntil() time.Time {
	now := e.k.opt.clock.Now()
	if e.ended() {
		return now.Wall.Add(-time.Nanosecond)
	}
	return now.Wall.Add(e.remaining(now))
}

// valid computes from the clock whether the session is certainly alive.
func (e *epoch) valid() bool { return e.whyOver() == 0 }

// whyOver returns why leases of the session are lost at this moment, by the clock too, and 0 while
// they are valid.
func (e *epoch) whyOver() overReason {
	e.checkDeadline()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over != 0:
		return e.over
	case e.overdue || e.left(e.k.opt.clock.Now()) <= 0:
		return overSilent
	}
	return 0
}

// alive reports whether nothing is known that ends the leases of the session.
func (e *epoch) alive() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.overdue && e.over == 0
}

// checkDeadline ends the leases if the deadline has passed.
func (e *epoch) checkDeadline() {
	now := e.k.opt.clock.Now()
	e.mu.Lock()
	late := !e.overdue && e.left(now) <= 0
	if late {
		e.overdue = true
	}
	e.mu.Unlock()
	if !late || e.ended() {
		return
	}
	e.k.opt.log.Info("session not confirmed in time, leases given up", "session", recipe.Session(e.sid))
	e.loseAll(overSilent)
	e.k.update(func() {})
}

// confirm records that the server answered a heartbeat sent at t. If the deadline passed before,
// the earlier leases stay lost.
func (e *epoch) confirm(t reading) {
	e.checkDeadline()
	e.mu.Lock()
	if t.Mono > e.confirmed.Mono {
		e.confirmed = t
	}
	e.overdue = e.left(e.k.opt.clock.Now()) <= 0
	e.mu.Unlock()
	e.k.update(func() {})
}

// wrote records that the server carried out a write sent at t: the leader has heard of the session
// then, as by a heartbeat.
func (e *epoch) wrote(t reading) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.overdue && t.Mono > e.confirmed.Mono && e.left(t) > 0 {
		e.confirmed = t
	}
}

// quiet returns how long the session was not confirmed, and after how long a heartbeat is due. A
// session without holds only keeps its places and needs fewer heartbeats.
func (e *epoch) quiet(now reading) (since, due time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	due = heartbeat(e.timeout)
	if len(e.holds) == 0 {
		due = e.timeout / 3
	}
	if e.moved {
		return due, due
	}
	return now.since(e.confirmed), due
}

// add registers a hold for loss. It fails if the epoch is not valid.
func (e *epoch) add(h dependent) bool {
	if !e.valid() {
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

func (e *epoch) remove(h dependent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.holds, h)
}

// loseAll ends every lease of the epoch.
func (e *epoch) loseAll(why overReason) {
	e.mu.Lock()
	holds := slices.Collect(maps.Keys(e.holds))
	e.mu.Unlock()
	for _, h := range holds {
		h.epochOver(why)
	}
}

// finish ends the epoch.
func (e *epoch) finish(why overReason) {
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

// rest waits for the timer or one of the signals, each of which may be nil; the caller looks at
// everything again afterwards. The error is the end of the session or of ctx, either of which ends
// every wait.
func (e *epoch) rest(ctx context.Context, timer <-chan time.Time, signals ...<-chan struct{}) error {
	var s [3]<-chan struct{}
	copy(s[:], signals)
	select {
	case <-timer:
	case <-s[0]:
	case <-s[1]:
	case <-s[2]:
	case <-e.gone:
		return ErrSessionExpired
	case <-ctx.Done():
		return ctxErr(ctx)
	}
	return nil
}

// restAwhile is rest that also returns when another look is due anyway.
func (e *epoch) restAwhile(ctx context.Context, signals ...<-chan struct{}) error {
	return e.rest(ctx, e.recheck(true), signals...)
}

// recheck ticks for another look at an awaited node, in case the server withholds its event: rarely
// where a watch tells of the node's end, and with every heartbeat where the node may not be read.
// The first tick comes early for some, so that waiters that began together do not look together.
func (e *epoch) recheck(hidden bool) <-chan time.Time {
	d := e.k.opt.safety
	if d < 0 {
		d = e.lookAgain(hidden)
	}
	return time.Tick(d*3/4 + rand.N(d/2+1)) // nil for 0
}

// lookAgain returns the time until another look at a node, whatever its watch says.
func (e *epoch) lookAgain(hidden bool) time.Duration {
	d := e.sessionTimeout()
	if hidden {
		d = heartbeat(d)
	}
	return d + rand.N(d/4+1)
}

// firedOf returns the signal of a watch, nil if there is no watch.
func firedOf(w *zk.Watch) <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.Fired()
}

// reading is one look at a clock's three hands. Only differences matter.
type reading struct {
	// Mono does not move while the machine is suspended.
	Mono time.Duration
	// Boot moves while the machine is suspended. Where the system has no such
	// clock it equals Mono.
	Boot time.Duration
	// Wall is the time of day, which an operator may set.
	Wall time.Time
}

// clocks tell the time. A Client asks them for every decision about the validity of a lease; a
// timer only makes it ask again.
type clocks interface {
	Now() reading
}

// systemClock reads the machine's clocks.
type systemClock struct{ origin time.Time }

func newSystemClock() clocks { return systemClock{origin: time.Now()} }

func (c systemClock) Now() reading {
	now := time.Now()
	mono := now.Sub(c.origin)
	return reading{Mono: mono, Boot: bootTime(mono), Wall: now}
}

// since returns the time elapsed from a to b by the most pessimistic hand. A suspended machine
// stops the monotonic clock, so the others must count; a wall clock that was set back says nothing.
func (b reading) since(a reading) time.Duration {
	d := max(b.Mono-a.Mono, b.Boot-a.Boot)
	// Round strips the monotonic reading: only the wall hand is compared here.
	return max(d, b.Wall.Round(0).Sub(a.Wall.Round(0)))
}
