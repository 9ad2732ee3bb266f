package take

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Contenders of one process have their turns in the order in which they came. A contender that leaves the
// queue is skipped. A contender that passes its turn on twice wakes only one other contender.
func TestLocalQueueIsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := localQueues{m: map[localKey][]chan struct{}{}}
		key := localKey{recipe.LayoutCurator, "/a"}
		leave := must.Get(g.enter(t.Context(), key, true))(t)
		_, err := g.enter(t.Context(), key, true)
		must.Is(t, err, hold.ErrNotAcquired)
		must.Get(g.enter(t.Context(), localKey{recipe.LayoutKazoo, "/a"}, true))(t)
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
		must.Equal(t, gone.i, 1, "the call that ended")
		must.Is(t, gone.err, context.Canceled)
		must.Equal(t, g.waiting(key), 3, "waiting")
		leave()
		for _, i := range []int{0, 2, 3} {
			leave() // this turn has passed already, so the call does nothing
			synctest.Wait()
			must.Equal(t, len(turns), 1, "turns")
			next := <-turns
			must.Equal(t, next.i, i, "the call with the turn")
			must.OK(t, next.err)
			leave = next.leave
			leave()
		}
		must.Equal(t, len(g.m), 1, "queues, one of them busy")
		must.Get(g.enter(t.Context(), key, true))(t)
	})
}

// If a turn arrives while its contender leaves, the turn passes to the next contender.
func TestLocalTurnThatComesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // at random, the contender first sees its turn or the end of its context
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

// Each node of a lock holds the owner record. A candidate's node holds the value, and after it the owner
// record if programs need the record.
func TestContentOfNodes(t *testing.T) {
	t.Parallel()
	c, _ := withoutServer()
	c.owner = recipe.Owner{PID: 5, Cmd: "job"}
	terms := &Terms{Reason: "why", Limits: hold.Limits{Revocable: true}}
	a := &attempt{c: c, task: "task", Ask: Ask{Terms: terms}}
	o, ok := recipe.ParseOwner(a.data())
	must.That(t, ok, "no record: %s", a.data())
	want := recipe.Owner{Version: 1, PID: 5, Cmd: "job", Task: "task", Reason: "why", Revocable: true}
	must.Equal(t, o, want)
	a.Terms.MaxHold, a.Terms.Grace = time.Minute, -1
	o, _ = recipe.ParseOwner(a.data())
	must.Equal(t, o.MaxHold, "1m0s")
	must.Equal(t, o.Grace, "0s")
	must.That(t, !o.Over, "the limit is over at once")
	for _, x := range []struct {
		tasked bool
		layout recipe.Layout
		owner  bool
	}{{false, recipe.LayoutCurator, false}, {true, recipe.LayoutCurator, true},
		{true, recipe.LayoutKazoo, false},
		{false, recipe.LayoutKazoo, false}} {
		a.Value, a.tasked, a.Terms.Layout = []byte("me"), x.tasked, x.layout
		value, _ := recipe.ValueOf(a.data())
		expect.Equal(t, string(value), "me", "value of %+v", x)
		expect.Equal(t, len(a.data()) > 2, x.owner, "a record beside the value of %+v: %q", x, a.data())
	}
}

// held() returns a lease of an exclusive lock at /a.
func held(t *testing.T, c *Client, e *session.Epoch) *hold.Lease {
	t.Helper()
	g := &hold.Grant{Epoch: e, Path: "/a", Nodes: []hold.Node{{Path: "/a/n"}}, Mode: fence.Exclusive,
		Leave: func() {}}
	return must.Get(c.BeginUnwatched(t.Context(), g))(t)
}

// A context that holds a permit may take another one, and a context that is a candidate may become a
// candidate of the same election again.
func TestAttemptsThatAreNotNested(t *testing.T) {
	t.Parallel()
	c, e := withoutServer()
	outer := held(t, c, e)
	for name, x := range map[string]struct {
		a    attempt
		want error
	}{
		"permit":    {attempt{Ask: Ask{Path: "/a", Mode: fence.Permit}}, nil},
		"candidate": {attempt{Ask: Ask{Path: "/a", Mode: fence.Exclusive}, alone: true}, nil},
		"lock":      {attempt{Ask: Ask{Path: "/a", Mode: fence.Exclusive}}, hold.ErrSelfDeadlock},
	} {
		t.Run(name, func(t *testing.T) {
			x.a.c, x.a.Terms = c, &Terms{}
			l, err := x.a.nested(outer.Context())
			expect.Is(t, err, x.want)
			expect.Equal(t, l, nil, "nested lease")
		})
	}
}

// If a set loses one of its locks while it takes the others, it starts again, unless it was asked to leave.
func TestSetThatLosesALockOnTheWay(t *testing.T) {
	t.Parallel()
	c, e := withoutServer()
	for why, want := range map[hold.Reason]error{
		0: zk.ErrSessionExpired, hold.Expired: zk.ErrSessionExpired, hold.Deadline: zk.ErrSessionExpired,
		hold.Closed: zk.ErrSessionExpired, hold.Removed: ErrNodeRemoved, hold.Revoked: nil,
	} {
		t.Run(why.String(), func(t *testing.T) {
			l := held(t, c, e)
			if why != 0 {
				l.Lose(why)
			}
			err := lostOnTheWay(l)
			if want == nil {
				lostFor(t, err, hold.Revoked)
				return
			}
			requeue, ok := errors.AsType[*requeueError](err)
			must.That(t, ok, "%v does not lead back to the queue", err)
			must.Is(t, requeue.why, want)
		})
	}
}
