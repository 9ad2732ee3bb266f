package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// heldWith grants a hold in a session of a day, on a client that never reaches a server. It counts how often
// the turn is passed on, which happens with the end of the nodes.
func heldWith(t *testing.T, cfg *options) (h *hold, l *Lease, left *atomic.Int32) {
	c, e := unreachable(t)
	left = new(atomic.Int32)
	h = newHold(&attempt{c: c, path: "/a", cfg: cfg, leave: func() { left.Add(1) }}, e, fence.Exclusive, 5,
		heldNode{path: "/a/n"}, heldNode{path: "/a/q", place: true})
	must.That(t, e.Add(h), "the hold is not added")
	l = must.Get(h.addLease(t.Context(), fence.Exclusive))(t)
	h.watchLimit()
	return h, l, left
}

// told makes a function that keeps the events of a kind, and returns those of so far.
func told(c *Client, to *func(Event), kind EventKind) func() []Event {
	var events []Event
	*to = func(ev Event) {
		if ev.Kind == kind {
			events = append(events, ev)
		}
	}
	return func() []Event {
		stop := make(chan struct{})
		close(stop)
		c.notifier.run(stop)
		return events
	}
}

// A hold is lost once, with all its leases, and is forgotten.
func TestHoldIsLostOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := &options{}
		h, l, left := heldWith(t, cfg)
		lost := told(h.c, &cfg.events, EventLost)
		granted := told(h.c, &h.c.events, EventGranted)
		inner := must.Get(h.addLease(l.Context(), fence.Shared))(t)
		must.Is(t, expect.Err(h.addLease(t.Context(), fence.Permit)), ErrNotHeld)
		must.OK(t, l.Unlock(t.Context())) // before the one nested in it: its context lasts as long
		must.OK(t, l.Context().Err())
		must.Is(t, l.Unlock(t.Context()), ErrNotHeld)
		time.Sleep(time.Second)
		h.lose(Removed, heldNode{path: "/b/n", lock: "/b"})
		h.lose(Expired)
		must.That(t, isClosed(inner.Lost()), "the loss is not told")
		must.That(t, !isClosed(l.Lost()), "a lease that was unlocked is lost")
		must.That(t, h.over, "the hold goes on")
		want := LostError{Path: "/b", Node: "/b/n", Reason: Removed}
		for _, cause := range []error{context.Cause(inner.Context()), context.Cause(l.Context()), inner.Err()} {
			got, ok := errors.AsType[*LostError](cause)
			must.That(t, ok, "%v is no loss", cause)
			must.Equal(t, *got, want)
		}
		must.Is(t, l.Err(), ErrNotHeld)
		must.Equal(t, left.Load(), 1, "turns passed on")
		must.Equal(t, h.e.Dependents(), 0, "holds of the session")
		must.Equal(t, len(h.c.named.m), 0, "leases of tasks")
		must.That(t, h.life.Err() != nil, "its life goes on")
		must.Is(t, expect.Err(h.addLease(t.Context(), fence.Shared)), ErrNotHeld)
		evs := lost()
		must.Equal(t, len(evs), 1, "events")
		must.Is(t, evs[0].Err, ErrLost)
		evs[0].Err = nil
		must.Equal(t, evs[0], Event{Kind: EventLost, Path: "/a", Node: "/a/n", Token: 5,
			Mode: fence.Exclusive, Held: time.Second})
		must.Equal(t, len(granted()), 0, "grants after the first lease")
		must.Is(t, inner.Unlock(t.Context()), ErrLost)
		must.Is(t, inner.Unlock(t.Context()), ErrNotHeld)
		must.Equal(t, left.Load(), 1, "turns passed on")
	})
}

