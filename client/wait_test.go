package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	czk "github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// Each test of this package that is named TestE01… is about a row of the table of edge cases in
// docs/locks.md.

// rounds() returns `long` if ZLOCKD_CLIENT_FULL is set, and otherwise `short`.
func rounds(long, short int) int {
	if envSet("ZLOCKD_CLIENT_FULL") {
		return long
	}
	return short
}

// under() counts requests about paths below d.
func under(p *faultproxy.Proxy, d string, op int32) int {
	return p.Count(func(f faultproxy.Frame) bool {
		return f.Kind == faultproxy.Request && f.Under(d) && (op == 0 || f.Op == op)
	})
}

func eventsUnder(p *faultproxy.Proxy, d string) int {
	return p.Count(func(f faultproxy.Frame) bool { return f.Kind == faultproxy.Event && f.Under(d) })
}

// touch() writes a node's data again, without a change.
func touch(t testing.TB, o *zk.Conn, path string) {
	t.Helper()
	data, _, err := o.Get(path)
	if err == nil {
		_, err = o.Set(path, data, -1)
	}
	must.OK(t, err, "touch %s", path)
}

func remove(t testing.TB, o *zk.Conn, path string) {
	t.Helper()
	must.OK(t, o.Delete(path, -1), "delete %s", path)
}

// watches() waits until the client has read the node's data k times.
func watches(t testing.TB, p *faultproxy.Proxy, node string, k int) {
	t.Helper()
	eventually(t, "a watch on "+node, func() bool {
		return p.Count(func(f faultproxy.Frame) bool {
			return f.Kind == faultproxy.Reply && f.Op == faultproxy.OpGetData && f.Path == node
		}) >= k
	})
}

func TestE01PredecessorGoneBetweenListAndWatch(t *testing.T) {
	t.Parallel()
	shared(t)
	holder, d := dial(t), dir(t)
	w, p := proxied(t)
	h := lock(t, holder.Mutex(d).Lock)
	p.Record()
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpGetData,
		Match: func(f faultproxy.Frame) bool { return f.Path == h.Node() }, Do: faultproxy.Hold})
	g := start(testCtx(t), w.Mutex(d).Lock)
	soon(t, "the look at the predecessor", r.Acted())
	unlock(t, h)
	r.Release()
	l := g.wait(t)
	if n := under(p, d, faultproxy.OpGetChildren2); n != 1 { // the holder was the only contender ahead
		t.Errorf("%d lists, want 1", n)
	}
	if n := w.keeper.Conn().Watches(); n > 1 { // the watch of the waiter's own node may be left
		t.Errorf("%d watches are left", n)
	}
	unlock(t, l)
}

// TestE02EventBetweenReplyAndWait lets the predecessor release at about the time when the waiter sets its
// watch. If an event were lost, the test would hang.
func TestE02EventBetweenReplyAndWait(t *testing.T) {
	t.Parallel()
	shared(t)
	a, b, d, ctx := dial(t), dial(t), dir(t), testCtx(t)
	for range rounds(5000, 300) {
		h := lock(t, a.Mutex(d).Lock)
		in := make(chan struct{}, 1)
		g := start(ctx, b.Mutex(d, on(EventQueued, func(Event) { in <- struct{}{} })).Lock)
		soon(t, "its place", in)
		for range rand.N(1000) {
			runtime.Gosched()
		}
		unlock(t, h)
		unlock(t, g.wait(t))
	}
}

