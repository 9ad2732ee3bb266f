package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// If two kinds of locks exclude each other, they are never held together on one path, and the second
// contender gets an error.
func TestKindsOfLocksOnOnePathExcludeEachOther(t *testing.T) {
	t.Parallel()
	shared(t)
	type kindOf struct {
		name   string
		try    func(c *Client, d string) (*Lease, error)
		shares bool   // two locks of this kind may be held together
		group  string // kinds of one group know each other's nodes
	}
	ctx := testCtx(t)
	kinds := []kindOf{
		{"mutex", func(c *Client, d string) (*Lease, error) { return c.Mutex(d).TryLock(ctx) }, false, "curator"},
		{"write", func(c *Client, d string) (*Lease, error) { return c.RWMutex(d).TryLock(ctx) }, false, "curator"},
		{"read", func(c *Client, d string) (*Lease, error) { return c.RWMutex(d).TryRLock(ctx) }, true, "curator"},
		{"policy write", func(c *Client, d string) (*Lease, error) {
			return c.RWMutex(d, WithPolicy(PolicyFair)).TryLock(ctx)
		}, false, "policy"},
		{"policy read", func(c *Client, d string) (*Lease, error) {
			return c.RWMutex(d, WithPolicy(PolicyFair)).TryRLock(ctx)
		}, true, "policy"},
		{"kazoo mutex", func(c *Client, d string) (*Lease, error) {
			return c.Mutex(d, WithLayout(LayoutKazoo)).TryLock(ctx)
		}, false, "kazoo"},
		{"kazoo read", func(c *Client, d string) (*Lease, error) {
			return c.RWMutex(d, WithLayout(LayoutKazoo)).TryRLock(ctx)
		}, true, "kazoo"},
		{"host write", func(c *Client, d string) (*Lease, error) {
			return c.RWMutex(d, WithLayout(LayoutHost)).TryLock(ctx)
		}, false, "host"},
		{"permit", func(c *Client, d string) (*Lease, error) { return c.Semaphore(d, 2).TryAcquire(ctx, 1) }, true,
			"permit"},
		{"kazoo permit", func(c *Client, d string) (*Lease, error) {
			return c.Semaphore(d, 2, WithLayout(LayoutKazoo)).TryAcquire(ctx, 1)
		}, true, "kazoo permit"},
	}
	a, b, o := dial(t), dial(t), observer(t)
	for _, first := range kinds {
		for _, second := range kinds {
			d := fmt.Sprintf("%s/%s-%s", dir(t), first.name, second.name)
			l := must.Get(first.try(a, d))(t)
			m, err := second.try(b, d)
			switch {
			case err == nil && first.name == second.name && first.shares:
				unlock(t, m)
			case err == nil:
				t.Errorf("%s held, and %s granted", first.name, second.name)
				unlock(t, m)
			case first.group != second.group && !errors.Is(err, ErrMixedLayout):
				t.Errorf("%s held, %s: %v", first.name, second.name, err)
			case first.group == second.group && !errors.Is(err, ErrNotAcquired):
				t.Errorf("%s held, %s: %v", first.name, second.name, err)
			}
			unlock(t, l)
			for _, sub := range []string{"", "/locks", "/leases"} {
				eventually(t, first.name+", "+second.name+": nothing left in "+sub, func() bool {
					for range turns.UsePermits.Rivals(names(t, o, d+sub)) {
						return false
					}
					return true
				})
			}
		}
	}
}

// A reader of a lock with a policy has no node until it holds. Another client requests a lock of another kind
// after the reader has listed the directory and before its grant. The two locks must not be held together.
func TestReaderOfAPolicySeesWhoCameWhileItWasNotToBeSeen(t *testing.T) {
	t.Parallel()
	shared(t)
	ctx := testCtx(t)
	o := observer(t)
	for name, other := range map[string]func(c *Client, d string) (*Lease, error){
		"mutex": func(c *Client, d string) (*Lease, error) { return c.Mutex(d).Lock(ctx) },
		"read":  func(c *Client, d string) (*Lease, error) { return c.RWMutex(d).RLock(ctx) },
		"kazoo mutex": func(c *Client, d string) (*Lease, error) {
			return c.Mutex(d, WithLayout(LayoutKazoo)).Lock(ctx)
		},
		"host write": func(c *Client, d string) (*Lease, error) {
			return c.RWMutex(d, WithLayout(LayoutHost)).Lock(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := dir(t)
			c, p := proxied(t)
			rw := c.RWMutex(d, WithPolicy(PolicyFair))
			unlock(t, lock(t, rw.RLock)) // makes the directory
			late := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpMulti, Do: faultproxy.Hold})
			g := start(ctx, rw.RLock)
			<-late.Acted() // the reader has looked, and is about to hold
			l := must.Get(other(dial(t), d))(t)
			late.Release()
			late.Remove()
			expect.Is(t, g.fails(t), ErrMixedLayout, "granted beside another kind of lock")
			unlock(t, l)
			eventually(t, "no node of the reader", func() bool {
				for _, n := range names(t, o, d) {
					if recipe.IsPolicyNode(n) {
						return false
					}
				}
				return true
			})
		})
	}
}

