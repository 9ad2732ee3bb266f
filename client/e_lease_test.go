package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/test/faultproxy"
)

func TestE40TwoGoroutinesOneMutex(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o, d := dial(t), observer(t), dir(t)
	m := c.Mutex(d)
	h := lock(t, m.Lock)
	const n = 5
	order := make(chan int, n)
	for i := range n {
		g := start(testCtx(t), m.Lock)
		key := gateKey{LayoutCurator, d}
		eventually(t, "its place in the local queue", func() bool { return c.gates.waiting(key) == i+1 })
		go func() {
			l := <-g.lease
			order <- i
			l.Unlock(context.Background())
		}()
	}
	if k := names(t, o, d); len(k) != 1 {
		t.Fatalf("%d nodes for one client", len(k))
	}
	if !h.Valid() {
		t.Fatal("holder disturbed")
	}
	unlock(t, h)
	for i := range n {
		if got := soon(t, "the next", order); got != i {
			t.Fatalf("%d before %d", got, i)
		}
	}
	queued(t, o, d, 0)
}

func TestE41SameLineageLocksTwice(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o, d := dial(t), observer(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	at := time.Now()
	if _, err := c.Mutex(d).Lock(l.Context()); !errors.Is(err, ErrSelfDeadlock) {
		t.Fatal(err)
	}
	if took := time.Since(at); took > time.Millisecond*slow*5 {
		t.Fatalf("told after %v", took)
	}
	if _, err := c.Mutex(d).TryLock(l.Context()); !errors.Is(err, ErrSelfDeadlock) || !errors.Is(err, ErrNotAcquired) {
		t.Fatal(err)
	}
	again := c.Mutex(d, WithReentrant())
	l2, l3 := must[*Lease](t)(again.Lock(l.Context())), must[*Lease](t)(again.TryLock(l.Context()))
	if l2.Token() != l.Token() || l2.Node() != l.Node() || len(names(t, o, d)) != 1 {
		t.Fatal("a nested lease is of the same hold")
	}
	unlock(t, l)
	if !l2.Valid() || len(names(t, o, d)) != 1 {
		t.Fatal("the hold ended before the last lease")
	}
	unlock(t, l3)
	unlock(t, l2)
	queued(t, o, d, 0)
	if _, err := c.Mutex(d).Lock(l.Context()); err == nil || errors.Is(err, ErrSelfDeadlock) {
		t.Fatalf("the context ended with its lease: %v", err)
	}

	// Read-write: write then read nests, and unlocking the write downgrades.
	rw := c.RWMutex(d+"/rw", WithReentrant())
	w := lock(t, rw.Lock)
	r := must[*Lease](t)(rw.RLock(w.Context()))
	unlock(t, w)
	other := lock(t, dial(t).RWMutex(d+"/rw").RLock) // readers may join
	if !r.Valid() || r.Mode() != fence.Shared {
		t.Fatal("not downgraded")
	}
	if _, err := rw.Lock(r.Context()); !errors.Is(err, ErrSelfDeadlock) {
		t.Fatalf("read then write: %v", err)
	}
	unlock(t, other)
	unlock(t, r)
	queued(t, o, d+"/rw", 0)
}

func TestE48SemaphoreLosesNoPermit(t *testing.T) {
	addr(t)
	leakCheck(t)
	o := observer(t)
	for _, do := range []faultproxy.Action{faultproxy.CutBefore, faultproxy.CutAfter} {
		for k := 1; ; k++ {
			d := dir(t)
			c, p := proxied(t)
			r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Under: d, Nth: k, Do: do})
			s := c.Semaphore(d, 2)
			l := must[*Lease](t)(s.Acquire(testCtx(t), 1))
			if n := len(names(t, o, d+"/leases")); n != 1 {
				t.Fatalf("message %d: %d permits taken", k, n)
			}
			unlock(t, l)
			queued(t, o, d+"/leases", 0)
			queued(t, o, d+"/locks", 0)
			unlock(t, must[*Lease](t)(s.Acquire(testCtx(t), 2)))
			c.Close(testCtx(t))
			if r.Seen() < k {
				break
			}
		}
	}
}

