package client

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/internal/take"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

func TestBudgetOfAnUncontendedCycle(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	c, p := proxied(t)
	for name, f := range map[string]taker{
		"mutex": c.Mutex(d + "/m").Lock, "write": c.RWMutex(d + "/rw").Lock, "read": c.RWMutex(d + "/rw").RLock,
	} {
		begun := time.Now()
		unlock(t, lock(t, f))
		p.Record()
		unlock(t, lock(t, f))
		writes := under(p, d, faultproxy.OpCreate2) + under(p, d, faultproxy.OpDelete)
		reads := under(p, d, faultproxy.OpGetData) + under(p, d, faultproxy.OpGetChildren2)
		all := under(p, d, 0)
		// on a slow machine the client also reads its own node, once every `ownWatch`
		slow := int(time.Since(begun) / ownWatch)
		expect.Equal(t, writes, 2, "%s: writes", name)
		expect.That(t, reads >= 1 && reads <= 1+slow, "%s: %d reads, want 1 to %d", name, reads, 1+slow)
		expect.Equal(t, all, writes+reads, "%s: requests", name)
		// The client sends the creation and the list request together, so it holds the lock after one round
		// trip.
		p.Record()
		hold := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpCreate2, Under: d,
			Do: faultproxy.Hold})
		g := start(testCtx(t), f)
		eventually(t, "the list behind the creation", func() bool {
			return under(p, d, faultproxy.OpGetChildren2) == 1
		})
		hold.Release()
		hold.Remove()
		unlock(t, g.wait(t))
	}
}

// A waiter behind several contenders lists the directory once more than a waiter behind one. When the
// predecessor ends, the waiter does not know yet whether the contenders before the predecessor have ended.
// The waiter does not watch its own node while the queue moves on.
func TestBudgetOfALongQueue(t *testing.T) {
	t.Parallel()
	shared(t)
	const ahead = 60
	c, p := proxied(t)
	places := make(chan Event, ahead)
	m, d := dial(t, on(EventQueued, func(e Event) { places <- e })), dir(t)
	l := lock(t, m.Mutex(d).Lock)
	soon(t, "the first place", places)
	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	var gs []granting
	for range ahead - 1 {
		gs = append(gs, start(ctx, m.Mutex(d, WithOwnPlace()).Lock))
		soon(t, "its place", places)
	}
	p.Record()
	begun := time.Now()
	g := start(testCtx(t), c.Mutex(d).Lock)
	eventually(t, "the last place", func() bool { return under(p, d, faultproxy.OpGetData) == 1 })
	unlock(t, l)
	var turn time.Time // when the last waiter got the lock
	for _, g := range gs {
		l := g.wait(t)
		turn = time.Now()
		unlock(t, l)
	}
	last := g.wait(t)
	unlock(t, last)
	slow := 0 // 1 if the machine was slow, so that the client also watched its own node
	if time.Since(begun) > take.OwnWatchIn(c.Session().Timeout, ahead) || time.Since(turn) > ownWatch {
		slow = 1
	}
	if n := under(p, d, 0); n < 5 || n > 5+slow {
		t.Errorf("%d requests, of which %d read a node: %v", n, under(p, d, faultproxy.OpGetData), p.Frames())
	}
	n := p.Count(func(f faultproxy.Frame) bool { return f.Kind == faultproxy.Event })
	expect.That(t, n >= 1 && n <= 1+slow, "%d events, want 1 to %d", n, 1+slow)
}

func TestBudgetOfManyGoroutinesAndOnePath(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	h := lock(t, c.Mutex(d).Lock)
	ctx, cancel := context.WithCancel(testCtx(t))
	var gs []granting
	for range 1000 {
		gs = append(gs, start(ctx, c.Mutex(d).Lock))
	}
	eventually(t, "all to wait", func() bool {
		return c.take.WaitHere(LayoutCurator, d) == 1000
	})
	must.Equal(t, len(names(t, o, d)), 1, "nodes")
	cancel()
	for _, g := range gs {
		g.fails(t)
	}
	unlock(t, h)
}