// Curator's recipes see only nodes of their own kind, so a lock of another kind next to them would exclude no
// contender.
func TestForeignLockOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o := dial(t), observer(t)
	const uuid = "_c_5cbee2b6-2ae0-4ad2-a2ad-c1a7a2a3f5ca-"
	ctx := testCtx(t)
	for _, x := range []struct {
		foreign string
		lock    func(d string) taker
		mixed   bool
	}{
		{"__WRIT__", func(d string) taker { return c.Mutex(d).Lock }, true},
		{"__READ__", func(d string) taker { return c.Mutex(d).Lock }, true},
		{"latch-", func(d string) taker { return c.Mutex(d).Lock }, true},
		{"lock-", func(d string) taker { return c.RWMutex(d).RLock }, true},
		{"lock-", func(d string) taker { return c.Mutex(d).Lock }, false},
		{"__WRIT__", func(d string) taker { return c.RWMutex(d).Lock }, false},
	} {
		d := dir(t)
		unlock(t, lock(t, x.lock(d))) // makes the directory
		p, err := o.Create(d+"/"+uuid+x.foreign, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		must.OK(t, err)
		g := start(ctx, x.lock(d))
		if x.mixed {
			expect.Is(t, g.fails(t), ErrMixedLayout, "beside %s", x.foreign)
			remove(t, o, p)
			continue
		}
		queued(t, o, d, 2)
		remove(t, o, p)
		unlock(t, g.wait(t))
	}
	// A node that only looks like another program's contender is not a lock.
	d := dir(t)
	unlock(t, lock(t, c.Mutex(d).Lock))
	for _, n := range []string{"lock", "leases", "locks", "5cbee2b62ae04ad2a2adc1a7a2a3f5ca"} {
		must.OK(t, errOf(o.Create(d+"/"+n, nil, 0, zk.WorldACL(zk.PermAll))))
	}
	unlock(t, lock(t, c.Mutex(d).Lock))
	// An ephemeral node named `lock` is the lock of another program: the session that made the node holds it.
	must.OK(t, o.Delete(d+"/lock", -1))
	must.OK(t, errOf(o.Create(d+"/lock", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))))
	must.Is(t, expect.Err(c.Mutex(d).Lock(ctx)), ErrMixedLayout, "beside a held node named lock")
}

// A mutex does not nest in a permit of the same path, because a permit excludes no other holder.
func TestPermitIsNoMutex(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	p := must.Get(c.Semaphore(d, 3).Acquire(testCtx(t), 1))(t)
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	l, err := c.Mutex(d, WithReentrant()).Lock(ctx)
	expect.Is(t, err, ErrMixedLayout, "a mutex below a permit: %v", l)
	unlock(t, p)
}

// A semaphore does not change data that another program keeps at its path.
func TestSemaphoreLeavesForeignDataAlone(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o := dial(t), observer(t)
	for _, layout := range []Layout{LayoutCurator, LayoutKazoo} {
		const theirs = "host=db1;user=app"
		unlock(t, lock(t, c.Mutex(dir(t)+"/x").Lock)) // makes the directory /t
		d := dir(t)
		must.OK(t, errOf(o.Create(d, []byte(theirs), 0, zk.WorldACL(zk.PermAll))))
		s := c.Semaphore(d, 3, WithLayout(layout))
		expect.Fails(t, expect.Err(s.Acquire(testCtx(t), 1)), "%v: granted", layout)
		expect.Fails(t, s.SetPermits(testCtx(t), 4), "%v: the limit was stored", layout)
		b, _ := contentOf(t, o, d)
		expect.Equal(t, string(b), theirs, "%v: the data are %q now", layout, b)
	}
}

