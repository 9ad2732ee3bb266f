package hold

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

// A hold is lost once, with all its leases, and is forgotten.
func TestHoldIsLostOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, l, left := heldWith(t, Limits{})
		lost, granted := told(h, EventLost), told(h, EventGranted)
		inner := must.Get(h.addLease(l.Context(), fence.Shared))(t)
		must.Is(t, expect.Err(h.addLease(t.Context(), fence.Permit)), ErrNotHeld)
		must.OK(t, l.Unlock(t.Context())) // the context of l lasts until the nested lease ends
		must.OK(t, l.Context().Err())
		must.Is(t, l.Unlock(t.Context()), ErrNotHeld)
		time.Sleep(time.Second)
		h.lose(Removed, Node{Path: "/b/n", lock: "/b"})
		h.lose(Expired)
		must.That(t, session.IsClosed(inner.Lost()), "the loss is not told")
		must.That(t, !session.IsClosed(l.Lost()), "a lease that was unlocked is lost")
		must.That(t, h.over, "the hold goes on")
		want := Loss{Path: "/b", Node: "/b/n", Reason: Removed}
		for _, cause := range []error{context.Cause(inner.Context()), context.Cause(l.Context()), inner.Err()} {
			got, ok := errors.AsType[Loss](cause)
			must.That(t, ok, "%v is not a loss", cause)
			must.Equal(t, got, want)
		}
		must.Is(t, l.Err(), ErrNotHeld)
		must.Equal(t, left.Load(), 1, "turns passed on")
		must.Equal(t, h.g.Epoch.Dependents(), 0, "holds of the session")
		must.Equal(t, len(h.s.named.m), 0, "leases of tasks")
		must.That(t, h.life.Err() != nil, "its life goes on")
		must.Is(t, expect.Err(h.addLease(t.Context(), fence.Shared)), ErrNotHeld)
		evs := lost()
		must.Equal(t, len(evs), 1, "events")
		must.Is(t, evs[0].Err, ErrLost)
		evs[0].Err = nil
		must.Equal(t, evs[0], Event{Kind: EventLost, Node: "/a/n", Token: 5,
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
		limit  Limits
		why    Reason
		after  time.Duration // until the nodes are removed; 0: Unlock removes them
		unlock time.Duration // when Unlock is called
	}{
		"default":              {Limits{}, MaxHold, time.Second, time.Minute},
		"grace":                {Limits{Grace: 30 * time.Second}, MaxHold, 30 * time.Second, time.Minute},
		"grace, unlocked":      {Limits{Grace: 30 * time.Second}, MaxHold, 0, 10 * time.Second},
		"no grace":             {Limits{Grace: -1}, MaxHold, 1, time.Minute},
		"lingers":              {Limits{Linger: true}, MaxHold, 0, time.Hour},
		"revoked":              {Limits{Grace: time.Minute}, Revoked, 1, time.Minute},
		"revoked, lingers":     {Limits{Linger: true}, Revoked, 0, time.Minute},
		"deadline":             {Limits{Grace: time.Minute}, Deadline, 1, time.Minute},
		"deadline, lingers":    {Limits{Linger: true}, Deadline, 0, time.Minute},
		"removed, not lingers": {Limits{Linger: true, Grace: time.Minute}, Removed, 1, time.Minute},
		"expired, not lingers": {Limits{Linger: true, Grace: time.Minute}, Expired, 1, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x.limit.MaxHold = 10 * time.Minute
				h, l, left := heldWith(t, x.limit)
				time.Sleep(10*time.Minute - 1)
				must.OK(t, l.Err())
				if x.why != MaxHold {
					h.lose(x.why)
				} else {
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					must.That(t, session.IsClosed(l.Lost()), "not lost at its limit")
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

// For its user a lease ends at its limit or its deadline, even if no timer fires. Until() returns the earlier
// of these times.
func TestLeaseEndsByTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, l, _ := heldWith(t, Limits{MaxHold: time.Hour})
		must.Equal(t, time.Until(l.Until()), time.Hour)
		h.timers[0].Stop()
		time.Sleep(time.Hour - 1)
		must.OK(t, l.Err())
		time.Sleep(time.Nanosecond)
		lostFor(t, l.Err(), MaxHold)
		h, l, _ = heldWith(t, Limits{MaxHold: time.Hour})
		h.timers[0].Stop()
		time.Sleep(time.Hour)
		lostFor(t, l.Unlock(t.Context()), MaxHold)
		h, l, _ = heldWith(t, Limits{MaxHold: 1000 * time.Hour})
		usable := time.Duration(float64(24*time.Hour)*0.995) - 2*time.Second
		must.Equal(t, time.Until(l.Until()), usable)
		h.timers[0].Stop()
		time.Sleep(usable)
		lostFor(t, l.Err(), Deadline)
	})
}

// The first request to give a lock back reaches every lease, including later ones. It ends the hold if the
// hold is revocable.
func TestWishReachesEveryLease(t *testing.T) {
	t.Parallel()
	for _, revocable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, l, left := heldWith(t, Limits{Revocable: revocable, RevokeGrace: time.Minute})
			inner := must.Get(h.addLease(l.Context(), fence.Shared))(t)
			h.revoke(recipe.Revocation{By: "one"})
			h.revoke(recipe.Revocation{By: "two"})
			late := must.Get(h.addLease(l.Context(), fence.Shared))(t)
			for i, l := range []*Lease{l, inner, late} {
				select {
				case r := <-l.Asked():
					expect.Equal(t, r.By, "one")
				default:
					t.Errorf("lease %d gets no request", i)
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
			must.That(t, !h.wish(recipe.Revocation{}), "a lost hold accepts a request")
		})
	}
}

