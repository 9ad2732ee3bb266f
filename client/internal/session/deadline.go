package session

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
)

const (
	clockDrift = 0.005 // how much the clocks of client and server may differ in speed
	minMargin  = time.Second
)

// marginFor returns the safety margin for a session with timeout t.
func (o *Options) marginFor(t time.Duration) time.Duration {
	if o.Margin > 0 {
		return o.Margin
	}
	return max(t/5, minMargin)
}

// usable returns how long after a confirmed heartbeat a session with timeout t counts as alive.
func (o *Options) usable(t time.Duration) time.Duration {
	return time.Duration(float64(t)*(1-clockDrift)) - o.marginFor(t)
}

// checkTimeout refuses a session timeout that leaves no time for two heartbeats before the deadline. With
// such a timeout, leases would be lost and granted again and again.
func (o *Options) checkTimeout(granted time.Duration) error {
	need := 2 * Heartbeat(granted)
	if o.usable(granted) >= need {
		return nil
	}
	least := time.Duration(float64(o.marginFor(granted))/(1-clockDrift-2.0/5)).Round(100*time.Millisecond) +
		100*time.Millisecond
	by := ""
	if granted != o.Timeout {
		by = fmt.Sprintf(" (granted by the server instead of %v)", o.Timeout)
	}
	return fmt.Errorf("%w: a session timeout of %v%s is too short: leases are given up %v before the "+
		"session ends, and two heartbeats need %v; ask for a timeout of %v or more, or for a smaller margin",
		recipe.ErrInvalid, granted, by, o.marginFor(granted), need, least)
}

// Margin returns the safety margin for a session with timeout t: the session counts as ended that long before
// the server may end it.
func (k *Keeper) Margin(t time.Duration) time.Duration { return k.opt.marginFor(t) }

// left() returns the time until the deadline. The caller holds e.mu.
func (e *Epoch) left(now Reading) time.Duration {
	return e.k.opt.usable(e.timeout) - now.Since(e.confirmed)
}

// Remaining returns the time until the deadline. It is zero or negative if the deadline has passed.
func (e *Epoch) Remaining(now Reading) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left(now)
}

// outlived reports whether the session has had no confirmation for its whole timeout.
func (e *Epoch) outlived() bool {
	now := e.k.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	return now.Since(e.confirmed) > e.timeout
}

// ValidUntil returns the deadline as a time of day. If the epoch is not valid, that time is in the past.
func (e *Epoch) ValidUntil() time.Time {
	now := e.k.Now()
	if e.Ended() {
		return now.Wall.Add(-time.Nanosecond)
	}
	return now.Wall.Add(e.Remaining(now))
}

// Valid reports whether the session is certainly alive, according to the clock.
func (e *Epoch) Valid() bool { return e.WhyOver() == 0 }

// WhyOver returns why the leases of the session are lost. It returns 0 while they are valid. It also checks
// the clock.
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

// alive reports whether the leases of the session are valid, without a check of the clock.
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
	e.k.opt.Log.Info("the session was not confirmed in time; its leases are given up", "session",
		recipe.Session(e.sid))
	e.loseAll(Silent)
	e.k.update(func() {})
}

// confirm() records that the server answered a heartbeat that was sent at t. Leases that were lost because
// the deadline had passed stay lost.
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

// wrote() records that the server applied a write that was sent at t. The leader takes a write as a sign of
// life, like a heartbeat.
func (e *Epoch) wrote(t Reading) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.overdue && t.Mono > e.confirmed.Mono && e.left(t) > 0 {
		e.confirmed = t
	}
}