func TestE03PredecessorThatOnlyWaitedVanishes(t *testing.T) {
	t.Parallel()
	shared(t)
	a, b, o, d := dial(t), dial(t), observer(t), dir(t)
	c, p := proxied(t)
	ha := lock(t, a.Mutex(d).Lock)
	gb := start(testCtx(t), b.Mutex(d).Lock)
	queued(t, o, d, 2)
	p.Record()
	gc := start(testCtx(t), c.Mutex(d).Lock)
	queued(t, o, d, 3)
	mid := nth(t, o, d, 1)
	watches(t, p, d+"/"+mid, 1)
	must.OK(t, b.Close(testCtx(t)))
	wantErr(t, gb.fails(t), ErrClosed)
	watches(t, p, ha.Node(), 1)
	must.That(t, gc.pending(), "the end of a waiter granted the lock")
	must.That(t, ha.Valid(), "the end of a waiter took the lock from its holder")
	unlock(t, ha)
	unlock(t, gc.wait(t))
}

// nth() returns the name of the i-th contender.
func nth(t testing.TB, o *zk.Conn, d string, i int) string {
	t.Helper()
	q, _, err := turns.QueueOf(LayoutCurator, names(t, o, d), true)
	must.OK(t, err)
	must.That(t, len(q) > i, "%d in the queue, want more than %d: %v", len(q), i, q)
	return q[i].Name
}

func TestE04WatchFiresForADataChange(t *testing.T) {
	t.Parallel()
	shared(t)
	a, o, d := dial(t), observer(t), dir(t)
	w, p := proxied(t)
	h := lock(t, a.Mutex(d).Lock)
	p.Record()
	g := start(testCtx(t), w.Mutex(d).Lock)
	watches(t, p, h.Node(), 1)
	eventually(t, "the own node to be watched too", func() bool { return w.keeper.Conn().Watches() == 2 })
	p.Record()
	n := rounds(100, 30)
	must.That(t, g.pending(), "granted")
	touch(t, o, h.Node())
	watches(t, p, h.Node(), 1)
	for i := 1; i < n; i++ {
		touch(t, o, h.Node())
		watches(t, p, h.Node(), i+1)
	}
	expect.Equal(t, under(p, d, 0), n, "requests for %d changes", n)
	expect.Equal(t, under(p, d, faultproxy.OpGetChildren2), 0, "lists")
	must.That(t, g.pending(), "a data change granted the lock")
	unlock(t, h)
	unlock(t, g.wait(t))
}

func TestE05ConnectionEventDuringAWait(t *testing.T) {
	t.Parallel()
	shared(t)
	a, o, d := dial(t), observer(t), dir(t)
	b, pb := proxied(t)
	c, pc := proxied(t)
	h := lock(t, a.Mutex(d).Lock)
	gb := start(testCtx(t), b.Mutex(d).Lock)
	queued(t, o, d, 2)
	gc := start(testCtx(t), c.Mutex(d).Lock)
	queued(t, o, d, 3)
	eventually(t, "both to watch", func() bool {
		return b.keeper.Conn().Watches() > 0 && c.keeper.Conn().Watches() > 0
	})
	before := names(t, o, d)
	for range 3 {
		pb.Record()
		pc.Record()
		pb.Cut()
		pc.Cut()
		for _, p := range []*faultproxy.Proxy{pb, pc} {
			eventually(t, "the watches on another connection", func() bool {
				return p.Count(func(f faultproxy.Frame) bool {
					return f.Kind == faultproxy.Reply &&
						f.Op == faultproxy.OpSetWatches
				}) > 0
			})
		}
	}
	must.That(t, gb.pending(), "a connection event granted the lock to the first waiter")
	must.That(t, gc.pending(), "a connection event granted the lock to the second waiter")
	after := names(t, o, d)
	slices.Sort(before)
	slices.Sort(after)
	must.List(t, before, after, "places changed")
	unlock(t, h)
	lb := gb.wait(t)
	must.That(t, gc.pending(), "third before second")
	unlock(t, lb)
	unlock(t, gc.wait(t))
}

