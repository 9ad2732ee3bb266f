package session

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// handClock is a clock that shows the time that the test sets.
type handClock struct{ now Reading }

func (c *handClock) Now() Reading { return c.now }

func (c *handClock) pass(d time.Duration) {
	c.now.Mono, c.now.Boot, c.now.Wall = c.now.Mono+d, c.now.Boot+d, c.now.Wall.Add(d)
}

// withoutServer returns a keeper without a server, and its session, which begins now. The session has a
// timeout of ten seconds and a margin of two.
func withoutServer() (*Keeper, *Epoch, *handClock) {
	clock := &handClock{now: Reading{Mono: time.Hour, Boot: time.Hour, Wall: time.Unix(1_000_000, 0)}}
	k, e := Stub(Options{Clock: clock, Margin: 2 * time.Second, Log: slog.New(slog.DiscardHandler)}, 7,
		10*time.Second, nil)
	return k, e, clock
}

// The deadline is 7.95 s after the latest confirmation: ten seconds less the margin and the drift of clocks.
const deadline = 7950 * time.Millisecond

// knows() checks what the client knows of a session: certainly alive (valid), not known to have ended
// (alive), unconfirmed for its whole timeout (outlived).
func knows(t *testing.T, e *Epoch, when string, valid, alive, outlived bool) {
	t.Helper()
	expect.Equal(t, e.Valid(), valid, "valid %s", when)
	expect.Equal(t, e.alive(), alive, "alive %s", when)
	expect.Equal(t, e.outlived(), outlived, "outlived %s", when)
}

// A session counts as alive for a fixed time after the client sent the latest confirmed request. The answer
// to an earlier write or heartbeat does not change that.
func TestDeadlineFollowsConfirmations(t *testing.T) {
	k, e, clock := withoutServer()
	start := clock.now
	knows(t, e, "at the beginning", true, true, false)
	must.Equal(t, e.Remaining(clock.now), deadline, "at the beginning")
	must.Equal(t, e.ValidUntil(), start.Wall.Add(deadline))
	clock.pass(deadline - 1)
	knows(t, e, "before the deadline", true, true, false)
	e.wrote(clock.now)
	must.Equal(t, e.Remaining(clock.now), deadline, "after a write")
	e.wrote(start)
	e.confirm(start)
	must.Equal(t, e.Remaining(clock.now), deadline, "after earlier requests")
	clock.pass(deadline)
	must.Equal(t, e.Remaining(clock.now), 0, "at the deadline")
	late := clock.now
	must.Equal(t, e.WhyOver(), Silent)
	knows(t, e, "at the deadline", false, false, false)
	e.wrote(late)
	knows(t, e, "after a write at the deadline", false, false, false)
	must.Equal(t, e.Remaining(clock.now), 0, "after a write at the deadline")
	must.That(t, !e.Add(new(dependent)), "it takes a hold after the deadline")
	must.Equal(t, e.Dependents(), 0, "holds after the deadline")
	clock.pass(time.Second)
	e.confirm(late)
	knows(t, e, "after a heartbeat", true, true, false)
	must.Equal(t, e.Remaining(clock.now), deadline-time.Second, "after a heartbeat")
	h := new(dependent)
	must.That(t, e.Add(h), "it takes no hold after a heartbeat")
	must.Equal(t, e.Dependents(), 1, "holds")
	e.Remove(h)
	must.Equal(t, e.Dependents(), 0, "holds after the end of the only one")
	clock.pass(9*time.Second + 1)
	knows(t, e, "after more than its timeout", false, false, true)
	must.That(t, !e.Ended(), "it has ended, of which only the server may tell")
	must.Equal(t, e.WhyOver(), Silent)
	// A heartbeat that was sent too long ago does not make the session valid.
	e.confirm(late)
	must.Equal(t, e.WhyOver(), Silent)
	must.Equal(t, k.State(), Lost)
	e.confirm(clock.now)
	must.Equal(t, e.WhyOver(), 0)
	must.Equal(t, k.State(), Ready)
}