// The limit that is stored at a semaphore's path counts if it has the form of the semaphore's layout.
func TestStoredLimitOfASemaphore(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o := dial(t), observer(t)
	unlock(t, lock(t, c.Mutex(dir(t)+"/x").Lock)) // makes the directory /t
	for _, x := range []struct {
		layout Layout
		stored string
		want   error // error of a semaphore with 3 permits
		after  string
	}{
		{LayoutKazoo, "", nil, "3"},
		{LayoutKazoo, "3", nil, "3"},
		{LayoutKazoo, "4", ErrLimitMismatch, "4"},
		{LayoutKazoo, "0", ErrLimitMismatch, "0"},
		{LayoutKazoo, "three", ErrLimitMismatch, "three"},
		{LayoutKazoo, `{"zl":1,"limit":3}`, ErrMixedLayout, `{"zl":1,"limit":3}`},
		{LayoutCurator, `{"zl":1,"limit":3}`, nil, `{"zl":1,"limit":3}`},
		{LayoutCurator, `{"zl":1,"limit":4}`, nil, `{"zl":1,"limit":4}`},
		{LayoutCurator, `{"zl":1,"layout":"policy"}`, ErrMixedLayout, `{"zl":1,"layout":"policy"}`},
		{LayoutCurator, "3", ErrMixedLayout, "3"},
	} {
		d := dir(t)
		must.OK(t, errOf(o.Create(d, []byte(x.stored), 0, zk.WorldACL(zk.PermAll))))
		s := c.Semaphore(d, 3, WithLayout(x.layout))
		l, err := s.Acquire(testCtx(t), 3)
		expect.That(t, errors.Is(err, x.want), "%v, %q: %v, want %v", x.layout, x.stored, err, x.want)
		b, _ := contentOf(t, o, d)
		expect.Equal(t, string(b), x.after, "%v, %q: stored", x.layout, x.stored)
		if err != nil {
			// TryAcquire reads the limit before it writes anything.
			expect.Fails(t, errOf(s.TryAcquire(testCtx(t), 1)), "%v, %q", x.layout, x.stored)
			continue
		}
		unlock(t, l)
		must.OK(t, s.SetPermits(testCtx(t), 5))
		unlock(t, must.Get(s.TryAcquire(testCtx(t), 5))(t))
		if b, _ := contentOf(t, o, d); x.layout == LayoutKazoo {
			expect.Equal(t, string(b), "5", "%q: stored", x.stored)
		}
	}
}

func TestE48SemaphoreLosesNoPermit(t *testing.T) {
	t.Parallel()
	shared(t)
	o := observer(t)
	for _, do := range []faultproxy.Action{faultproxy.CutBefore, faultproxy.CutAfter} {
		for k := 1; ; k++ {
			d := dir(t)
			c, p := proxied(t)
			r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Under: d, Nth: k, Do: do})
			s := c.Semaphore(d, 2)
			l := must.Get(s.Acquire(testCtx(t), 1))(t)
			n := len(names(t, o, d+"/leases"))
			must.Equal(t, n, 1, "message %d: %d permits taken", k, n)
			unlock(t, l)
			queued(t, o, d+"/leases", 0)
			queued(t, o, d+"/locks", 0)
			unlock(t, must.Get(s.Acquire(testCtx(t), 2))(t))
			c.Close(testCtx(t))
			if r.Seen() < k {
				break
			}
		}
	}
}

func TestE49SemaphoreLimit(t *testing.T) {
	t.Parallel()
	shared(t)
	c, c2, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	wantErr(t, errOf(c.Semaphore(d+"/none", 0).Acquire(ctx, 1)), ErrLimitMismatch)
	s := c.Semaphore(d, 3)
	l := must.Get(s.Acquire(ctx, 3))(t)
	wantErr(t, errOf(c2.Semaphore(d, 4).TryAcquire(ctx, 1)), ErrNotAcquired)
	queued(t, o, d+"/locks", 0)
	wantErr(t, errOf(s.Acquire(ctx, 4)), ErrInvalid)
	any := c2.Semaphore(d, 0)
	wantErr(t, errOf(any.TryAcquire(ctx, 1)), ErrNotAcquired)
	g := start(ctx, func(ctx context.Context, o ...Option) (*Lease, error) { return any.Acquire(ctx, 1, o...) })
	queued(t, o, d+"/locks", 1)
	// A waiter hears of a raised limit.
	must.OK(t, s.SetPermits(ctx, 4))
	l2 := g.wait(t)
	// If the limit is lowered below the number in use, no holder is evicted, and no contender gets in.
	must.OK(t, s.SetPermits(ctx, 1))
	must.That(t, l.Valid(), "the first is evicted")
	must.That(t, l2.Valid(), "the second is evicted")
	g = start(ctx, func(ctx context.Context, o ...Option) (*Lease, error) { return any.Acquire(ctx, 1, o...) })
	queued(t, o, d+"/locks", 1)
	unlock(t, l2)
	must.That(t, g.pending(), "three are in use, one is allowed")
	unlock(t, l)
	unlock(t, g.wait(t))
}