// A waiter notices the end of its predecessor even if the server does not set the waiter's watches again. The
// predecessor may end before or after the client has connected again.
func TestE06NoWaitNeedsSetWatches(t *testing.T) {
	t.Parallel()
	shared(t)
	a, o, d := dial(t), observer(t), dir(t)
	w, p := proxied(t)
	p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpSetWatches, Do: faultproxy.Refused,
		Code: -4})
	for _, unseen := range []bool{true, false} {
		h := lock(t, a.Mutex(d).Lock)
		g := start(testCtx(t), w.Mutex(d).Lock)
		queued(t, o, d, 2)
		p.Record()
		p.Refuse(unseen)
		p.Cut()
		if unseen {
			unlock(t, h)
			p.Refuse(false)
		} else {
			watches(t, p, h.Node(), 1)
			unlock(t, h)
		}
		unlock(t, g.wait(t))
	}
}

func TestE16OwnNodeRemovedWhileWaiting(t *testing.T) {
	t.Parallel()
	shared(t)
	a, b, o, d := dial(t), dial(t), observer(t), dir(t)
	h := lock(t, a.Mutex(d).Lock)
	requeued := make(chan Event, 1)
	g := start(testCtx(t), b.Mutex(d, on(EventRequeued, func(e Event) { requeued <- e })).Lock)
	queued(t, o, d, 2)
	first := nth(t, o, d, 1)
	remove(t, o, d+"/"+first)
	must.Is(t, soon(t, "requeued", requeued).Err, ErrNodeRemoved, "requeued")
	queued(t, o, d, 2)
	n := nth(t, o, d, 1)
	must.That(t, n != first, "the same node")
	strict := start(testCtx(t), dial(t).Mutex(d).Lock, WithoutRequeue())
	queued(t, o, d, 3)
	remove(t, o, d+"/"+nth(t, o, d, 2))
	wantErr(t, strict.fails(t), ErrNodeRemoved)
	unlock(t, h)
	unlock(t, g.wait(t))
}

// Another session may make a node with the name of the waiter's node, as a restored backup could. The waiter
// does not take that node for its own.
func TestNodeOfAnotherSessionIsNoPlace(t *testing.T) {
	t.Parallel()
	shared(t)
	a, b, o, d := dial(t), dial(t), observer(t), dir(t)
	h := lock(t, a.Mutex(d).Lock)
	requeued := make(chan Event, 1)
	g := start(testCtx(t), b.Mutex(d, on(EventRequeued, func(e Event) { requeued <- e })).Lock)
	queued(t, o, d, 2)
	own := d + "/" + nth(t, o, d, 1)
	if _, err := o.Multi(&zk.DeleteRequest{Path: own, Version: -1},
		&zk.CreateRequest{Path: own, Flags: zk.FlagEphemeral, Acl: zk.WorldACL(zk.PermAll)}); err != nil {
		t.Fatal(err)
	}
	if e := soon(t, "requeued", requeued); !errors.Is(e.Err, ErrNodeRemoved) {
		t.Fatalf("requeued: %v", e.Err)
	}
	unlock(t, h)
	unlock(t, g.wait(t))
}

func TestE17OwnNodeRemovedWhileHolding(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	remove(t, o, l.Node())
	soon(t, "loss", l.Lost())
	soon(t, "context", l.Context().Done())
	var le *LostError
	err := context.Cause(l.Context())
	must.That(t, errors.As(err, &le), "cause %v: want errors.As(err, &le)", err)
	must.Equal(t, le.Reason, Removed, "cause %v: le.Reason", err)
	must.Is(t, err, ErrLost, "cause %v", err)
	must.That(t, !l.Valid(), "still valid")
	wantErr(t, l.Unlock(testCtx(t)), ErrLost)
	wantErr(t, l.Unlock(testCtx(t)), ErrNotHeld)
	unlock(t, lock(t, c.Mutex(d).Lock))
}

