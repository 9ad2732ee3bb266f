package client

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// handClock shows what a test sets.
type handClock struct{ now reading }

func (c *handClock) Now() reading { return c.now }

func (c *handClock) pass(d time.Duration) {
	c.now.Mono, c.now.Boot, c.now.Wall = c.now.Mono+d, c.now.Boot+d, c.now.Wall.Add(d)
}

// withoutServer returns a client without a server, and an epoch of it that began now with a timeout of ten
// seconds and a margin of two.
func withoutServer() (*Client, *epoch, *handClock) {
	clock := &handClock{now: reading{Mono: time.Hour, Boot: time.Hour, Wall: time.Unix(1_000_000, 0)}}
	o := options{session: session{clock: clock, margin: 2 * time.Second, log: slog.New(slog.DiscardHandler)}}
	c, err := newClient("none", o)
	if err != nil {
		panic(err) // "none" is the name of a server
	}
	c.reaper.slots = nil // there is no connection to remove nodes by
	e := &epoch{k: c.keeper, confirmed: clock.now, gone: make(chan struct{}), holds: map[dependent]struct{}{}}
	e.begin(7, 10*time.Second)
	c.ep, c.attached = e, true
	return c, e, clock
}

// The deadline is 7.95 s after the latest confirmation: ten seconds less the margin and the drift of clocks.
const deadline = 7950 * time.Millisecond

// A session counts as alive for the time since the latest confirmed request, and no write or heartbeat that
// was sent before that changes it.
func TestDeadlineFollowsConfirmations(t *testing.T) {
	c, e, clock := withoutServer()
	start := clock.now
	must.That(t, e.valid() && e.remaining(clock.now) == deadline, "%v remain", e.remaining(clock.now))
	must.Equal(t, e.validUntil(), start.Wall.Add(deadline))
	clock.pass(deadline - 1)
	must.That(t, e.valid() && e.alive() && !e.outlived(), "not valid before the deadline")
	e.wrote(clock.now)
	must.Equal(t, e.remaining(clock.now), deadline, "after a write")
	e.wrote(start)
	e.confirm(start)
	must.Equal(t, e.remaining(clock.now), deadline, "after earlier requests")
	clock.pass(deadline)
	must.Equal(t, e.remaining(clock.now), 0)
	late := clock.now
	must.Equal(t, e.whyOver(), overSilent)
	must.That(t, !e.valid() && !e.alive() && !e.outlived(), "valid at the deadline")
	e.wrote(late)
	must.That(t, !e.valid() && e.remaining(clock.now) == 0, "a write brings back what is lost")
	must.That(t, !e.add(&hold{}) && len(e.holds) == 0, "a hold is added")
	clock.pass(time.Second)
	e.confirm(late)
	must.That(t, e.valid() && e.remaining(clock.now) == deadline-time.Second, "%v remain",
		e.remaining(clock.now))
	h := &hold{}
	must.That(t, e.add(h) && len(e.holds) == 1, "no hold can be added")
	e.remove(h)
	must.Equal(t, len(e.holds), 0, "holds")
	clock.pass(9*time.Second + 1)
	must.That(t, e.outlived() && !e.ended(), "not outlived after ten seconds and more")
	must.Equal(t, e.whyOver(), overSilent)
	// A heartbeat that was sent too long ago does not make the session valid.
	e.confirm(late)
	must.Equal(t, e.whyOver(), overSilent)
	must.Equal(t, c.State(), StateLost)
	e.confirm(clock.now)
	must.Equal(t, e.whyOver(), 0)
	must.Equal(t, c.State(), StateReady)
}

// The end of an epoch is told once, with its first reason.
func TestEpochEndsOnce(t *testing.T) {
	c, e, clock := withoutServer()
	h := newHold(&attempt{c: c, path: "/a", cfg: &options{}, leave: func() {}}, e, fence.Exclusive, 5,
		heldNode{path: "/a/n"})
	c.named.m = map[taskPath][]*Lease{}
	must.That(t, e.add(h), "the hold is not added")
	l := must.Get(h.addLease(t.Context(), fence.Exclusive))(t)
	must.OK(t, l.Err())
	must.That(t, l.Valid() && !e.ended(), "not valid")
	e.finish(overExpired)
	e.finish(overClosed)
	must.Equal(t, e.whyOver(), overExpired)
	lostFor(t, l.Err(), Expired)
	must.That(t, e.ended() && !e.alive() && !e.add(h), "it goes on")
	must.Equal(t, e.validUntil(), clock.now.Wall.Add(-time.Nanosecond))
	must.Equal(t, len(e.holds), 0, "holds")
	must.Is(t, e.rest(t.Context(), nil), ErrSessionExpired)
	must.Is(t, e.awaitValid(t.Context()), ErrSessionExpired)
	select {
	case <-e.reap("/a/n"):
	default:
		t.Error("the nodes went with the session, but are removed")
	}
}

