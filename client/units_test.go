package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
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
	c := &Client{changed: make(chan struct{}), notifier: notifier{calls: make(chan func(), 100)}}
	c.opt = options{clock: clock, margin: 2 * time.Second, log: slog.New(slog.DiscardHandler)}
	c.life, c.endLife = context.WithCancelCause(context.Background())
	c.cleaning, c.endCleaning = context.WithCancelCause(c.life)
	c.calls, c.endCalls = context.WithCancelCause(c.cleaning)
	e := &epoch{c: c, confirmed: clock.now, gone: make(chan struct{}), holds: map[*hold]struct{}{}}
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
	must.Equal(t, e.whyOver(), Deadline)
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
	must.Equal(t, e.whyOver(), Deadline)
	// A heartbeat that was sent too long ago does not make the session valid.
	e.confirm(late)
	must.Equal(t, e.whyOver(), Deadline)
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
	e.finish(Expired)
	e.finish(Closed)
	must.Equal(t, e.whyOver(), Expired)
	lostFor(t, l.Err(), Expired)
	must.That(t, e.ended() && !e.alive() && !e.add(h), "it goes on")
	must.Equal(t, e.validUntil(), clock.now.Wall.Add(-time.Nanosecond))
	must.Equal(t, len(e.holds), 0, "holds")
	must.Is(t, e.rest(t.Context(), nil), ErrSessionExpired)
	must.Is(t, e.awaitValid(t.Context()), ErrSessionExpired)
	select {
	case <-c.reap(e, "/a/n"):
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
	late := &epoch{c: e.c, confirmed: clock.now, gone: make(chan struct{})}
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

// The state follows from what is known of the session.
func TestStates(t *testing.T) {
	alive, dead := &epoch{}, &epoch{overdue: true}
	for _, x := range []struct {
		before   State
		e        *epoch
		attached bool
		want     State
	}{
		{StateConnecting, nil, false, StateConnecting}, {StateConnecting, dead, true, StateConnecting},
		{StateConnecting, alive, true, StateReady}, {StateReady, alive, true, StateReady},
		{StateReady, alive, false, StateSuspended}, {StateReady, dead, true, StateLost},
		{StateReady, &epoch{over: Expired}, true, StateLost}, {StateSuspended, dead, false, StateLost},
		{StateLost, alive, true, StateReady}, {StateClosed, alive, true, StateClosed},
	} {
		c := &Client{state: x.before, ep: x.e, attached: x.attached}
		expect.Equal(t, c.stateNow(), x.want, "%v, %+v", x.before, x.e)
	}
	for s, want := range map[State]string{StateConnecting: "connecting", StateClosed: "closed",
		StateClosed + 1: "unknown"} {
		expect.Equal(t, s.String(), want)
	}
	for r, want := range map[LostReason]string{Expired: "session expired", Closed: "client closed",
		0: "reason 0", Closed + 1: "reason 8"} {
		expect.Equal(t, r.String(), want)
	}
}

// A hook hears of each change of the state once.
func TestStateIsToldWhenItChanges(t *testing.T) {
	c, _, _ := withoutServer()
	var told []string
	c.opt.hooks.OnState = func(from, to State) { told = append(told, from.String()+" "+to.String()) }
	for range 2 {
		changed := c.changed
		c.update(func() {})
		must.That(t, isClosed(changed), "the change wakes no goroutine")
	}
	c.detach()
	c.update(func() { c.attached = true })
	c.update(func() { c.state = StateClosed })
	stop := make(chan struct{})
	close(stop)
	c.notifier.run(stop)
	expect.List(t, told, []string{"connecting ready", "ready suspended", "suspended ready", "ready closed"})
}

// Hooks run in their order, those that wait at the end as well. What is too much is counted.
func TestNotifierKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := notifier{calls: make(chan func(), 3)}
		var told []int
		for i := range 5 {
			n.add(func() { told = append(told, i) })
		}
		must.Equal(t, n.dropped.Load(), 2, "dropped")
		stop, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			n.run(stop)
		}()
		synctest.Wait()
		expect.List(t, told, []int{0, 1, 2})
		n.add(func() { close(stop) })
		n.add(func() { told = append(told, 7) })
		n.add(func() { told = append(told, 8) })
		<-over
		expect.List(t, told, []int{0, 1, 2, 7, 8})
	})
}

// Work that is counted is waited for, also if more comes while a goroutine waits.
func TestTasksAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w tasks
		must.OK(t, w.wait(t.Context()))
		must.Equal(t, w.add(2), 2)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		must.Is(t, w.wait(ended), context.Canceled)
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- w.wait(t.Context()) }()
		}
		synctest.Wait()
		must.Equal(t, w.add(-1), 1)
		must.Equal(t, w.add(1), 2)
		must.Equal(t, w.add(-1), 1)
		synctest.Wait()
		must.Equal(t, len(done), 0, "waits that are over")
		must.Equal(t, w.add(-1), 0)
		must.OK(t, <-done)
		must.OK(t, <-done)
		must.OK(t, w.wait(ended))
		must.Equal(t, w.add(1), 1)
		must.Equal(t, w.add(-1), 0)
	})
}