func TestE18DirectoryRemoved(t *testing.T) {
	t.Parallel()
	shared(t)
	a, b, o, d := dial(t), dial(t), observer(t), dir(t)
	h := lock(t, a.Mutex(d).Lock)
	g := start(testCtx(t), b.Mutex(d).Lock)
	queued(t, o, d, 2)
	// Remove everything in one transaction. Otherwise the directory would never be gone, because the waiter
	// queues again at once.
	names := names(t, o, d)
	var ops []any
	for _, n := range names {
		ops = append(ops, &zk.DeleteRequest{Path: d + "/" + n, Version: -1})
	}
	ops = append(ops, &zk.DeleteRequest{Path: d, Version: -1})
	must.OK(t, errOf(o.Multi(ops...)))
	soon(t, "loss", h.Lost())
	wantErr(t, h.Unlock(testCtx(t)), ErrLost)
	// The event of the holder's node may come first, and the waiter is granted the lock. Then the waiter loses
	// the lock when it learns that its own node was removed.
	l := g.wait(t)
	if slices.Contains(names, recipe.Base(l.Node())) {
		soon(t, "the loss of an old node", l.Lost())
		l = lock(t, b.Mutex(d).Lock)
	}
	unlock(t, l)
}

func TestE19ContainerRemovedBetweenEnsureAndCreate(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	n := 0
	p.Add(faultproxy.Rule{
		Kind: faultproxy.Request, Op: faultproxy.OpCreate2, Under: d,
		Match: func(f faultproxy.Frame) bool { return strings.Contains(f.Path, "lock-") && n < 5 },
		Do:    faultproxy.Pass,
		Then: func() {
			if err := o.Delete(d, -1); err == nil {
				n++
			}
		},
	})
	l := lock(t, c.Mutex(d).Lock)
	must.That(t, n != 0, "the directory was never removed")
	unlock(t, l)
}

func TestE23UnrelatedChildIsIgnored(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	unlock(t, lock(t, c.Mutex(d).Lock))
	for _, n := range []string{"config", "-lock-x", "lock-", "_c_short"} {
		must.OK(t, errOf(o.Create(d+"/"+n, nil, 0, zk.WorldACL(zk.PermAll))))
	}
	unlock(t, lock(t, c.Mutex(d).Lock))
	unlock(t, lock(t, c.Mutex(d).TryLock))
	q := must.Get(c.Inspector().Inspect(testCtx(t), d))(t)
	must.Equal(t, len(q.Others), 4, "%+v", q)
}

func TestE25EqualNumbers(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	unlock(t, lock(t, c.RWMutex(d).Lock)) // makes the directory
	// Make the nodes that another client sees between the two steps of a downgrade.
	mk := func(k recipe.Role, seq string) string {
		id := newNodeID(o.SessionID())
		n := d + "/" + recipe.NodeName(LayoutCurator, k, id, "") + seq
		must.OK(t, errOf(o.Create(n, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))))
		return n
	}
	w, r := mk(recipe.RoleWrite, "0000000001"), mk(recipe.RoleRead, "0000000001")
	p.Record()
	g := start(testCtx(t), c.RWMutex(d).Lock)
	queued(t, o, d, 3)
	watches(t, p, r, 1)
	remove(t, o, r)
	watches(t, p, w, 1)
	must.That(t, g.pending(), "granted beside a writer")
	remove(t, o, w)
	unlock(t, g.wait(t))
}

func TestE29PredecessorNotReadable(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	holder := dial(t, WithAuth("digest", "holder:secret"))
	w, p := proxied(t, WithSessionTimeout(8*time.Second)) // a waiter reads the node again after a part of it
	unlock(t, lock(t, w.Mutex(d).Lock))                   // makes the directory, which all clients may use
	hm := holder.Mutex(d, WithACL(czk.AuthACL(czk.PermAll)...))
	h := lock(t, hm.Lock)
	p.Record()
	g := start(testCtx(t), w.Mutex(d).Lock)
	queued(t, o, d, 2)
	eventually(t, "the waiter to watch", func() bool {
		return under(p, h.Node(), faultproxy.OpExists) > 0
	})
	unlock(t, h)
	unlock(t, g.wait(t))
	// A server that hides the end of an unreadable node sends no event. Another server sends one.
	if n := p.Count(func(f faultproxy.Frame) bool {
		return f.Kind == faultproxy.Event &&
			f.Path == h.Node()
	}); n > 1 {
		t.Errorf("%d events of the predecessor", n)
	}
	if n := p.Count(func(f faultproxy.Frame) bool { return f.Kind == faultproxy.Event && f.Path == d }); n != 0 {
		t.Errorf("%d events of the directory: a herd", n)
	}
}