// The end of a session is told once, with its first reason.
func TestEpochEndsOnce(t *testing.T) {
	_, e, clock := withoutServer()
	h := new(dependent)
	must.That(t, e.Add(h), "the hold is not added")
	must.That(t, !e.Ended(), "it has ended before its end")
	e.finish(Expired)
	e.finish(Closed)
	must.List(t, h.why, []Reason{Expired})
	must.Equal(t, e.WhyOver(), Expired)
	must.That(t, e.Ended(), "it goes on")
	must.That(t, isClosed(e.Gone()), "its end is not told")
	must.That(t, !e.alive(), "it is alive")
	must.That(t, !e.Add(h), "it takes a hold")
	must.Equal(t, e.ValidUntil(), clock.now.Wall.Add(-time.Nanosecond))
	must.Is(t, e.Rest(t.Context(), nil), zk.ErrSessionExpired)
	must.Is(t, e.AwaitValid(t.Context()), zk.ErrSessionExpired)
	must.That(t, isClosed(e.Reap("/a/n")), "the nodes went with the session, but are removed")
}

// A heartbeat is due earlier if the session has holds, and at once on a new connection.
func TestWhenAHeartbeatIsDue(t *testing.T) {
	_, e, clock := withoutServer()
	due := func(when string, since, after time.Duration) {
		t.Helper()
		gotSince, gotAfter := e.quiet(clock.now)
		expect.Equal(t, gotSince, since, "time since the latest confirmation %s", when)
		expect.Equal(t, gotAfter, after, "time between two %s", when)
	}
	due("without holds", 0, 10*time.Second/3)
	e.Add(new(dependent))
	clock.pass(time.Second)
	due("with a hold", time.Second, 2*time.Second)
	e.begin(7, 20*time.Second) // a later attachment changes the timeout
	due("on another connection", 4*time.Second, 4*time.Second)
	e.asking()
	due("after it was sent there", time.Second, 4*time.Second)
	// After the deadline, a write or another attachment does not by itself end the leases.
	clock.pass(deadline)
	e.wrote(clock.now)
	e.begin(7, 10*time.Second)
	expect.That(t, e.alive(), "it is over after another attachment")
	expect.Equal(t, e.ID(), 7)
}

// A session that the client requested long ago is not valid before the server confirms it.
func TestSessionThatTookLongToBegin(t *testing.T) {
	k, _, clock := withoutServer()
	late := &Epoch{k: k, confirmed: clock.now, gone: make(chan struct{})}
	clock.pass(deadline)
	late.begin(8, 10*time.Second)
	knows(t, late, "at its beginning", false, false, false)
	expect.That(t, !late.moved, "its first connection counts as another one")
}

// A waiter reads a node again after a part of the timeout, and earlier if the watch may miss the node's end.
func TestWhenANodeIsLookedAtAgain(t *testing.T) {
	_, e, _ := withoutServer()
	for hidden, least := range map[bool]time.Duration{false: 10 * time.Second, true: 2 * time.Second} {
		for range 100 {
			d := e.LookAgain(hidden)
			expect.That(t, d >= least, "hidden %v: after %v, want %v at least", hidden, d, least)
			expect.That(t, d <= least*5/4, "hidden %v: after %v, want %v at most", hidden, d, least*5/4)
		}
	}
}

// The clock that shows the longest time between two readings counts. A wall clock that was set back does not
// count.
func TestTimeBetweenTwoReadings(t *testing.T) {
	a := Reading{Mono: time.Hour, Boot: time.Hour, Wall: time.Unix(1000, 0)}
	for _, x := range []struct{ mono, boot, wall, want time.Duration }{
		{1, 1, 1, 1}, {3, 1, 2, 3}, {1, 3, 2, 3}, {1, 2, 3, 3}, {1, 1, -5, 1}, {0, 0, 0, 0},
	} {
		b := Reading{Mono: a.Mono + x.mono, Boot: a.Boot + x.boot, Wall: a.Wall.Add(x.wall)}
		expect.Equal(t, b.Since(a), x.want, "%v", x)
	}
	c := SystemClock()
	r := c.Now()
	expect.That(t, r.Mono >= 0, "monotonic clock %v", r.Mono)
	expect.That(t, r.Boot >= 0, "clock since boot %v", r.Boot)
	expect.That(t, c.Now().Since(r) >= 0, "time passed since %+v", r)
}

