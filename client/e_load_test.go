package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/faultproxy"
)

func TestE54OneReleaseWakesOne(t *testing.T) {
	addr(t)
	leakCheck(t)
	o, d := observer(t), dir(t)
	// The load must not cost anybody its session.
	patient := WithSessionTimeout(40 * time.Second)
	holder := dial(t, patient)
	c, p := proxied(t, patient)
	n := rounds(2000, 200)
	h := lock(t, holder.Mutex(d).Lock)
	ctx, cancel := context.WithCancel(testCtx(t))
	var gs []granting
	p.Record()
	for range n {
		gs = append(gs, start(ctx, c.Mutex(d, WithoutLocalQueue()).Lock))
	}
	// All wait when each has read its own node and its predecessor's.
	eventually(t, "all to wait", func() bool {
		return p.Count(func(f faultproxy.Frame) bool {
			return f.Kind == faultproxy.Reply && f.Op == faultproxy.OpGetData && f.Under(d)
		}) >= 2*n
	})
	if ls := under(p, d, faultproxy.OpGetChildren2); ls != n {
		t.Errorf("%d lists for %d contenders", ls, n)
	}
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
	// The first in the queue knew that nobody else was ahead.
	if ev, ls := eventsUnder(p, d), under(p, d, faultproxy.OpGetChildren2); ev != 1 || ls != 0 {
		t.Errorf("%d events, %d lists for one release", ev, ls)
	}
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

	// A group of readers: one event each.
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
		if ev, ls := eventsUnder(p, d), under(p, d, faultproxy.OpGetChildren2); ev != 1 || ls != 1 {
			t.Errorf("reader %d: %d events, %d lists, want 1 and 1", i, ev, ls)
		}
	}
	for _, l := range held {
		unlock(t, l)
	}
}

func TestE55CancelledWaitsLeaveNothingBehind(t *testing.T) {
	addr(t)
	leakCheck(t)
	o, d := observer(t), dir(t)
	patient := WithSessionTimeout(40 * time.Second)
	c := dial(t, patient)
	h := lock(t, dial(t, patient).Mutex(d).Lock)
	n := rounds(100_000, 500)
	var watches int
	for i := range n {
		ctx, cancel := context.WithCancel(context.Background())
		in := make(chan struct{}, 1)
		g := start(ctx, c.Mutex(d, WithHooks(Hooks{OnEnqueue: func(LockEvent) { in <- struct{}{} }})).Lock)
		soon(t, "its place", in)
		cancel()
		if err := g.fails(t); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if i == n/2 {
			eventually(t, "the reaper to be done", func() bool { return c.reaper.left.add(0) == 0 })
			watches = int(c.Stats().Watches)
		}
	}
	queued(t, o, d, 1)
	eventually(t, "the watches to be as many as before", func() bool { return int(c.Stats().Watches) <= watches+1 })
	if int(c.Stats().Watches) > 10 {
		t.Fatalf("%d watches", int(c.Stats().Watches))
	}
	unlock(t, h)
	// leakCheck counts the goroutines.
}

func TestE62ObserveOverManyLeaders(t *testing.T) {
	addr(t)
	leakCheck(t)
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
		l := must[*Lease](t)(a.Election(d).Campaign(ctx, fmt.Append(nil, i)))
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
	if !slices.IsSortedFunc(all, func(x, y Leader) int { return int(x.Token-y.Token) * btoi(!x.None() && !y.None()) }) {
		t.Fatalf("out of order: %v", all)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