func TestBudgetOfAnIdleHolder(t *testing.T) {
	t.Parallel()
	shared(t)
	const timeout = 8 * time.Second
	c, p := proxied(t, WithSessionTimeout(timeout))
	d, begun := dir(t), time.Now()
	var ls []*Lease
	for range 5 {
		ls = append(ls, lock(t, c.Mutex(d, WithOwnPlace()).TryLock))
		d += "x"
	}
	eventually(t, "the nodes to be watched", func() bool { return c.keeper.Conn().Watches() == 5 })
	p.Record()
	at, beats := time.Now(), c.keeper.Heartbeats()
	eventually(t, "three heartbeats", func() bool { return c.keeper.Heartbeats() >= beats+3 })
	took := time.Since(at)
	requests := func(op func(int32) bool) int {
		return p.Count(func(f faultproxy.Frame) bool { return f.Kind == faultproxy.Request && op(f.Op) })
	}
	n := requests(func(op int32) bool { return op == faultproxy.OpSync })
	must.That(t, n <= 5, "%d heartbeats for 5 locks, want 5 at most: %v", n, p.Frames())
	least := 3*session.Heartbeat(timeout)*3/4 - session.Heartbeat(timeout)
	must.That(t, took >= least, "three heartbeats took %v, want %v at least", took, least)
	// On a busy machine the heartbeats take so long that the client looks at the node of each lock again. Allow
	// these requests.
	n = requests(func(op int32) bool { return !(faultproxy.Frame{Op: op}).Background() && op != faultproxy.OpSync })
	must.That(t, n <= 5*int(time.Since(begun)/timeout), "%d other requests since %v: %v", n, begun, p.Frames())
	for _, l := range ls {
		unlock(t, l)
	}
}

// allocs() counts what the client allocates to lock and unlock without contention, and what the library
// allocates for the same four requests.
func allocs(t testing.TB) (ours, library float64) {
	c, o, d := dial(t, withSafetyCheck(0)), observer(t), dir(t)
	m := c.Mutex(d)
	ctx := context.Background()
	unlock(t, lock(t, m.Lock))
	ours = testing.AllocsPerRun(200, func() {
		l, err := m.Lock(ctx)
		if err == nil {
			err = l.Unlock(ctx)
		}
		must.OK(t, err)
	})
	prefix := d + "/_c_" + newNodeID(1).UUID() + "-lock-"
	data := recipe.EncodeOwner(recipe.Owner{Host: "h", PID: 1})
	library = testing.AllocsPerRun(200, func() {
		p := must.Get(o.Create(prefix, data, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll)))(t)
		o.GetW(p)
		o.Children(d)
		must.OK(t, o.Delete(p, -1))
	})
	return ours, library
}

func TestBudgetOfAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	ours, library := allocs(t)
	t.Logf("%.0f objects a cycle, %.0f of them the library's", ours, library)
	expect.That(t, ours-library <= 60, "%.0f objects above the library's, the budget is 60", ours-library)
}

func BenchmarkMutexUncontended(b *testing.B) {
	c, d := dial(b), dir(b)
	m := c.Mutex(d)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.Lock(ctx)
		if err == nil {
			err = l.Unlock(ctx)
		}
		must.OK(b, err)
	}
}

func TestE54OneReleaseWakesOne(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	// With this many contenders the machine is busy. The timeout is long so that no client loses its session.
	patient := WithSessionTimeout(40 * time.Second)
	holder := dial(t, patient)
	c, p := proxied(t, patient)
	n := rounds(2000, 200)
	h := lock(t, holder.Mutex(d).Lock)
	ctx, cancel := context.WithCancel(testCtx(t))
	var gs []granting
	p.Record()
	for range n {
		gs = append(gs, start(ctx, c.Mutex(d, WithOwnPlace()).Lock))
	}
	// A waiter waits once it has read its own node and its predecessor's node.
	eventually(t, "all to wait", func() bool {
		return p.Count(func(f faultproxy.Frame) bool {
			return f.Kind == faultproxy.Reply && f.Op == faultproxy.OpGetData && f.Under(d)
		}) >= 2*n
	})
	expect.Equal(t, under(p, d, faultproxy.OpGetChildren2), n, "lists for %d contenders", n)
	p.Record()
	unlock(t, h)
	var l *Lease
	eventually(t, "one grant", func() bool {
		for i, g := range gs {
			select {
			case l = <-g.lease:
				gs = slices.Delete(gs, i, i+1)
				return true
			default:
			}
		}
		return false
	})
	// The first waiter sends no list request, because it knows that only the holder stood before it.
	ev, ls := eventsUnder(p, d), under(p, d, faultproxy.OpGetChildren2)
	expect.Equal(t, ev, 1, "events for one release")
	expect.Equal(t, ls, 0, "lists for one release")
	cancel()
	for _, g := range gs {
		select {
		case <-g.err:
		case x := <-g.lease:
			x.Unlock(testCtx(t))
		}
	}
	l.Unlock(testCtx(t))
	queued(t, o, d, 0)

	// Each reader of a group gets one event.
	const readers = 10
	w := lock(t, holder.RWMutex(d+"/rw").Lock)
	gs = nil
	var ps []*faultproxy.Proxy
	for range readers {
		c, p := proxied(t, patient)
		p.Record()
		gs, ps = append(gs, start(testCtx(t), c.RWMutex(d+"/rw").RLock)), append(ps, p)
		watches(t, p, w.Node(), 1)
	}
	unlock(t, w)
	var held []*Lease
	for _, g := range gs {
		held = append(held, g.wait(t))
	}
	for i, p := range ps {
		ev, ls := eventsUnder(p, d), under(p, d, faultproxy.OpGetChildren2)
		expect.Equal(t, ev, 1, "reader %d: events", i)
		expect.Equal(t, ls, 1, "reader %d: lists", i)
	}
	for _, l := range held {
		unlock(t, l)
	}
}