// A later attachment of the session changes its timeout, and asks for a heartbeat at once.
func TestHeartbeatIsDueAfterAMove(t *testing.T) {
	_, e, clock := withoutServer()
	since, due := e.quiet(clock.now)
	must.That(t, since == 0 && due == 10*time.Second/3, "without holds: %v of %v", since, due)
	e.add(&hold{})
	clock.pass(time.Second)
	since, due = e.quiet(clock.now)
	must.That(t, since == time.Second && due == 2*time.Second, "with a hold: %v of %v", since, due)
	e.begin(7, 20*time.Second)
	since, due = e.quiet(clock.now)
	must.That(t, since == due && due == 4*time.Second, "on another connection: %v of %v", since, due)
	e.asking()
	since, due = e.quiet(clock.now)
	must.That(t, since == time.Second && due == 4*time.Second, "after it was sent: %v of %v", since, due)
	// A session that was asked for long ago is not valid before it is confirmed.
	late := &epoch{k: e.k, confirmed: clock.now, gone: make(chan struct{})}
	clock.pass(deadline)
	late.begin(8, 10*time.Second)
	must.That(t, !late.alive() && !late.valid() && !late.moved, "valid")
	// A session of which nothing more is known keeps what is known of it.
	e.wrote(clock.now)
	e.begin(7, 10*time.Second)
	must.That(t, e.alive() && e.sid == 7, "%d", e.sid)
}

// Time passes by the hand that shows the most. A wall clock that was set back says nothing.
func TestTimeBetweenTwoReadings(t *testing.T) {
	a := reading{Mono: time.Hour, Boot: time.Hour, Wall: time.Unix(1000, 0)}
	for _, x := range []struct{ mono, boot, wall, want time.Duration }{
		{1, 1, 1, 1}, {3, 1, 2, 3}, {1, 3, 2, 3}, {1, 2, 3, 3}, {1, 1, -5, 1}, {0, 0, 0, 0},
	} {
		b := reading{Mono: a.Mono + x.mono, Boot: a.Boot + x.boot, Wall: a.Wall.Add(x.wall)}
		expect.Equal(t, b.since(a), x.want, "%v", x)
	}
	c := newSystemClock()
	r := c.Now()
	must.That(t, r.Mono >= 0 && r.Boot >= 0 && c.Now().since(r) >= 0, "%+v", r)
}

// A waiter looks at its own node later the farther it is from its turn, and within the session's timeout.
func TestWhenAWaiterLooksAtItsOwnNode(t *testing.T) {
	_, e, _ := withoutServer()
	for ahead, want := range map[int]time.Duration{0: 100, 1: 100, 2: 120, 11: 300, 496: 10_000, 1000: 10_000} {
		expect.Equal(t, e.ownWatchIn(ahead), want*time.Millisecond, "with %d ahead", ahead)
	}
	for range 100 {
		far, near := e.lookAgain(false), e.lookAgain(true)
		must.That(t, far >= 10*time.Second && far <= 12500*time.Millisecond, "%v", far)
		must.That(t, near >= 2*time.Second && near <= 2500*time.Millisecond, "hidden: %v", near)
	}
}

// A write confirms the session, as a heartbeat does.
func TestWriteConfirmsTheSession(t *testing.T) {
	shared(t)
	c, d := dial(t), dir(t)
	e := present(t, c)
	confirmed := func() time.Duration {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.confirmed.Mono
	}
	unlock(t, lock(t, c.Mutex(d).Lock)) // makes the directory
	before := c.opt.clock.Now().Mono
	unlock(t, lock(t, c.Mutex(d).Lock))
	must.That(t, confirmed() >= before, "not confirmed since")
}

func (c bubbleClock) Now() reading {
	d := time.Since(c.origin)
	return reading{Mono: d, Boot: d, Wall: time.Now()}
}

// A wait for a session waits for the one that is meant, and until it is confirmed.
func TestSessionThatIsWaitedFor(t *testing.T) {
	c, e, clock := withoutServer()
	must.OK(t, e.awaitValid(t.Context()))
	must.That(t, must.Get(c.epoch(t.Context()))(t) == e, "another session")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	must.Is(t, e.awaitValid(ended), context.Canceled)
	waits := func(what string) {
		t.Helper()
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		must.Is(t, e.awaitValid(short), context.DeadlineExceeded, "%s", what)
	}
	c.attached = false
	waits("without a connection")
	c.attached = true
	c.ep = &epoch{k: c.keeper, sid: 8, timeout: time.Hour, confirmed: clock.now, gone: make(chan struct{})}
	waits("beside another session")
	c.ep = e
	clock.pass(deadline)
	waits("unconfirmed")
	e.confirm(clock.now)
	must.OK(t, e.awaitValid(t.Context()))
}
