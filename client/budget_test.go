package client

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/faultproxy"
)

func TestBudgetOfAnUncontendedCycle(t *testing.T) {
	addr(t)
	leakCheck(t)
	d := dir(t)
	c, p := proxied(t)
	for name, f := range map[string]func(context.Context, ...Option) (*Lease, error){
		"mutex": c.Mutex(d + "/m").Lock, "write": c.RWMutex(d + "/rw").Lock, "read": c.RWMutex(d + "/rw").RLock,
	} {
		unlock(t, lock(t, f))
		p.Record()
		unlock(t, lock(t, f))
		writes := under(p, d, faultproxy.OpCreate2) + under(p, d, faultproxy.OpDelete)
		reads := under(p, d, faultproxy.OpGetData) + under(p, d, faultproxy.OpGetChildren2)
		if all := under(p, d, 0); writes != 2 || reads != 1 || all != 3 {
			t.Errorf("%s: %d requests, %d writes, %d reads", name, all, writes, reads)
		}
		// Creation and list are sent together: one round trip to hold the lock.
		p.Record()
		hold := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpCreate2, Under: d, Do: faultproxy.Hold})
		g := start(testCtx(t), f)
		eventually(t, "the list behind the creation", func() bool { return under(p, d, faultproxy.OpGetChildren2) == 1 })
		hold.Release()
		hold.Remove()
		unlock(t, g.wait(t))
	}
}

// Who waits behind others costs a list more than who waits behind one, because the
// end of the last one ahead does not tell that of the others. Its own node is not
// watched while the queue moves on.
func TestBudgetOfALongQueue(t *testing.T) {
	addr(t)
	leakCheck(t)
	const ahead = 60
	c, p := proxied(t)
	places := make(chan LockEvent, ahead)
	m, d := dial(t, WithHooks(Hooks{OnEnqueue: func(e LockEvent) { places <- e }})), dir(t)
	l := lock(t, m.Mutex(d).Lock)
	soon(t, "the first place", places)
	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	var gs []granting
	for range ahead - 1 {
		gs = append(gs, start(ctx, m.Mutex(d, WithoutLocalQueue()).Lock))
		soon(t, "its place", places)
	}
	p.Record()
	begun := time.Now()
	g := start(testCtx(t), c.Mutex(d).Lock)
	eventually(t, "the last place", func() bool { return under(p, d, faultproxy.OpGetData) == 1 })
	unlock(t, l)
	for _, g := range gs {
		unlock(t, g.wait(t))
	}
	last := g.wait(t)
	slow := 0 // this machine, so that the own node was watched
	if time.Since(begun) > last.h.e.ownWatchIn(ahead) {
		slow = 1
	}
	unlock(t, last)
	if n := under(p, d, 0); n < 5 || n > 5+slow {
		t.Errorf("%d requests, of which %d read a node: %v", n, under(p, d, faultproxy.OpGetData), p.Frames())
	}
	if n := p.Count(func(f faultproxy.Frame) bool { return f.Kind == faultproxy.Event }); n < 1 || n > 1+slow {
		t.Errorf("%d events", n)
	}
}

func TestOwnNodeIsWatchedLaterFarFromTheTurn(t *testing.T) {
	addr(t)
	e := lock(t, dial(t).Mutex(dir(t)).Lock).h.e
	for ahead, want := range map[int]time.Duration{1: ownWatch, 41: ownWatch + 40*ownWatchEach, 10000: e.sessionTimeout()} {
		if got := e.ownWatchIn(ahead); got != want {
			t.Errorf("%d ahead: %v, not %v", ahead, got, want)
		}
	}
}

func TestBudgetOfManyGoroutinesAndOnePath(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o, d := dial(t), observer(t), dir(t)
	h := lock(t, c.Mutex(d).Lock)
	ctx, cancel := context.WithCancel(testCtx(t))
	var gs []granting
	for range 1000 {
		gs = append(gs, start(ctx, c.Mutex(d).Lock))
	}
	eventually(t, "all to wait", func() bool { return c.localQueues.waiting(localKey{LayoutCurator, d}) == 1000 })
	if n := names(t, o, d); len(n) != 1 {
		t.Fatalf("%d nodes", len(n))
	}
	cancel()
	for _, g := range gs {
		g.fails(t)
	}
	unlock(t, h)
}

func TestBudgetOfAnIdleHolder(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, p := proxied(t)
	d := dir(t)
	var ls []*Lease
	for range 5 {
		ls = append(ls, lock(t, c.Mutex(d, WithoutLocalQueue()).TryLock))
		d += "x"
	}
	eventually(t, "the nodes to be watched", func() bool { return c.Stats().Watches == 5 })
	p.Record()
	at, beats := time.Now(), c.Stats().Heartbeats
	eventually(t, "four heartbeats", func() bool { return c.Stats().Heartbeats >= beats+4 })
	took := time.Since(at)
	n := p.Count(func(f faultproxy.Frame) bool { return f.Kind == faultproxy.Request && f.Op != faultproxy.OpPing })
	if n > 6 || took < 4*heartbeat(4*time.Second)*3/4-heartbeat(4*time.Second) {
		t.Fatalf("%d requests in %v for 5 locks: %v", n, took, p.Frames())
	}
	for _, l := range ls {
		unlock(t, l)
	}
}

// allocs measures what our part of an uncontended cycle allocates, above what
// the library allocates for the same four requests.
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
		if err != nil {
			t.Fatal(err)
		}
	})
	prefix := d + "/_c_" + newNodeID(1).UUID() + "-lock-"
	data := recipe.EncodeOwner(recipe.Owner{Host: "h", PID: 1})
	library = testing.AllocsPerRun(200, func() {
		p, err := o.Create(prefix, data, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		o.GetW(p)
		o.Children(d)
		if err := o.Delete(p, -1); err != nil {
			t.Fatal(err)
		}
	})
	return ours, library
}

func TestBudgetOfAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ours, library := allocs(t)
	t.Logf("%.0f objects a cycle, %.0f of them the library's", ours, library)
	if ours-library > 60 {
		t.Errorf("%.0f objects above the library's, the budget is 60", ours-library)
	}
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
		if err != nil {
			b.Fatal(err)
		}
	}
}