// Contenders of one process have their turns in the order in which they came. One that leaves the queue is
// passed over, and one that has its turn twice passes it on once.
func TestLocalQueueIsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := localQueues{m: map[localKey][]chan struct{}{}}
		key := localKey{LayoutCurator, "/a"}
		leave := must.Get(g.enter(t.Context(), key, true))(t)
		_, err := g.enter(t.Context(), key, true)
		must.Is(t, err, ErrNotAcquired)
		must.Get(g.enter(t.Context(), localKey{LayoutKazoo, "/a"}, true))(t)
		type turn struct {
			i     int
			leave func()
			err   error
		}
		turns := make(chan turn, 10)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 4 {
			go func() {
				ctx := ctx
				if i != 1 {
					ctx = t.Context()
				}
				leave, err := g.enter(ctx, key, false)
				turns <- turn{i, leave, err}
			}()
			synctest.Wait()
			must.Equal(t, g.waiting(key), i+1, "waiting")
		}
		cancel()
		gone := <-turns
		must.That(t, gone.i == 1 && errors.Is(gone.err, context.Canceled), "%+v", gone)
		must.Equal(t, g.waiting(key), 3, "waiting")
		leave()
		for _, i := range []int{0, 2, 3} {
			leave() // of an earlier turn: it does nothing
			synctest.Wait()
			must.Equal(t, len(turns), 1, "turns")
			next := <-turns
			must.That(t, next.i == i && next.err == nil, "%+v has the turn of %d", next, i)
			leave = next.leave
			leave()
		}
		must.Equal(t, len(g.m), 1, "queues, one of them busy")
		must.Get(g.enter(t.Context(), key, true))(t)
	})
}

// A turn that comes as its contender leaves goes to the next one.
func TestLocalTurnThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // the contender sees the turn or the end first
			g := localQueues{m: map[localKey][]chan struct{}{}}
			leave := must.Get(g.enter(t.Context(), localKey{}, false))(t)
			ctx, cancel := context.WithCancel(t.Context())
			first := make(chan error, 1)
			go func() {
				leave, err := g.enter(ctx, localKey{}, false)
				if err == nil {
					leave()
				}
				first <- err
			}()
			synctest.Wait()
			second := make(chan error, 1)
			go func() {
				_, err := g.enter(t.Context(), localKey{}, false)
				second <- err
			}()
			synctest.Wait()
			g.mu.Lock()
			cancel()
			g.pass(localKey{})
			g.mu.Unlock()
			<-first
			must.OK(t, <-second)
			leave()
		}
	})
}

// What may have happened is tried again, after a pause that grows; what certainly has not happened, or has,
// is not.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := []error{errAgain, zk.ErrUncertain, zk.ErrConnectionLost, errAgain, fmt.Errorf("%w", errAgain)}
		for _, last := range []error{nil, zk.ErrNoNode} {
			n, began := 0, time.Now()
			err := again(t.Context(), func() error {
				if n++; n <= len(outcomes) {
					return outcomes[n-1]
				}
				return last
			})
			must.That(t, errors.Is(err, last) && n == len(outcomes)+1, "%v after %d", err, n)
			took := time.Since(began)
			must.That(t, took >= 3*time.Millisecond*3/4 && took <= 3*time.Millisecond*5/4, "after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		err := again(ctx, func() error { n++; return zk.ErrUncertain })
		must.Is(t, err, context.DeadlineExceeded)
		must.That(t, n > 50 && n < 100, "%d tries in a minute", n)
		began := time.Now()
		must.OK(t, pause(t.Context(), time.Second))
		must.Equal(t, time.Since(began), time.Second)
		for n, want := range map[int]time.Duration{1: 50, 2: 100, 5: 800, 6: 1000, 15: 1000, 16: 1000,
			math.MaxInt: 1000} {
			d := backoff(n, 50*time.Millisecond, time.Second)
			want *= time.Millisecond
			must.That(t, d >= want*3/4 && d <= want*5/4, "%v before try %d", d, n)
		}
	})
}

