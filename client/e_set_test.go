package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/test/faultproxy"
)

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
	g := start(ctx, func(ctx context.Context, o ...Option) (*Lease, error) { return any.Acquire(ctx, 1, o...) })
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
	g = start(ctx, func(ctx context.Context, o ...Option) (*Lease, error) { return any.Acquire(ctx, 1, o...) })
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
					for _, s := range l.Sequencers() {
						_, st, err := o.Get(s.Path + "/" + s.Node)
						if err != nil || fence.Token(st.Czxid) != s.Token {
							t.Errorf("%v: zxid %v, token %d, %v", s, st, l.Token(), err)
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
	if _, err := c.AcquireAll(ctx, c.Mutex(paths[0]).Request(), c.Mutex(paths[0]).Request()); !errors.Is(err, ErrInvalid) {
		t.Fatal(err)
	}
}

// Whoever takes single locks in the order of the paths never deadlocks with a set.
func TestSetsInOrderDoNotDeadlockWithSingleLocks(t *testing.T) {
	addr(t)
	leakCheck(t)
	d := dir(t)
	o, single, c := observer(t), dial(t), dial(t)
	first := lock(t, single.Mutex(d+"/a").Lock)
	all := func(ctx context.Context, opts ...Option) (*Lease, error) {
		// Also when it takes part in the process's own queue.
		return c.AcquireAll(ctx, c.Mutex(d+"/b").Request(), c.RWMutex(d+"/c").Request(fence.Exclusive), c.Mutex(d+"/a").Request())
	}
	set, second := start(testCtx(t), all), start(testCtx(t), all)
	eventually(t, "the set to wait", func() bool { return len(names(t, o, d+"/a")) >= 2 })
	b := lock(t, single.Mutex(d+"/b").Lock) // the set waits, but not here
	unlock(t, b)
	unlock(t, first)
	for range 2 {
		select {
		case l := <-set.lease:
			unlock(t, l)
		case l := <-second.lease:
			unlock(t, l)
		case err := <-set.err:
			t.Fatal(err)
		}
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

// The head of a semaphore's queue whose node somebody removed takes no permit beside
// the next head.
func TestHeadThatWasRemovedTakesNoPermit(t *testing.T) {
	addr(t)
	leakCheck(t)
	d, o := dir(t), observer(t)
	requeued := make(chan LockEvent, 10)
	c, p := proxied(t, WithHooks(Hooks{OnRequeue: func(e LockEvent) { requeued <- e }}))
	next := dial(t)
	take := func(c *Client) take {
		return func(ctx context.Context, opts ...Option) (*Lease, error) {
			return c.Semaphore(d, 1).Acquire(ctx, 1, opts...)
		}
	}
	unlock(t, lock(t, take(next)))
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Nth: 1, Do: faultproxy.Hold, Match: func(f faultproxy.Frame) bool {
		return f.Op == faultproxy.OpMulti || f.Op == faultproxy.OpCreate2 && f.Under(d+"/leases")
	}})
	late := start(testCtx(t), take(c))
	soon(t, "the permit's request", r.Acted())
	for _, head := range names(t, o, d+"/locks") {
		if err := o.Delete(d+"/locks/"+head, -1); err != nil {
			t.Fatal(err)
		}
	}
	l := lock(t, take(next))
	r.Remove()
	soon(t, "another place", requeued)
	if n := names(t, o, d+"/leases"); len(n) != 1 {
		t.Errorf("permits of one: %q", n)
	}
	unlock(t, l)
	unlock(t, late.wait(t))
	queued(t, o, d+"/leases", 0)
	queued(t, o, d+"/locks", 0)
}