func TestE55CancelledWaitsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	patient := WithSessionTimeout(40 * time.Second)
	c := dial(t, patient)
	h := lock(t, dial(t, patient).Mutex(d).Lock)
	n := rounds(100_000, 500)
	var watches int
	for i := range n {
		ctx, cancel := context.WithCancel(context.Background())
		in := make(chan struct{}, 1)
		g := start(ctx, c.Mutex(d, on(EventQueued, func(Event) { in <- struct{}{} })).Lock)
		soon(t, "its place", in)
		cancel()
		wantErr(t, g.fails(t), context.Canceled)
		if i == n/2 {
			eventually(t, "the reaper to be done", func() bool { return c.keeper.Pending() == 0 })
			watches = c.keeper.Conn().Watches()
		}
	}
	queued(t, o, d, 1)
	eventually(t, "the watches to be as many as before", func() bool {
		return c.keeper.Conn().Watches() <= watches+1
	})
	must.That(t, c.keeper.Conn().Watches() <= 10, "%d watches", c.keeper.Conn().Watches())
	unlock(t, h)
	// At the end of the test, leakCheck() checks that no goroutines are left.
}

func TestE62ObserveOverManyLeaders(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	c, p := proxied(t)
	a := dial(t)
	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	obs := c.Election(d).Observe(ctx)
	n := rounds(100, 30)
	seen := make(chan []Leader, 1)
	go func() {
		var all []Leader
		for l := range obs {
			all = append(all, l)
			if string(l.Value) == fmt.Sprint(n) {
				break
			}
		}
		seen <- all
	}()
	for i := 1; i <= n; i++ {
		l := must.Get(a.Election(d).Campaign(ctx, fmt.Append(nil, i)))(t)
		if i%(n/4+1) == 0 {
			p.Cut()
		}
		if i < n {
			unlock(t, l)
		} else {
			defer l.Unlock(testCtx(t))
		}
	}
	all := soon(t, "the last leader", seen)
	if !slices.IsSortedFunc(all, func(x, y Leader) int {
		return int(x.Token-y.Token) * btoi(!x.None() &&
			!y.None())
	}) {
		t.Fatalf("out of order: %v", all)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// If many persistent nodes are named like contenders, a contender sends the requests about all of them at
// once.
func TestNodesThatAreNoContendersAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	shared(t)
	d, o := dir(t), observer(t)
	c, p := proxied(t)
	unlock(t, lock(t, c.Mutex(d, WithLockDelay(time.Millisecond)).Lock)) // so that the directory stays
	const nodes = 50
	for i := range nodes {
		must.OK(t, errOf(o.Create(fmt.Sprintf("%s/%032x", d, i), nil, 0, zk.WorldACL(zk.PermAll))))
	}
	p.Record()
	first := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpExists, Under: d, Nth: 1,
		Do: faultproxy.Hold})
	g := start(testCtx(t), c.Mutex(d).Lock)
	eventually(t, "a request about each node before the first answer", func() bool {
		return under(p, d, faultproxy.OpExists) == nodes
	})
	first.Release()
	unlock(t, g.wait(t))
}