// Other programs are told of the nodes that stand for a hold, not of its place in the queue.
func TestSequencersOfAHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, l, _ := heldWith(t, Limits{})
		want := []fence.Sequencer{{Path: "/a", Node: "n", Mode: fence.Exclusive, Token: 5}}
		must.List(t, l.Sequencers(), want)
		must.List(t, l.Nodes(), []string{"/a/n", "/a/q"})
		must.Equal(t, l.Path(), "/a")
		must.Equal(t, l.Token(), 5)
		must.Equal(t, l.Mode(), fence.Exclusive)
		must.That(t, h.has(Node{Path: "/a/q"}), "it does not have its place")
		must.That(t, !h.has(Node{Path: "/a"}), "it has the path")
		must.List(t, session.Dirs(h.nodes), []string{"/a", "/a"})
		for i, op := range deletes(h.nodes) {
			must.Equal(t, op, zk.Op(zk.Delete{Path: h.nodes[i].Path, Version: -1}))
		}
	})
}

// If a release fails because the node was removed, or because the session ended during the work, the lease
// counts as lost. If the session ended only after its deadline, the release has succeeded.
func TestErrorsOfARelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, _ := heldWith(t, Limits{})
		must.OK(t, h.releaseErr(nil))
		lostFor(t, h.releaseErr(zk.ErrNoNode), Removed)
		lostFor(t, h.releaseErr(zk.ErrSessionExpired), Expired)
		must.Is(t, h.releaseErr(zk.ErrNoAuth), ErrNoAuth)
		must.OK(t, h.settle(nil))
		must.Is(t, h.settle(zk.ErrSessionExpired), zk.ErrSessionExpired)
		h.nodes = h.nodes[:1]
		must.Is(t, h.settle(zk.ErrNoNode), zk.ErrNoNode)
		must.Equal(t, h.s.Keeper.Pending(), 0, "nodes to remove")
		h.nodes = append(h.nodes, Node{Path: "/a/q"})
		must.Is(t, h.settle(zk.ErrNoNode), zk.ErrNoNode)
		must.Equal(t, h.s.Keeper.Pending(), 2, "nodes to remove")
		time.Sleep(24 * time.Hour) // the server does not answer
		must.OK(t, h.releaseErr(zk.ErrSessionExpired))
		h.g.Epoch.End(session.Expired)
		must.Is(t, h.settle(zk.ErrConnectionLost), zk.ErrSessionExpired)
	})
}

// A grant that is lost before its first lease leaves nothing behind.
func TestGrantThatIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _, left := heldWith(t, Limits{})
		fresh := func() *Hold { return h.s.newHold(granted(h.g.Epoch, "/b", fence.Exclusive, left)) }
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		late := fresh()
		must.Is(t, expect.Err(late.begin(ended)), context.Canceled)
		must.That(t, late.life.Err() != nil, "it goes on")
		must.Equal(t, h.g.Epoch.Dependents(), 1, "holds of the session")
		must.Equal(t, h.s.Keeper.Pending(), 1, "nodes to remove")
		over := fresh()
		over.lose(Removed)
		must.Is(t, expect.Err(over.begin(t.Context())), zk.ErrSessionExpired)
		h.g.Epoch.End(session.Expired)
		must.Is(t, expect.Err(h.s.Begin(t.Context(), granted(h.g.Epoch, "/b", fence.Exclusive, left))),
			zk.ErrSessionExpired)
	})
}

// A hold ends once with its session, for the first reason.
func TestHoldEndsWithItsSession(t *testing.T) {
	t.Parallel()
	s, e := withoutServer()
	h := s.newHold(granted(e, "/a", fence.Exclusive, new(atomic.Int32)))
	must.That(t, e.Add(h), "the hold is not added")
	l := must.Get(h.addLease(t.Context(), fence.Exclusive))(t)
	must.OK(t, l.Err())
	e.End(session.Expired)
	e.End(session.Closed)
	lostFor(t, l.Err(), Expired)
	must.Equal(t, e.Dependents(), 0, "holds")
}

// A grace of zero means a second; a negative grace means no time.
func TestGraceOfALimit(t *testing.T) {
	t.Parallel()
	for grace, want := range map[time.Duration]time.Duration{0: recipe.DefaultGrace, -1: 0,
		time.Minute: time.Minute} {
		o := Limits{MaxHold: time.Hour, Grace: grace}
		expect.Equal(t, o.GraceNow(), want)
	}
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	must.Equal(t, earlier(early, late), early, "the earlier of an early and a late time")
	must.Equal(t, earlier(late, early), early, "the earlier of a late and an early time")
}

// The answer to a request may be the first sign that the session has ended. Then the lease is lost, too.
func TestEndOfTheSessionIsTheLossOfTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, l, _ := heldWith(t, Limits{})
		must.Is(t, l.checkErr(t.Context(), zk.ErrNoAuth), ErrNoAuth)
		lostFor(t, l.checkErr(t.Context(), zk.ErrSessionExpired), Expired)
		expect.That(t, l.Context().Err() != nil, "the context goes on")
	})
}