// The errors of package zk have this package's names, and a context that ended tells why.
func TestPublicErrors(t *testing.T) {
	ctx := t.Context()
	must.OK(t, publicErr(ctx, nil))
	for _, x := range []struct{ err, want error }{
		{zk.ErrNoAuth, ErrNoAuth}, {zk.ErrAuthFailed, ErrNoAuth}, {zk.ErrInvalid, ErrInvalid},
		{zk.ErrQuotaExceeded, zk.ErrQuotaExceeded}, {zk.ErrNoNode, zk.ErrNoNode},
		{context.Canceled, context.Canceled},
	} {
		err := publicErr(ctx, fmt.Errorf("it: %w", x.err))
		expect.That(t, errors.Is(err, x.want) && errors.Is(err, x.err), "%v: %v", x.err, err)
	}
	expect.Has(t, publicErr(ctx, zk.ErrQuotaExceeded).Error(), "client: quota exceeded")
	late := fmt.Errorf("%w within a second", ErrNotAcquired)
	loss := &LostError{Path: "/a", Reason: Removed}
	for _, x := range []struct {
		cause    error
		is       []error
		isNot    error
		readable string
	}{
		{nil, []error{context.Canceled}, ErrLost, "context canceled"},
		{ErrClosed, []error{ErrClosed}, context.Canceled, "zk: closed"},
		{late, []error{ErrNotAcquired, context.Canceled}, ErrLost,
			"client: lock not acquired within a second: context canceled"},
		{loss, []error{ErrLost, context.Canceled}, ErrNotAcquired,
			"context canceled: client: lock /a lost: node removed"},
	} {
		ended, end := context.WithCancelCause(ctx)
		end(x.cause)
		for _, err := range []error{ctxErr(ended), publicErr(ended, fmt.Errorf("it: %w", context.Canceled))} {
			for _, want := range x.is {
				expect.Is(t, err, want)
			}
			expect.That(t, !errors.Is(err, x.isNot), "%v is %v", err, x.isNot)
			expect.Equal(t, err.Error(), x.readable)
		}
		expect.Is(t, publicErr(ended, zk.ErrNoNode), zk.ErrNoNode)
	}
	must.OK(t, errorAt("/a", nil))
	for _, x := range []struct{ in, out string }{
		{"client: x", "client: /a: x"}, {"client: /a is x", "client: /a is x"}, {"x: client: y",
			"client: /a: x: y"},
		{"zk: b /a: zk: c", "client: zk: b /a: c"}, {"x", "client: /a: x"},
	} {
		err := errors.New(x.in)
		expect.That(t, errors.Is(errorAt("/a", err), err), "%s", x.in)
		expect.Equal(t, errorAt("/a", err).Error(), x.out)
	}
}

// An operator's log tells once why there is no connection: of all servers at once, of some after a moment.
func TestTroublesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := withoutServer()
		var log must.Text
		c.opt.log = slog.New(slog.NewTextHandler(&log, nil))
		tr := troubles{c: c, servers: 2, patience: time.Second, latest: map[string]error{},
			said: map[string]string{}}
		said := func(want ...string) {
			t.Helper()
			var got []string
			for line := range strings.Lines(log.String()) {
				for _, word := range []string{"one", "two", "three"} {
					if strings.Contains(line, "err="+word) {
						got = append(got, word)
					}
				}
			}
			must.List(t, got, want)
		}
		tr.add("a", errors.New("one"))
		time.Sleep(time.Second - 1)
		said()
		tr.add("a", errors.New("two"))
		time.Sleep(time.Second)
		said("two")
		tr.add("a", errors.New("two"))
		time.Sleep(time.Minute)
		said("two")
		tr.add("b", errors.New("three")) // now it is all of them
		said("two", "three")
		tr.over()
		tr.add("a", errors.New("one"))
		tr.over()
		time.Sleep(time.Minute)
		said("two", "three")
		tr.add("a", errors.New("two"))
		time.Sleep(time.Minute)
		said("two", "three", "two")
		c.endCalls(ErrClosed)
		tr.add("b", errors.New("one"))
		said("two", "three", "two")
	})
}

// A session timeout leaves room for two heartbeats before the deadline, or is refused with one that does.
func TestShortTimeoutsAreRefused(t *testing.T) {
	for _, x := range []struct {
		asked, granted, margin time.Duration
		want                   string
	}{
		{20 * time.Second, 20 * time.Second, 0, ""}, {2 * time.Second, 2 * time.Second, 0, "ask for 1.8s or more"},
		{time.Second, time.Second, 0, "ask for 1.8s or more"},
		{2 * time.Second, 2 * time.Second, 100 * time.Millisecond, ""},
		{time.Hour, time.Second, 0,
			"a session timeout of 1s (granted by the server instead of 1h0m0s) is too short"},
		{time.Second, time.Second, 0,
			"a session timeout of 1s is too short: leases are given up 1s before it ends, " +
				"and two heartbeats need 400ms"},
		{10 * time.Second, 10 * time.Second, 9 * time.Second, "too short"},
	} {
		o := &options{timeout: x.asked, margin: x.margin}
		err := o.checkTimeout(x.granted)
		if x.granted >= 2*time.Second && x.margin == 0 {
			x.want = ""
		}
		if x.want == "" {
			expect.OK(t, err, "%v", x)
			continue
		}
		must.Is(t, err, ErrInvalid, "%v", x)
		expect.Has(t, err.Error(), x.want)
	}
}