func TestE49SemaphoreLimit(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, c2, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	if _, err := c.Semaphore(d+"/none", 0).Acquire(ctx, 1); !errors.Is(err, ErrLimitMismatch) {
		t.Fatal(err)
	}
	s := c.Semaphore(d, 3)
	l := must[*Lease](t)(s.Acquire(ctx, 3))
	if _, err := c2.Semaphore(d, 4).Acquire(ctx, 1); !errors.Is(err, ErrLimitMismatch) {
		t.Fatal(err)
	}
	queued(t, o, d+"/locks", 0)
	if _, err := s.Acquire(ctx, 4); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
	any := c2.Semaphore(d, 0)
	if _, err := any.TryAcquire(ctx, 1); !errors.Is(err, ErrNotAcquired) {
		t.Fatal(err)
	}
	g := start(ctx, func(ctx context.Context, o ...AcquireOption) (*Lease, error) { return any.Acquire(ctx, 1, o...) })
	queued(t, o, d+"/locks", 1)
	// Raised: who waits hears of it.
	if err := s.SetLimit(ctx, 4); err != nil {
		t.Fatal(err)
	}
	l2 := g.wait(t)
	// Lowered below what is in use: nobody is evicted, and nobody gets in.
	if err := s.SetLimit(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if !l.Valid() || !l2.Valid() {
		t.Fatal("evicted")
	}
	g = start(ctx, func(ctx context.Context, o ...AcquireOption) (*Lease, error) { return any.Acquire(ctx, 1, o...) })
	queued(t, o, d+"/locks", 1)
	unlock(t, l2)
	if !g.pending() {
		t.Fatal("three are in use, one is allowed")
	}
	unlock(t, l)
	unlock(t, g.wait(t))
}

func TestE50SetsInDifferentOrders(t *testing.T) {
	addr(t)
	leakCheck(t)
	d := dir(t)
	ctx := testCtx(t)
	o := observer(t)
	paths := []string{d + "/a", d + "/b", d + "/c"}
	var inside [3]atomic.Int32
	var wg sync.WaitGroup
	for i := range 5 {
		c := dial(t)
		for j := range rounds(10, 4) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var reqs []Request
				var mine []int
				for k := range 3 {
					if k == (i+2*j)%4 { // some want two of the three
						continue
					}
					mine = append(mine, (k+i)%3)
					reqs = append(reqs, c.Mutex(paths[(k+i)%3]).Request())
				}
				for range 2 {
					l, err := c.AcquireAll(ctx, reqs...)
					if err != nil {
						t.Error(err)
						return
					}
					for _, k := range mine {
						if inside[k].Add(1) != 1 {
							t.Error("two inside")
						}
					}
					for _, n := range l.Nodes() {
						if _, st, err := o.Get(n); err != nil || fence.Token(st.Czxid) != l.Token() {
							t.Errorf("%s: zxid %v, token %d, %v", n, st, l.Token(), err)
						}
					}
					for _, k := range mine {
						inside[k].Add(-1)
					}
					if err := l.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			}()
		}
	}
	wg.Wait()
	c := dial(t)
	if _, err := c.AcquireAll(ctx, c.Mutex(paths[0]).Request(), c.Mutex(paths[0]).Request()); !errors.Is(err, ErrDuplicatePath) {
		t.Fatal(err)
	}
}