// AwaitValid waits until its own session is confirmed. A later session does not count.
func TestSessionThatIsWaitedFor(t *testing.T) {
	k, e, clock := withoutServer()
	must.OK(t, e.AwaitValid(t.Context()))
	must.Equal(t, must.Get(k.Await(t.Context()))(t), e, "the session")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	must.Is(t, e.AwaitValid(ended), context.Canceled)
	waits := func(what string) {
		t.Helper()
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		must.Is(t, e.AwaitValid(short), context.DeadlineExceeded, "%s", what)
	}
	k.attached = false
	waits("without a connection")
	k.attached = true
	k.ep = &Epoch{k: k, sid: 8, timeout: time.Hour, confirmed: clock.now, gone: make(chan struct{})}
	waits("beside another session")
	k.ep = e
	clock.pass(deadline)
	waits("unconfirmed")
	e.confirm(clock.now)
	must.OK(t, e.AwaitValid(t.Context()))
}

// The answer to a heartbeat may be processed after the heartbeat's connection has ended. Such a late answer
// does not end the suspension.
func TestLateHeartbeatDoesNotEndASuspension(t *testing.T) {
	k, e, clock := withoutServer()
	k.detach()
	must.Equal(t, k.State(), Suspended)
	k.answered(&pulse{}, answer{e: e, sent: clock.now})
	must.Equal(t, k.State(), Suspended)
	k.update(func() { k.attached = true })
	must.Equal(t, k.State(), Ready)
}

// A holder stops before the server may give its lock away, although their clocks differ in speed.
func TestMarginShortensALease(t *testing.T) {
	for _, x := range []struct{ margin, timeout, want time.Duration }{
		{0, 10 * time.Second, 9950*time.Millisecond - 2*time.Second},
		{3 * time.Second, 10 * time.Second, 6950 * time.Millisecond},
		{time.Millisecond, 10 * time.Second, 9949 * time.Millisecond},
		{0, 4 * time.Second, 3980*time.Millisecond - minMargin}, // a fifth of the timeout is less than minMargin
	} {
		o := Options{Margin: x.margin}
		expect.Equal(t, o.usable(x.timeout), x.want, "%+v", x)
	}
}

// If the server lowers the timeout of a later session too far, calls fail at once, as they do for a first
// session. They do not wait for the session.
func TestSessionThatIsTooShortFails(t *testing.T) {
	k, e, _ := withoutServer()
	e.timeout = time.Second
	k.opt.Timeout, k.opt.Margin = 20*time.Second, 7*time.Second
	_, err := k.Await(t.Context())
	must.Is(t, err, recipe.ErrInvalid)
	expect.Has(t, err.Error(), "too short")
}

// A session timeout must leave room for two heartbeats before the deadline. The error of a shorter timeout
// names one that is long enough.
func TestShortTimeoutsAreRefused(t *testing.T) {
	for _, x := range []struct {
		asked, granted, margin time.Duration
		want                   string
	}{
		{20 * time.Second, 20 * time.Second, 0, ""},
		{2 * time.Second, 2 * time.Second, 0, "ask for a timeout of 1.8s or more"},
		{time.Second, time.Second, 0, "ask for a timeout of 1.8s or more"},
		{2 * time.Second, 2 * time.Second, 100 * time.Millisecond, ""},
		{time.Hour, time.Second, 0,
			"a session timeout of 1s (granted by the server instead of 1h0m0s) is too short"},
		{time.Second, time.Second, 0,
			"a session timeout of 1s is too short: leases are given up 1s before the " +
				"session ends, and two heartbeats need 400ms"},
		{10 * time.Second, 10 * time.Second, 9 * time.Second, "too short"},
	} {
		o := &Options{Timeout: x.asked, Margin: x.margin}
		err := o.checkTimeout(x.granted)
		if x.granted >= 2*time.Second && x.margin == 0 {
			x.want = ""
		}
		if x.want == "" {
			expect.OK(t, err, "%v", x)
			continue
		}
		must.Is(t, err, recipe.ErrInvalid, "%v", x)
		expect.Has(t, err.Error(), x.want)
	}
}