// A task that holds a lock is known as long as it does.
func TestTasksAreKnownByName(t *testing.T) {
	c, e, _ := withoutServer()
	n := &c.named
	n.m = map[taskPath][]*Lease{}
	ctx := Task(t.Context(), "job")
	lease := func(mode fence.Mode) *Lease {
		h := newHold(&attempt{c: c, path: "/a", cfg: &options{}}, e, mode, 5, heldNode{path: "/a/n"})
		return newLease(ctx, h, mode)
	}
	permit, read, other := lease(fence.Permit), lease(fence.Shared), lease(fence.Shared)
	n.add(permit)
	must.Equal(t, len(n.m), 0, "permits that are known")
	n.add(read)
	n.add(other)
	must.Is(t, n.check(ctx, "/a", fence.Exclusive), ErrSelfDeadlock)
	must.OK(t, n.check(ctx, "/a", fence.Shared))
	must.OK(t, n.check(ctx, "/a", fence.Permit))
	must.OK(t, n.check(ctx, "/b", fence.Exclusive))
	must.OK(t, n.check(Task(ctx, "another"), "/a", fence.Exclusive))
	must.OK(t, n.check(t.Context(), "/a", fence.Exclusive))
	n.remove(read)
	must.Is(t, n.check(ctx, "/a", fence.Exclusive), ErrSelfDeadlock)
	n.remove(other)
	must.OK(t, n.check(ctx, "/a", fence.Exclusive))
	must.Equal(t, len(n.m), 0, "leases that are known")
	write := lease(fence.Exclusive)
	n.add(write)
	must.Is(t, n.check(ctx, "/a", fence.Shared), ErrSelfDeadlock)
	must.That(t, taskOf(ctx) == "job" && taskIn(ctx) == "job" && taskIn(t.Context()) == "", "%q", taskOf(ctx))
	first, second := taskOf(t.Context()), taskOf(t.Context())
	must.That(t, first != "" && first != second, "one name for two tasks")
}

// The names of nodes tell what a directory is used for.
func TestUseOfADirectory(t *testing.T) {
	id := newNodeID(7)
	for name, want := range map[string]use{
		recipe.SimpleName: useSimple, recipe.PermitsName: usePermits,
		recipe.PolicyNode{ID: id, Kind: recipe.HoldRead}.Name(true):             usePolicy,
		recipe.NodeName(LayoutCurator, recipe.RoleLock, id, "") + "0000000001":  useQueue,
		recipe.NodeName(LayoutHost, recipe.RoleRead, id, "host") + "0000000001": useQueue,
		recipe.NodeName(LayoutCurator, recipe.RoleLatch, id, "") + "0000000001": useQueue,
		id.Hex(): useBarePermits,
	} {
		got, ok := useOf(name)
		expect.That(t, ok && got == want, "%s: %v, %v", name, got, ok)
	}
	for _, name := range []string{"", "x", "locks", recipe.NodeName(LayoutCurator, recipe.RoleLease, id,
		"") + "0000000001"} {
		got, ok := useOf(name)
		expect.That(t, !ok, "%s: %v", name, got)
	}
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

func TestHolderThatLivesIsInTheList(t *testing.T) {
	id := newNodeID(7)
	for _, name := range []string{"_c_" + id.UUID() + "-lock-0000000001", id.Hex() + "__lock__0000000001"} {
		expect.That(t, lives([]string{"x", name}, id.UUID()), "%s", name)
	}
	expect.That(t, !lives([]string{"x", newNodeID(7).UUID()}, id.UUID()) && !lives(nil, id.UUID()),
		"it is not there")
}

// A grace of zero means a second, and a negative one no time.
func TestGraceOfALimit(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{0: recipe.DefaultGrace, -1: 0,
		time.Minute: time.Minute} {
		o := options{limit: Limit{Hold: time.Hour, Grace: grace}}
		expect.Equal(t, o.limit.grace(), want)
		limit, breakable := o.breakLimit()
		expect.That(t, limit == time.Hour+want && !breakable, "%v, %v", limit, breakable)
		o.limit.Break = true
		_, breakable = o.breakLimit()
		expect.That(t, breakable, "not breakable")
		o.limit.Hold = 0
		_, breakable = o.breakLimit()
		expect.That(t, !breakable, "breakable without a limit")
	}
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	must.That(t, earlier(early, late).Equal(early) && earlier(late, early).Equal(early), "the later time")
}