func TestE51SetWithOnePathRefused(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	unlock(t, lock(t, c.Mutex(d+"/a").Lock))
	if _, err := o.Create(d+"/closed", nil, 0, zk.WorldACL(zk.PermRead)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AcquireAll(ctx, c.Mutex(d+"/a").Request(), c.Mutex(d+"/closed").Request(), c.Mutex(d+"/new").Request()); !errors.Is(err, ErrNoAuth) {
		t.Fatal(err)
	}
	// The same where the locks are taken one by one.
	if _, err := c.AcquireAll(ctx, c.Semaphore(d+"/a", 2).Request(1), c.Mutex(d+"/closed").Request()); !errors.Is(err, ErrNoAuth) {
		t.Fatal(err)
	}
	for _, p := range []string{"/a/leases", "/a/locks", "/closed", "/new"} {
		queued(t, o, d+p, 0)
	}
}

func TestE54OneReleaseWakesOne(t *testing.T) {
	addr(t)
	leakCheck(t)
	o, d := observer(t), dir(t)
	holder := dial(t)
	c, p := proxied(t)
	n := rounds(2000, 200)
	h := lock(t, holder.Mutex(d).Lock)
	ctx, cancel := context.WithCancel(testCtx(t))
	var gs []granting
	p.Record()
	for range n {
		gs = append(gs, start(ctx, c.Mutex(d, WithoutGate()).Lock))
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
		for _, g := range gs {
			select {
			case l = <-g.lease:
				return true
			default:
			}
		}
		return false
	})
	if ev, ls := eventsUnder(p, d), under(p, d, faultproxy.OpGetChildren2); ev != 1 || ls != 1 {
		t.Errorf("%d events, %d lists for one release", ev, ls)
	}
	cancel()
	for _, g := range gs {
		select {
		case <-g.err:
		case x := <-g.lease:
			x.Unlock(testCtx(t))
		case <-l.ctx.Done():
		}
	}
	l.Unlock(testCtx(t))
	queued(t, o, d, 0)

	// A group of readers: one event each.
	const readers = 10
	w := lock(t, holder.RWMutex(d+"/rw").Lock)
	gs = nil
	for range readers {
		gs = append(gs, start(testCtx(t), dial(t).RWMutex(d+"/rw").RLock))
	}
	queued(t, o, d+"/rw", readers+1)
	unlock(t, w)
	for _, g := range gs {
		defer unlock(t, g.wait(t))
	}
}

func TestE55CancelledWaitsLeaveNothingBehind(t *testing.T) {
	addr(t)
	leakCheck(t)
	o, d := observer(t), dir(t)
	c := dial(t)
	h := lock(t, dial(t).Mutex(d).Lock)
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
			eventually(t, "the reaper to be done", func() bool { return c.Stats().ReaperQueue == 0 })
			watches = c.hub.size()
		}
	}
	queued(t, o, d, 1)
	eventually(t, "the watches to be as many as before", func() bool { return c.hub.size() <= watches+1 })
	if c.hub.size() > 10 {
		t.Fatalf("%d watches", c.hub.size())
	}
	unlock(t, h)
	// leakCheck counts the goroutines.
}

