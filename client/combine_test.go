package client

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// Each test of this file combines several options or features.

// While a waiter has no connection, a tool may copy an older tree back and so replace the waiter's node by a
// node of the same name. The waiter does not take that node for its own.
func TestNodeOfAnotherOwnerIsNotGranted(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	a, p := proxied(t)
	before := lock(t, c.Mutex(d).Lock)
	enqueued := make(chan Event, 8)
	watch := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpGetData, Under: d, Nth: 1,
		Do: faultproxy.CutBefore, Then: func() { p.Refuse(true) }})
	g := start(testCtx(t), a.Mutex(d, on(EventQueued, func(ev Event) { enqueued <- ev })).Lock)
	node := soon(t, "the place", enqueued).Node
	soon(t, "the cut", watch.Acted())
	must.OK(t, o.Delete(node, -1))
	must.Equal(t, errOf(o.Create(node, nil, 0, zk.WorldACL(zk.PermAll))), nil)
	unlock(t, before)
	p.Refuse(false)
	next := soon(t, "another place", enqueued).Node
	must.That(t, next != node, "the same node")
	l := g.wait(t)
	must.Equal(t, l.Node(), next)
	unlock(t, l)
}

// While a machine is suspended, its timers stop, but the time counts for the limit of a hold and of each lock
// of a set.
func TestLimitCountsWhileTheMachineIsSuspended(t *testing.T) {
	t.Parallel()
	shared(t)
	clock := newTestClock()
	c, d := dialTo(t, addr(t), WithSessionTimeout(time.Minute), withClock(clock)), dir(t)
	limit := WithMaxHold(10*time.Second, -1)
	l := lock(t, c.Mutex(d).Lock, limit)
	set := must.Get(c.All(testCtx(t), c.Mutex(d+"-a").Request(), c.Mutex(d+"-b").Request(limit)))(t)
	for _, l := range []*Lease{l, set} {
		until := l.Until()
		must.That(t, until.Before(clock.Now().Wall.Add(11*time.Second)), "valid until %v", until)
	}
	clock.move(11*time.Second, 0)
	lostFor(t, set.Err(), MaxHold)
	must.Equal(t, set.reason(), MaxHold)
	lostFor(t, l.Err(), MaxHold)
	must.That(t, !l.Until().After(clock.Now().Wall), "it is lost and valid")
	for _, l := range []*Lease{
		lock(t, c.Mutex(d).Lock, limit),
		must.Get(c.All(testCtx(t), c.Mutex(d+"-a").Request(), c.Mutex(d+"-b").Request(limit)))(t),
	} {
		clock.move(11*time.Second, 0)
		lostFor(t, l.Unlock(testCtx(t)), MaxHold)
	}
	l = lock(t, c.Mutex(d).Lock, limit)
	clock.move(11*time.Second, 0)
	soon(t, "the context to end, although its timer has stood still", l.Context().Done())
}

// When the write lease around a read lease is unlocked, the hold becomes a read hold. No nested write lease
// is granted during this change.
func TestNoWriteLeaseComesDuringADowngrade(t *testing.T) {
	t.Parallel()
	shared(t)
	for name, opts := range map[string][]Option{"queue": nil, "policy": {WithPolicy(PolicyFair)}} {
		t.Run(name, func(t *testing.T) {
			d := dir(t)
			c, p := proxied(t)
			m := c.RWMutex(d, append(opts, WithReentrant())...)
			outer := lock(t, m.Lock)
			inner := must.Get(m.RLock(outer.Context()))(t)
			change := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpMulti, Nth: 1,
				Do: faultproxy.Hold})
			done := make(chan error, 1)
			go func() { done <- outer.Unlock(testCtx(t)) }()
			soon(t, "the change", change.Acted())
			g := start(inner.Context(), m.Lock)
			not(t, "a write lease of a hold that is about to read only", g.lease, 50*time.Millisecond)
			change.Release()
			must.OK(t, soon(t, "the unlock", done))
			wantErr(t, g.fails(t), ErrSelfDeadlock)
			must.Equal(t, inner.Mode(), fence.Shared)
			unlock(t, inner)
		})
	}
}

// idle() waits until the client has removed what it abandoned.
func idle(t *testing.T, c *Client) {
	t.Helper()
	eventually(t, "nothing left to remove", func() bool { return c.keeper.Pending() == 0 })
}

// If a lease is lost, its nodes linger until it and all leases nested in it are unlocked.
func TestNodesLingerUntilTheLastUnlock(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	m := c.Mutex(d, WithReentrant(), WithLinger())
	outer := lock(t, m.Lock)
	inner := must.Get(m.Lock(outer.Context()))(t)
	outer.hold().Lose(hold.Revoked)
	lostFor(t, inner.Unlock(ctx), Revoked)
	idle(t, c)
	must.Equal(t, len(names(t, o, d)), 1)
	lostFor(t, outer.Unlock(ctx), Revoked)
	idle(t, c)
	must.Equal(t, len(names(t, o, d)), 0)
}

