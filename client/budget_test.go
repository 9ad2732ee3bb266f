package client

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/faultproxy"
)

func TestBudgetOfAnUncontendedCycle(t *testing.T) {
	addr(t)
	leakCheck(t)
	d := dir(t)
	c, p := proxied(t)
	for name, f := range map[string]func(context.Context, ...AcquireOption) (*Lease, error){
		"mutex": c.Mutex(d + "/m").Lock, "write": c.RWMutex(d + "/rw").Lock, "read": c.RWMutex(d + "/rw").RLock,
	} {
		unlock(t, lock(t, f))
		p.Record()
		unlock(t, lock(t, f))
		writes := under(p, d, faultproxy.OpCreate) + under(p, d, faultproxy.OpDelete)
		reads := under(p, d, faultproxy.OpGetData) + under(p, d, faultproxy.OpGetChildren2)
		if all := under(p, d, 0); writes != 2 || reads != 2 || all != 4 {
			t.Errorf("%s: %d requests, %d writes, %d reads", name, all, writes, reads)
		}
		// The two reads are sent together: two round trips to hold the lock.
		var order []faultproxy.Kind
		for _, fr := range p.Frames() {
			if fr.Under(d) && fr.Op != faultproxy.OpDelete && fr.Kind != faultproxy.Event {
				order = append(order, fr.Kind)
			}
		}
		trips := 0
		for i, k := range order {
			if k == faultproxy.Request && (i == 0 || order[i-1] == faultproxy.Reply) {
				trips++
			}
		}
		if trips > 2 && !raceEnabled { // a slow machine may answer the first before the second is sent
			t.Logf("%s: %d round trips", name, trips)
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
	eventually(t, "all to wait", func() bool { return c.gates.waiting(gateKey{LayoutCurator, d}) == 1000 })
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
		ls = append(ls, lock(t, c.Mutex(d, WithoutGate()).TryLock))
		d += "x"
	}
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
	c, o, d := dial(t, WithSafetyCheck(0)), observer(t), dir(t)
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
	prefix := d + "/_c_" + newNodeID(1).uuid() + "-lock-"
	data := ownerData(Owner{Host: "h", PID: 1})
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