func TestE56CloseWhileHoldingWaitingAndCreating(t *testing.T) {
	addr(t)
	leakCheck(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	h := lock(t, c.Mutex(d+"/h").Lock)
	rival := lock(t, dial(t).Mutex(d+"/w").Lock)
	waiting := start(testCtx(t), c.Mutex(d+"/w").Lock)
	queued(t, o, d+"/w", 2)
	local := start(testCtx(t), c.Mutex(d+"/w").Lock)
	sem := start(testCtx(t), func(ctx context.Context, o ...AcquireOption) (*Lease, error) {
		return c.Semaphore(d+"/s", 1).Acquire(ctx, 1, o...)
	})
	held := sem.wait(t)
	sem = start(testCtx(t), func(ctx context.Context, o ...AcquireOption) (*Lease, error) {
		return c.Semaphore(d+"/s", 1).Acquire(ctx, 1, o...)
	})
	queued(t, o, d+"/s/locks", 1)
	obs := c.Election(d + "/e").Observe(context.Background())
	soon(t, "an observation", obs)
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Match: func(f faultproxy.Frame) bool { return contenderCreate(f) && f.Under(d+"/c") }, Do: faultproxy.Hold})
	creating := start(testCtx(t), c.Mutex(d+"/c").Lock)
	soon(t, "the create", r.Acted())
	closed := make(chan error, 1)
	go func() { closed <- c.Close(testCtx(t)) }()
	for _, g := range []granting{waiting, local, sem, creating} {
		if err := g.fails(t); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	}
	for _, l := range []*Lease{h, held} {
		soon(t, "the loss", l.Lost())
		var le *LostError
		if err := l.Unlock(testCtx(t)); !errors.As(err, &le) || le.Reason != Closed {
			t.Fatal(err)
		}
	}
	r.Release()
	if err := soon(t, "Close", closed); err != nil {
		t.Fatal(err)
	}
	for range obs {
	}
	if _, err := c.Mutex(d).Lock(testCtx(t)); !errors.Is(err, ErrClosed) || c.State() != StateClosed {
		t.Fatal(err)
	}
	for path, n := range map[string]int{"/h": 0, "/w": 1, "/c": 0, "/s/leases": 0, "/s/locks": 0} {
		queued(t, o, d+path, n)
	}
	if err := c.Close(testCtx(t)); err != nil {
		t.Fatal(err)
	}
	unlock(t, rival)
}