// After its limit a hold is lost, and its nodes stay for the grace, or until Unlock.
func TestNodesStayForTheGrace(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		limit  options
		why    LostReason
		after  time.Duration // until the nodes go; 0: with Unlock
		unlock time.Duration // when Unlock is called
	}{
		"default":              {options{}, MaxHold, time.Second, time.Minute},
		"grace":                {options{grace: 30 * time.Second}, MaxHold, 30 * time.Second, time.Minute},
		"grace, unlocked":      {options{grace: 30 * time.Second}, MaxHold, 0, 10 * time.Second},
		"no grace":             {options{grace: -1}, MaxHold, 1, time.Minute},
		"lingers":              {options{linger: true}, MaxHold, 0, time.Hour},
		"revoked":              {options{grace: time.Minute}, Revoked, 1, time.Minute},
		"revoked, lingers":     {options{linger: true}, Revoked, 0, time.Minute},
		"deadline":             {options{grace: time.Minute}, Deadline, 1, time.Minute},
		"deadline, lingers":    {options{linger: true}, Deadline, 0, time.Minute},
		"removed, not lingers": {options{linger: true, grace: time.Minute}, Removed, 1, time.Minute},
		"expired, not lingers": {options{linger: true, grace: time.Minute}, Expired, 1, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x.limit.maxHold = 10 * time.Minute
				h, l, left := heldWith(t, &x.limit)
				time.Sleep(10*time.Minute - 1)
				must.OK(t, l.Err())
				if x.why != MaxHold {
					h.lose(x.why)
				} else {
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					must.That(t, isClosed(l.Lost()), "not lost at its limit")
				}
				lostFor(t, l.Err(), x.why)
				if x.after > 0 {
					time.Sleep(x.after - 1)
					synctest.Wait()
					must.Equal(t, left.Load(), min(1, int32(1/x.after)), "given up before the grace is over")
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					must.Equal(t, left.Load(), 1, "given up after the grace")
				}
				time.Sleep(x.unlock)
				synctest.Wait()
				if x.after == 0 {
					must.Equal(t, left.Load(), 0, "given up before Unlock")
				}
				must.Is(t, l.Unlock(t.Context()), ErrLost)
				must.Equal(t, left.Load(), 1, "given up")
				time.Sleep(time.Hour)
				synctest.Wait()
				must.Equal(t, left.Load(), 1, "given up")
			})
		})
	}
}

// A lease ends for its user at the limit and at the deadline, whatever timers do, and says when that will be.
func TestLeaseEndsByTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, l, _ := heldWith(t, &options{maxHold: time.Hour})
		must.Equal(t, time.Until(l.Until()), time.Hour)
		h.timers[0].Stop()
		time.Sleep(time.Hour - 1)
		must.That(t, l.Valid(), "not valid")
		time.Sleep(time.Nanosecond)
		lostFor(t, l.Err(), MaxHold)
		h, l, _ = heldWith(t, &options{maxHold: 1000 * time.Hour})
		usable := usable(h.c.Session())
		must.Equal(t, time.Until(l.Until()), usable)
		h.timers[0].Stop()
		time.Sleep(usable)
		lostFor(t, l.Err(), Deadline)
	})
}

// The first request to give a lock back reaches every lease, those to come too. It ends a hold that says so.
func TestWishReachesEveryLease(t *testing.T) {
	t.Parallel()
	for _, revocable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, l, left := heldWith(t, &options{revocable: revocable, revokeGrace: time.Minute})
			inner := must.Get(h.addLease(l.Context(), fence.Shared))(t)
			h.revoke(recipe.Revocation{By: "one"})
			h.revoke(recipe.Revocation{By: "two"})
			late := must.Get(h.addLease(l.Context(), fence.Shared))(t)
			for i, l := range []*Lease{l, inner, late} {
				select {
				case r := <-l.Asked():
					expect.Equal(t, r.By, "one")
				default:
					t.Errorf("lease %d hears nothing", i)
				}
				expect.Equal(t, len(l.Asked()), 0, "more requests")
			}
			time.Sleep(time.Minute - 1)
			must.OK(t, l.Err())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if !revocable {
				must.OK(t, l.Err())
				return
			}
			for _, l := range []*Lease{l, inner, late} {
				lostFor(t, l.Err(), Revoked)
			}
			must.Equal(t, left.Load(), 1, "given up")
			must.That(t, !h.wish(recipe.Revocation{}), "a lost hold takes a wish")
		})
	}
}