func TestE52TryLockOnAHeldLockOnlyReads(t *testing.T) {
	t.Parallel()
	shared(t)
	a, d := dial(t), dir(t)
	c, p := proxied(t)
	h := lock(t, a.Mutex(d).Lock)
	p.Record()
	for i := range 10 {
		wantErr(t, errOf(c.Mutex(d).TryLock(testCtx(t))), ErrNotAcquired)
		// TryLock lists the directory, and lists it again after a sync.
		must.Equal(t, under(p, d, 0), 3*(i+1), "requests after %d tries", i+1)
		must.Equal(t, under(p, d, faultproxy.OpGetChildren2), 2*(i+1), "lists after %d tries", i+1)
	}
	unlock(t, h)
	unlock(t, lock(t, c.Mutex(d).TryLock)) // TryLock sees every release that was complete
}

func TestE53TwoTriesAtOnceOnAFreeLock(t *testing.T) {
	t.Parallel()
	shared(t)
	a, b, d := dial(t), dial(t), dir(t)
	for range rounds(10_000, 100) {
		ga, gb := start(testCtx(t), a.Mutex(d).TryLock), start(testCtx(t), b.Mutex(d).TryLock)
		var won []*Lease
		for _, g := range []granting{ga, gb} {
			select {
			case l := <-g.lease:
				won = append(won, l)
			case err := <-g.err:
				must.Is(t, err, ErrNotAcquired)
			case <-time.After(patience):
				t.Fatal("a try hangs")
			}
			if len(won) == 1 && g == ga {
				// the other TryLock may find the lock held or free
				continue
			}
		}
		must.That(t, len(won) != 0, "both tries failed")
		must.That(t, len(won) != 2, "both tries succeeded")
		unlock(t, won[0])
	}
}

// TryLock waits only for the server, and not for the lock delay after the death of a holder.
func TestTryDoesNotWaitForTheLockDelay(t *testing.T) {
	t.Parallel()
	shared(t)
	for name, lock1 := range map[string]func(c *Client, d string, opts ...Option) (taker, taker){
		"mutex": func(c *Client, d string, opts ...Option) (a, b taker) {
			m := c.Mutex(d, opts...)
			return m.Lock, m.TryLock
		},
		"policy": func(c *Client, d string, opts ...Option) (a, b taker) {
			m := c.RWMutex(d, append(opts, WithPolicy(PolicyFair))...)
			return m.Lock, m.TryLock
		},
	} {
		d := dir(t)
		dead, p := proxied(t)
		delay := WithLockDelay(time.Hour)
		hold, _ := lock1(dead, d, delay)
		l := lock(t, hold)
		expire(t, p)
		soon(t, "the loss", l.Lost())
		wait, try := lock1(dial(t), d, delay)
		for what, f := range map[string]taker{"try": try,
			"no wait": func(ctx context.Context, _ ...Option) (*Lease,
				error) {
				return wait(ctx, WithWait(0))
			}} {
			expect.Is(t, expect.Err(f(testCtx(t))), ErrNotAcquired, "%s, %s", name, what)
		}
	}
}

// WithWait(0) waits for no other holder.
func TestNoWaitIsATry(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	l := lock(t, c.Mutex(d).Lock, WithWait(0))
	expect.Is(t, expect.Err(dial(t).Mutex(d).Lock(testCtx(t), WithWait(0))), ErrNotAcquired)
	unlock(t, l)
}