func TestE50SetsInDifferentOrders(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	ctx := testCtx(t)
	o := observer(t)
	paths := []string{d + "/a", d + "/b", d + "/c"}
	var inside [3]atomic.Int32
	var wg sync.WaitGroup
	for i := range 5 {
		c := dial(t)
		for j := range rounds(10, 4) {
			wg.Go(func() {
				var reqs []Request
				var mine []int
				for k := range 3 {
					if k == (i+2*j)%4 { // some sets have only two of the three locks
						continue
					}
					mine = append(mine, (k+i)%3)
					reqs = append(reqs, c.Mutex(paths[(k+i)%3]).Request())
				}
				for range 2 {
					l, err := c.All(ctx, reqs...)
					if err != nil {
						t.Error(err)
						return
					}
					for _, k := range mine {
						expect.Equal(t, inside[k].Add(1), 1, "two inside")
					}
					for _, s := range l.Sequencers() {
						_, st, err := o.Get(s.Path + "/" + s.Node)
						if expect.OK(t, err, "%v", s) {
							expect.Equal(t, fence.Token(st.Czxid), s.Token, "%v: zxid of the node", s)
						}
					}
					for _, k := range mine {
						inside[k].Add(-1)
					}
					expect.OK(t, l.Unlock(ctx))
				}
			})
		}
	}
	wg.Wait()
	c := dial(t)
	wantErr(t, errOf(c.All(ctx, c.Mutex(paths[0]).Request(), c.Mutex(paths[0]).Request())), ErrInvalid)
}

// A client that takes single locks in the order of the paths never deadlocks with a set.
func TestSetsInOrderDoNotDeadlockWithSingleLocks(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	o, single, c := observer(t), dial(t), dial(t)
	first := lock(t, single.Mutex(d+"/a").Lock)
	all := func(ctx context.Context, opts ...Option) (*Lease, error) {
		// The two calls of this function also wait for each other within the process.
		return c.All(ctx, c.Mutex(d+"/b").Request(), c.RWMutex(d+"/c").Request(fence.Exclusive),
			c.Mutex(d+"/a").Request())
	}
	set, second := start(testCtx(t), all), start(testCtx(t), all)
	eventually(t, "the set to wait", func() bool { return len(names(t, o, d+"/a")) >= 2 })
	b := lock(t, single.Mutex(d+"/b").Lock) // the set waits for lock a, so lock b is free
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
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	unlock(t, lock(t, c.Mutex(d+"/a").Lock))
	must.OK(t, errOf(o.Create(d+"/closed", nil, 0, zk.WorldACL(zk.PermRead))))
	wantErr(t, errOf(c.All(ctx, c.Mutex(d+"/a").Request(), c.Mutex(d+"/closed").Request(),
		c.Mutex(d+"/new").Request())), ErrNoAuth)
	// A set whose locks are taken one by one also fails with ErrNoAuth.
	wantErr(t, errOf(c.All(ctx, c.Semaphore(d+"/a", 2).Request(1), c.Mutex(d+"/closed").Request())),
		ErrNoAuth)
	for _, p := range []string{"/a/leases", "/a/locks", "/closed", "/new"} {
		queued(t, o, d+p, 0)
	}
}

// If another client removes the node of the head of a semaphore's queue, that former head takes no permit.
func TestHeadThatWasRemovedTakesNoPermit(t *testing.T) {
	t.Parallel()
	shared(t)
	d, o := dir(t), observer(t)
	requeued := make(chan Event, 10)
	c, p := proxied(t, on(EventRequeued, func(e Event) { requeued <- e }))
	next := dial(t)
	take := func(c *Client) taker {
		return func(ctx context.Context, opts ...Option) (*Lease, error) {
			return c.Semaphore(d, 1).Acquire(ctx, 1, opts...)
		}
	}
	unlock(t, lock(t, take(next)))
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Nth: 1, Do: faultproxy.Hold,
		Match: func(f faultproxy.Frame) bool {
			return f.Op == faultproxy.OpMulti || f.Op == faultproxy.OpCreate2 && f.Under(d+"/leases")
		}})
	late := start(testCtx(t), take(c))
	soon(t, "the permit's request", r.Acted())
	for _, head := range names(t, o, d+"/locks") {
		must.OK(t, o.Delete(d+"/locks/"+head, -1))
	}
	l := lock(t, take(next))
	r.Remove()
	soon(t, "another place", requeued)
	expect.Equal(t, len(names(t, o, d+"/leases")), 1, "permits of one")
	unlock(t, l)
	unlock(t, late.wait(t))
	queued(t, o, d+"/leases", 0)
	queued(t, o, d+"/locks", 0)
}