// Other programs are told of the nodes that stand for a hold, not of its place in the queue.
func TestSequencersOfAHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, l, _ := heldWith(t, &options{})
		want := []fence.Sequencer{{Path: "/a", Node: "n", Mode: fence.Exclusive, Token: 5}}
		must.List(t, l.Sequencers(), want)
		must.Equal(t, l.Sequencer(), want[0])
		must.List(t, l.Nodes(), []string{"/a/n", "/a/q"})
		must.Equal(t, l.Node(), "/a/n")
		must.Equal(t, l.Path(), "/a")
		must.Equal(t, l.Token(), 5)
		must.Equal(t, l.Mode(), fence.Exclusive)
		must.That(t, h.has(heldNode{path: "/a/q"}), "it has not its place")
		must.That(t, !h.has(heldNode{path: "/a"}), "it has the path")
		must.List(t, session.Dirs(h.nodes), []string{"/a", "/a"})
		for i, op := range deletes(h.nodes) {
			must.Equal(t, op, zk.Op(zk.Delete{Path: h.nodes[i].path, Version: -1}))
		}
	})
}

// What became of a release is told by how it failed.
func TestErrorsOfARelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := heldWith(t, &options{})
		must.OK(t, h.releaseErr(nil))
		lostFor(t, h.releaseErr(zk.ErrNoNode), Removed)
		lostFor(t, h.releaseErr(ErrSessionExpired), Expired)
		must.Is(t, h.releaseErr(zk.ErrNoAuth), ErrNoAuth)
		must.OK(t, h.settle(nil))
		must.Is(t, h.settle(ErrSessionExpired), ErrSessionExpired)
		h.nodes = h.nodes[:1]
		must.Is(t, h.settle(zk.ErrNoNode), zk.ErrNoNode)
		must.Equal(t, h.c.keeper.Pending(), 0, "nodes to remove")
		h.nodes = append(h.nodes, heldNode{path: "/a/q"})
		must.Is(t, h.settle(zk.ErrNoNode), zk.ErrNoNode)
		must.Equal(t, h.c.keeper.Pending(), 2, "nodes to remove")
		time.Sleep(24 * time.Hour) // without a word of the server
		must.OK(t, h.releaseErr(ErrSessionExpired))
		h.e.End(session.Expired)
		must.Is(t, h.settle(zk.ErrConnectionLost), ErrSessionExpired)
	})
}

// A hold that is lost before its first lease leads back to the queue.
func TestGrantThatIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := heldWith(t, &options{})
		c := h.c
		fresh := func() *hold {
			return newHold(&attempt{c: c, path: "/b", cfg: &options{}, leave: func() {}}, h.e, fence.Exclusive, 6,
				heldNode{path: "/b/n"})
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		late := fresh()
		must.Is(t, expect.Err(c.grant(ended, late)), context.Canceled)
		must.That(t, late.life.Err() != nil, "it goes on")
		must.Equal(t, h.e.Dependents(), 1, "holds of the session")
		must.Equal(t, c.keeper.Pending(), 1, "nodes to remove")
		over := fresh()
		over.lose(Removed)
		_, err := c.grant(t.Context(), over)
		requeue, ok := errors.AsType[*requeueError](err)
		must.That(t, ok, "%v does not lead back to the queue", err)
		must.Is(t, requeue.why, ErrSessionExpired)
		h.e.End(session.Expired)
		_, err = c.grant(t.Context(), fresh())
		requeue, ok = errors.AsType[*requeueError](err)
		must.That(t, ok, "%v does not lead back to the queue", err)
		must.Is(t, requeue.why, ErrSessionExpired)
		for err, want := range map[error]error{
			errors.New("x"): ErrSessionExpired, &LostError{Reason: Expired}: ErrSessionExpired,
			&LostError{Reason: Deadline}: ErrSessionExpired, &LostError{Reason: Closed}: ErrSessionExpired,
			&LostError{Reason: Removed}: ErrNodeRemoved,
		} {
			requeue, ok := errors.AsType[*requeueError](lostOnTheWay(err))
			must.That(t, ok, "%v does not lead back to the queue", err)
			must.Is(t, requeue.why, want)
		}
		lostFor(t, lostOnTheWay(&LostError{Reason: Revoked}), Revoked)
	})
}