func TestE57CallbackPanics(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o, d := dial(t), observer(t), dir(t)
	func() {
		defer func() {
			if v := recover(); v != "oops" {
				t.Fatalf("recovered %v", v)
			}
		}()
		c.Mutex(d).Do(testCtx(t), func(ctx context.Context, l *Lease) error { panic("oops") })
	}()
	queued(t, o, d, 0)
	oops := errors.New("oops")
	if err := c.RWMutex(d).RDo(testCtx(t), func(context.Context, *Lease) error { return oops }); err != oops {
		t.Fatal(err)
	}
	err := c.RWMutex(d).Do(testCtx(t), func(ctx context.Context, l *Lease) error {
		remove(t, o, l.Node())
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, ErrLost) {
		t.Fatalf("lost: %v", err)
	}
	if err := c.Semaphore(d+"/s", 1).Do(testCtx(t), func(context.Context, *Lease) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestE58Revocation(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, op, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	wish := Revocation{By: "operator", Reason: "maintenance"}
	h := lock(t, c.Mutex(d).Lock)
	w := start(ctx, dial(t).Mutex(d).Lock)
	queued(t, o, d, 2)
	// A waiter leaves the queue.
	if err := op.Revoke(ctx, d, nth(t, o, d, 1), wish); err != nil {
		t.Fatal(err)
	}
	var le *LostError
	if err := w.fails(t); !errors.As(err, &le) || le.Reason != Revoked {
		t.Fatal(err)
	}
	queued(t, o, d, 1)
	// A holder is told once, and keeps the lock.
	for range 2 {
		if err := op.Revoke(ctx, d, baseName(h.Node()), wish); err != nil {
			t.Fatal(err)
		}
	}
	if r := soon(t, "the wish", h.Revoked()); r.By != "operator" || r.Reason != "maintenance" {
		t.Fatalf("%+v", r)
	}
	if e := must[*Queue](t)(op.Inspect(ctx, d)).Holders[0]; e.Owner == nil {
		t.Fatalf("%+v", e)
	} else if r, asked := e.Asked(); !asked || r.By != "operator" {
		t.Fatalf("%+v", e)
	}
	// Curator's wish is understood, and not told a second time.
	if _, err := o.Set(h.Node(), []byte("__REVOKE__"), -1); err != nil {
		t.Fatal(err)
	}
	if err := h.Check(ctx); err != nil || len(h.Revoked()) != 0 {
		t.Fatalf("%v, told %d times more", err, len(h.Revoked()))
	}
	unlock(t, h)
	// A revocable holder loses the lock after the grace.
	h = lock(t, c.Mutex(d).Lock, WithRevocable(20*time.Millisecond))
	if _, err := o.Set(h.Node(), []byte("__REVOKE__"), -1); err != nil {
		t.Fatal(err)
	}
	soon(t, "the wish", h.Revoked())
	soon(t, "the loss", h.Lost())
	if err := h.Unlock(ctx); !errors.As(err, &le) || le.Reason != Revoked {
		t.Fatal(err)
	}
	queued(t, o, d, 0)
	// What Curator would see of ours.
	peer, err := o.Create(d+"/_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-", []byte("10.0.0.1"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Revoke(ctx, d, baseName(peer), wish); err != nil {
		t.Fatal(err)
	}
	if data, _, _ := o.Get(peer); string(data) != "__REVOKE__" {
		t.Fatalf("data %q", data)
	}
	if err := op.Revoke(ctx, d, "gone", wish); !errors.Is(err, ErrNotHeld) {
		t.Fatal(err)
	}
}

func TestE60MaxHoldAndBreaking(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, c2, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	var le *LostError
	// Held too long: the context ends, the node goes after the grace.
	l := lock(t, c.Mutex(d).Lock, WithMaxHold(30*time.Millisecond), WithGrace(100*time.Millisecond))
	soon(t, "the end", l.Context().Done())
	if len(names(t, o, d)) != 1 && time.Since(l.h.since) < 100*time.Millisecond {
		t.Error("the grace was not observed")
	}
	queued(t, o, d, 0)
	if err := l.Unlock(ctx); !errors.As(err, &le) || le.Reason != MaxHold {
		t.Fatal(err)
	}
	// Unlocking within the grace ends it.
	l = lock(t, c.Mutex(d).Lock, WithMaxHold(10*time.Millisecond), WithGrace(time.Hour))
	soon(t, "the end", l.Lost())
	l.Unlock(ctx)
	queued(t, o, d, 0)

	// A holder that does not end by itself is broken by a waiter that may.
	id := newNodeID(o.SessionID())
	stuck, err := o.Create(d+"/"+nodeName(LayoutCurator, kindLock, id, ""),
		ownerData(Owner{MaxHold: "200ms", Grace: "100ms", Breakable: true}), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	_, st, _ := o.Get(stuck)
	from := time.Now()
	b := lock(t, c.Mutex(d).Lock, WithMaxHold(time.Minute), WithBreakable())
	if took := time.Since(from); took < 250*time.Millisecond {
		t.Errorf("broken after %v", took)
	}
	if int64(b.Token()) <= st.Czxid {
		t.Fatalf("token %d after %d", b.Token(), st.Czxid)
	}
	// The broken holder learns it by its node: it was stopped when it should have ended.
	h := lock(t, c2.Mutex(d+"/b").Lock, WithMaxHold(50*time.Millisecond), WithGrace(0), WithBreakable())
	h.h.mu.Lock()
	h.h.stopTimers()
	h.h.mu.Unlock()
	g := start(ctx, c.Mutex(d+"/b").Lock, WithMaxHold(time.Minute), WithBreakable())
	soon(t, "the loss", h.Lost())
	if err := h.Unlock(ctx); !errors.As(err, &le) || le.Reason != Broken {
		t.Fatal(err)
	}
	next := g.wait(t)
	if next.Token() <= h.Token() {
		t.Fatal("token went back")
	}
	// By an operator: with the wrong token not at all.
	if err := c2.Break(ctx, d+"/b", baseName(next.Node()), next.Token()+1); !errors.Is(err, fence.ErrStale) {
		t.Fatal(err)
	}
	if err := c2.BreakExpired(ctx, d+"/b", baseName(next.Node()), next.Token()); !errors.Is(err, ErrNotAcquired) {
		t.Fatal(err)
	}
	if err := c2.Break(ctx, d+"/b", baseName(next.Node()), next.Token()); err != nil {
		t.Fatal(err)
	}
	soon(t, "the loss", next.Lost())
	unlock(t, b)
}

func TestE61LockDelay(t *testing.T) {
	addr(t)
	leakCheck(t)
	o, d := observer(t), dir(t)
	a, pa := proxied(t)
	b := dial(t)
	const delay = 500 * time.Millisecond
	opt := WithLockDelay(delay)
	// After a clean unlock: at once.
	unlock(t, lock(t, a.Mutex(d, opt).Lock))
	at := time.Now()
	unlock(t, lock(t, b.Mutex(d, opt).Lock))
	unlock(t, lock(t, b.RWMutex(d, opt).RLock))
	if took := time.Since(at); took >= delay {
		t.Fatalf("%v after a clean unlock", took)
	}
	// After an unclean end: not before the delay is over, and then without one.
	l := lock(t, a.Mutex(d, opt).Lock)
	g := start(testCtx(t), b.Mutex(d, opt).Lock)
	queued(t, o, d, 2)
	at = time.Now()
	if err := pa.ExpireSession(); err != nil {
		t.Fatal(err)
	}
	l2 := g.wait(t)
	if took := time.Since(at); took < delay {
		t.Fatalf("granted %v after the holder's end", took)
	}
	soon(t, "the loss", l.Lost())
	l.Unlock(testCtx(t))
	unlock(t, l2)
	at = time.Now()
	unlock(t, lock(t, b.Mutex(d, opt).Lock))
	if took := time.Since(at); took >= delay {
		t.Fatalf("%v after a clean unlock", took)
	}
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

func TestE63HandoffIsBounded(t *testing.T) {
	addr(t)
	leakCheck(t)
	o, d := observer(t), dir(t)
	c := dial(t)
	const n, local = 3, 10
	m := c.Mutex(d, WithHandoff(n, 0))
	key := gateKey{LayoutCurator, d}
	h := lock(t, m.Lock)
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	for i := range local {
		g := start(testCtx(t), m.Lock)
		eventually(t, "its place", func() bool { return c.gates.waiting(key) == i+1 })
		wg.Add(1)
		go func() {
			defer wg.Done()
			l := <-g.lease
			mu.Lock()
			order = append(order, "local")
			mu.Unlock()
			if l.Token() < h.Token() {
				t.Error("token went back")
			}
			l.Unlock(context.Background())
		}()
	}
	g := start(testCtx(t), dial(t).Mutex(d).Lock)
	queued(t, o, d, 2)
	unlock(t, h)
	r := g.wait(t)
	mu.Lock()
	turns := len(order)
	mu.Unlock()
	if turns > n {
		t.Fatalf("the remote waited for %d local turns", turns)
	}
	unlock(t, r)
	wg.Wait()
	if s := c.Stats(); s.HandedOff == 0 {
		t.Fatal("nothing was handed over")
	}
	queued(t, o, d, 0)
}

func TestGuardLetsATransactionThroughOnlyWhileHeld(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o, d := dial(t), observer(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	guard := l.Guard()
	write := &zk.SetDataRequest{Path: d, Data: []byte("x"), Version: -1}
	if _, err := o.Multi(append(guard, write)...); err != nil {
		t.Fatal(err)
	}
	unlock(t, l)
	if _, err := o.Multi(append(guard, write)...); !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
}

func TestHooksTellTheLifeOfALock(t *testing.T) {
	addr(t)
	leakCheck(t)
	d := dir(t)
	var mu sync.Mutex
	var told []string
	say := func(s string) func(LockEvent) {
		return func(LockEvent) {
			mu.Lock()
			told = append(told, s)
			mu.Unlock()
		}
	}
	c := dial(t, WithClientHooks(Hooks{OnEnqueue: say("enqueue"), OnGrant: say("grant"), OnRelease: say("release")}))
	unlock(t, lock(t, c.Mutex(d).Lock))
	eventually(t, "the hooks", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(told, []string{"enqueue", "grant", "release"})
	})
}