// With WithLinger, nodes also stay if the lease was lost while its mode changed, and if the lease is one of a
// set.
func TestNodesLingerThroughAChangeOfMode(t *testing.T) {
	t.Parallel()
	shared(t)
	linger := WithLinger()
	for name, opts := range map[string][]Option{"queue": nil, "policy": {WithPolicy(PolicyFair)}} {
		for _, up := range []bool{false, true} {
			if up && opts == nil {
				continue
			}
			t.Run(name+map[bool]string{false: " down", true: " up"}[up], func(t *testing.T) {
				o, d := observer(t), dir(t)
				c, p := proxied(t)
				m := c.RWMutex(d, append(opts, linger)...)
				take, change := m.Lock, (*Lease).Downgrade
				if up {
					take, change = m.RLock, (*Lease).Upgrade
				}
				l := lock(t, take)
				before := l.Node()
				held := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpMulti, Nth: 1,
					Do: faultproxy.Hold})
				done := make(chan error, 1)
				go func() { done <- change(l, testCtx(t)) }()
				soon(t, "the change", held.Acted())
				l.hold().Lose(hold.Revoked)
				held.Release()
				wantErr(t, soon(t, "the change", done), ErrLost)
				eventually(t, "the change to be known", func() bool { return l.Node() != before })
				idle(t, c)
				must.Equal(t, len(names(t, o, d)), 1)
				lostFor(t, l.Unlock(testCtx(t)), Revoked)
				queued(t, o, d, 0)
			})
		}
	}
	c, o, d := dial(t), observer(t), dir(t)
	set := must.Get(c.All(testCtx(t), c.Mutex(d+"-a").Request(), c.Mutex(d+"-b").Request(linger)))(t)
	set.hold().Parts()[1].Lose(hold.Revoked)
	soon(t, "the loss", set.Lost())
	idle(t, c)
	must.Equal(t, len(names(t, o, d+"-b")), 1)
	lostFor(t, set.Unlock(testCtx(t)), Revoked)
	queued(t, o, d+"-b", 0)
}

// A request to give back one lock of a set reaches the lease of the whole set.
func TestSetIsAskedForItsLocks(t *testing.T) {
	t.Parallel()
	shared(t)
	c, other, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	a, b := c.Mutex(d+"-a", WithRevocable(0)), c.Mutex(d+"-b")
	set := must.Get(c.All(ctx, a.Request(), b.Request()))(t)
	wish := recipe.Revocation{By: "operator", Reason: "maintenance"}
	must.OK(t, other.Inspector().Revoke(ctx, d+"-b", recipe.Base(set.Nodes()[1]), wish))
	must.Equal(t, soon(t, "the wish", set.Asked()).By, "operator")
	must.OK(t, set.Unlock(ctx))

	// If a set is asked for one of its locks while it waits for another, it gives up, as a waiter for a single
	// lock does.
	before := lock(t, other.Mutex(d+"-b").Lock)
	failed := make(chan error, 1)
	go func() { failed <- errOf(c.All(ctx, a.Request(), b.Request())) }()
	queued(t, o, d+"-b", 2)
	must.OK(t, other.Inspector().Revoke(ctx, d+"-a", names(t, o, d+"-a")[0], wish))
	queued(t, o, d+"-a", 0)
	unlock(t, before)
	lostFor(t, soon(t, "the set to leave", failed), Revoked)
}

// A hold that changed its mode still belongs to its task.
func TestTaskStaysThroughAChangeOfMode(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	ctx := Task(testCtx(t), "order 4711")
	for name, opts := range map[string][]Option{"queue": nil, "policy": {WithPolicy(PolicyFair)}} {
		l := must.Get(c.RWMutex(d+"-"+name, opts...).Lock(ctx))(t)
		task := func() string {
			q := must.Get(c.Inspector().Inspect(ctx, l.Path()))(t)
			q.Holders[0].Tell()
			return q.Holders[0].Owner.Task
		}
		must.OK(t, l.Downgrade(ctx))
		expect.Equal(t, task(), "order 4711", name)
		if opts != nil {
			must.OK(t, l.Upgrade(ctx))
			expect.Equal(t, task(), "order 4711", name)
		}
		unlock(t, l)
	}
}

// The client goes on looking at a held node after an error of the server, or an answer that the server is
// busy.
func TestMonitorOutlastsErrors(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	// The client reads its node again only after a part of the session timeout, so the timeout is short.
	c, p := proxied(t, WithSessionTimeout(8*time.Second))
	l := lock(t, c.Mutex(d).Lock)
	const throttled = -127
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpGetData, Under: l.Node(), Nth: 1,
		Do: faultproxy.Fail, Code: throttled})
	soon(t, "the look", r.Acted())
	must.OK(t, o.Delete(l.Node(), -1))
	soon(t, "the loss", l.Lost())
	lostFor(t, l.Unlock(testCtx(t)), Removed)
}

// If a busy server refuses to remove a node, the client asks again.
func TestNodesGoThoughTheServerIsBusy(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	const throttled = -127
	busy := faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpDelete, Under: d, Do: faultproxy.Refused,
		Code: throttled}
	for i := range 2 {
		busy.Nth = i + 1
		p.Add(busy)
	}
	unlock(t, lock(t, c.Mutex(d).Lock))
	must.Equal(t, len(names(t, o, d)), 0)
}
