package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestRWMutexSharesReadersAndExcludesWriters(t *testing.T) {
	t.Parallel()
	for _, l := range []Layout{LayoutCurator, LayoutKazoo, LayoutHost} {
		t.Run(l.String(), func(t *testing.T) {
			addr(t)
			leakCheck(t)
			c, c2, o, d := dial(t), dial(t), observer(t), dir(t)
			m, m2 := c.RWMutex(d, WithLayout(l)), c2.RWMutex(d, WithLayout(l))
			r1, r2 := lock(t, m.RLock), lock(t, m2.RLock)
			w := start(testCtx(t), m.Lock)
			queued(t, o, d, 3)
			r3 := start(testCtx(t), m2.RLock)
			queued(t, o, d, 4)
			must.Is(t, expect.Err(m2.TryRLock(testCtx(t))), ErrNotAcquired, "a try overtook a writer")
			unlock(t, r1)
			must.That(t, w.pending(), "the writer is granted too early")
			must.That(t, r3.pending(), "the reader is granted too early")
			unlock(t, r2)
			wl := w.wait(t)
			must.That(t, r3.pending(), "reader beside a writer")
			must.OK(t, wl.Downgrade(testCtx(t)))
			rl := r3.wait(t)
			must.OK(t, wl.Err(), "the downgraded lease")
			must.Equal(t, wl.Mode(), fence.Shared)
			unlock(t, wl)
			unlock(t, rl)
			must.Equal(t, len(names(t, o, d)), 0, "left")
		})
	}
}

func TestSemaphoreLimitsPermits(t *testing.T) {
	t.Parallel()
	for _, l := range []Layout{LayoutCurator, LayoutKazoo} {
		t.Run(l.String(), func(t *testing.T) {
			addr(t)
			leakCheck(t)
			d := dir(t)
			ctx := testCtx(t)
			var in, most atomic.Int64
			var wg sync.WaitGroup
			for range 3 {
				s := dial(t).Semaphore(d, 3, WithLayout(l))
				for i := range 3 {
					wg.Go(func() {
						for range 5 {
							n := 1 + i%2
							p, err := s.Acquire(ctx, n)
							if err != nil {
								t.Error(err)
								return
							}
							v := in.Add(int64(n))
							for m := most.Load(); v > m && !most.CompareAndSwap(m, v); m = most.Load() {
							}
							in.Add(-int64(n))
							expect.OK(t, p.Unlock(ctx))
						}
					})
				}
			}
			wg.Wait()
			must.That(t, most.Load() <= 3, "%d permits at a time", most.Load())
		})
	}
}

func TestElectionHasOneLeaderThatObserversSee(t *testing.T) {
	t.Parallel()
	shared(t)
	c1, c2, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	seen := dial(t).Election(d).Observe(ctx)
	if l := soon(t, "first observation", seen); !l.None() {
		t.Fatalf("leader %+v", l)
	}
	a := must.Get(c1.Election(d).Campaign(ctx, []byte("one")))(t)
	leader := soon(t, "leader one", seen)
	must.Equal(t, string(leader.Value), "one")
	must.Equal(t, leader.Token, a.Token())
	b := start(ctx, func(ctx context.Context, o ...Option) (*Lease, error) {
		return c2.Election(d).Campaign(ctx, []byte("two"), o...)
	})
	queued(t, o, d, 2)
	must.OK(t, a.Publish(ctx, []byte("uno")))
	must.Equal(t, string(soon(t, "proclaimed", seen).Value), "uno", "leader")
	must.OK(t, a.Unlock(ctx))
	lb := b.wait(t)
	for l := range seen {
		if string(l.Value) == "two" {
			break
		}
	}
	must.Equal(t, must.Get(c1.Election(d).Leader(ctx))(t).Token, lb.Token(), "leader")
	unlock(t, lb)
}

func TestSetsOfLocksOfDifferentKinds(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	m, rw, s := c.Mutex(d+"/m"), c.RWMutex(d+"/rw"), c.Semaphore(d+"/s", 2)
	l := must.Get(c.All(ctx, s.Request(2), m.Request(), rw.Request(fence.Shared)))(t)
	must.Equal(t, len(l.Nodes()), 4, "nodes")
	for _, seq := range l.Sequencers() {
		must.OK(t, c.CheckSequencer(ctx, seq), "%+v", seq)
	}
	wantErr(t, errOf(c.TryAll(ctx, m.Request(), rw.Request(fence.Exclusive))), ErrNotAcquired)
	unlock(t, l)
	for _, p := range []string{"/m", "/rw", "/s/leases", "/s/locks"} {
		queued(t, o, d+p, 0)
	}
	wantErr(t, c.CheckSequencer(ctx, l.Sequencer()), fence.ErrStale)
	l = must.Get(c.TryAll(ctx, m.Request(), rw.Request(fence.Exclusive)))(t)
	unlock(t, l)
}

func TestInspectShowsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx, cancel := context.WithCancel(testCtx(t))
	h := lock(t, c.RWMutex(d+"/rw").Lock, WithReason("work"))
	r := start(ctx, dial(t).RWMutex(d+"/rw").RLock)
	queued(t, o, d+"/rw", 2)
	q := must.Get(c.Inspector().Inspect(ctx, d+"/rw"))(t)
	must.Equal(t, q.Kind, "rwlock")
	must.Equal(t, len(q.Holders), 1, "holders")
	must.Equal(t, len(q.Waiters), 1, "waiters")
	must.Equal(t, q.Next, 2, "next number")
	holder := q.Holders[0]
	must.That(t, holder.Owner != nil, "the holder has no record")
	must.Equal(t, holder.Owner.Reason, "work")
	must.Equal(t, holder.Token, int64(h.Token()))
	must.Equal(t, holder.Maker, recipe.MakerSelf)
	waiter := q.Waiters[0]
	must.List(t, waiter.BlockedBy, []string{holder.Node})
	must.Equal(t, waiter.Mode, recipe.Shared)
	p := lock(t, func(ctx context.Context, o ...Option) (*Lease, error) {
		return c.Semaphore(d+"/sem", 4).Acquire(ctx, 3, o...)
	})
	q = must.Get(c.Inspector().Inspect(ctx, d+"/sem"))(t)
	must.Equal(t, q.Kind, "semaphore")
	must.Equal(t, len(q.Holders), 3, "holders")
	must.Equal(t, q.Limit, 4)
	var found []string
	note := func(q *recipe.Queue) error { found = append(found, q.Path); return nil }
	must.OK(t, c.Inspector().Walk(ctx, d, -1, note))
	must.Equal(t, len(found), 2, "locks %v", found)
	unlock(t, p)
	cancel()
	r.fails(t)
	unlock(t, h)
}

func TestWaitGraphFindsADeadlockOfTasks(t *testing.T) {
	t.Parallel()
	shared(t)
	c1, c2, o := dial(t), dial(t), observer(t)
	lead := func(c *Client, path string) taker {
		return func(ctx context.Context, opts ...Option) (*Lease, error) {
			return c.Election(path).Campaign(ctx, []byte("value"), opts...)
		}
	}
	mutex := func(c *Client, path string) taker {
		return c.Mutex(path).Lock
	}
	for _, other := range []func(*Client, string) taker{mutex, lead} {
		d := dir(t)
		ctx1, cancel := context.WithCancel(Task(testCtx(t), "first"))
		ctx2, cancel2 := context.WithCancel(Task(testCtx(t), "second"))
		defer cancel2()
		a := must.Get(c1.Mutex(d + "/a").Lock(ctx1))(t)
		b := must.Get(other(c2, d+"/b")(ctx2))(t)
		wb := start(ctx1, other(c1, d+"/b"))
		queued(t, o, d+"/b", 2)
		g := must.Get(c1.Inspector().WaitGraph(testCtx(t), d))(t)
		must.Equal(t, len(g.Edges), 1, "edges")
		must.That(t, !g.Edges[0].Cycle, "a cycle of one edge")
		wa := start(ctx2, c2.Mutex(d+"/a").Lock)
		queued(t, o, d+"/a", 2)
		g = must.Get(c1.Inspector().WaitGraph(testCtx(t), d))(t)
		must.Equal(t, len(g.Edges), 2, "edges")
		must.That(t, g.Edges[0].Cycle, "no cycle")
		must.That(t, !g.Possible(&g.Edges[0]), "the cycle is only possible")
		cancel()
		wb.fails(t)
		unlock(t, a)
		unlock(t, wa.wait(t))
		unlock(t, b)
	}
}

// A directory is a lock only if it has ephemeral contenders. The names of the contenders may begin with any
// word.
func TestWalkFindsLocksByTheirContenders(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	unlock(t, lock(t, c.Mutex(d+"/k/lock").Lock)) // makes the persistent nodes above the lock
	mk := func(path string, flags int32) {
		must.OK(t, errOf(o.Create(path, nil, flags, zk.WorldACL(zk.PermAll))))
	}
	mk(d+"/tutorial", 0)
	mk(d+"/tutorial/lock", zk.FlagEphemeralSequential)
	mk(d+"/tutorial/lock", zk.FlagEphemeralSequential)
	mk(d+"/queue", 0)
	mk(d+"/queue/item-", zk.FlagSequence) // the items of a queue are persistent
	l := lock(t, c.Mutex(d+"/k/lock").Lock)
	found := map[string]*recipe.Queue{}
	must.OK(t, c.Inspector().Walk(testCtx(t), d, -1, func(q *recipe.Queue) error { found[q.Path] = q; return nil }))
	q := found[d+"/tutorial"]
	must.Equal(t, len(found), 2, "locks %v", found)
	must.That(t, found[d+"/k/lock"] != nil, "no lock in %s", d+"/k/lock")
	must.That(t, q != nil, "no lock of plain nodes")
	must.Equal(t, q.Layout(), "plain")
	must.Equal(t, len(q.Holders), 1, "holders")
	must.Equal(t, q.Holders[0].Node, "lock0000000000")
	must.Equal(t, len(q.Waiters), 1, "waiters")
	unlock(t, l)
}

// The client gives back the lock at the head of a semaphore's queue before it sends any other request. So the
// client's next TryAcquire does not find that lock held.
func TestTryAcquireDoesNotMeetOnesOwnHead(t *testing.T) {
	t.Parallel()
	c := dial(t)
	s := c.Semaphore(dir(t), 3)
	for range 200 {
		ctx := testCtx(t)
		two := must.Get(s.Acquire(ctx, 2))(t)
		one := must.Get(s.TryAcquire(ctx, 1))(t)
		must.OK(t, errors.Join(one.Unlock(ctx), two.Unlock(ctx)))
	}
}

// The method Do of every recipe runs its function under the lock and gives the lock back.
func TestDoOfEachRecipe(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o := dial(t), observer(t)
	for name, x := range map[string]struct {
		do    func(path string, f func(context.Context, *Lease) error) error
		nodes int
	}{
		"election": {func(path string, f func(context.Context, *Lease) error) error {
			return c.Election(path).Do(testCtx(t), []byte("me"), f)
		}, 1},
		"permits": {func(path string, f func(context.Context, *Lease) error) error {
			return c.Semaphore(path, 5).Do(testCtx(t), 3, f)
		}, 3},
		"set": {func(path string, f func(context.Context, *Lease) error) error {
			return c.DoAll(testCtx(t), f, c.Mutex(path+"/a").Request(), c.Mutex(path+"/b").Request())
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []string
			must.OK(t, x.do(dir(t), func(ctx context.Context, l *Lease) error {
				nodes = l.Nodes()
				return l.Check(ctx)
			}))
			expect.Equal(t, len(nodes), x.nodes, "nodes")
			for _, n := range nodes {
				expect.That(t, !exists(t, o, n), "%s is left", n)
			}
		})
	}
}

// A set has no token, but each of its locks has a token. Only a leader has a value.
func TestWhatALeaseDoesNotHave(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	set := must.Get(c.All(testCtx(t), c.Mutex(d+"/a").Request(), c.Mutex(d+"/b").Request()))(t)
	expect.Equal(t, set.Token(), 0, "the token of a set")
	for _, s := range set.Sequencers() {
		expect.That(t, s.Token != 0, "%s has no token", s.Path)
	}
	expect.Is(t, set.Publish(testCtx(t), []byte("me")), ErrUnsupported)
	must.OK(t, set.Release())
	must.Is(t, set.Release(), ErrNotHeld)
	unlock(t, must.Get(c.All(testCtx(t), c.Mutex(d+"/a").Request(), c.Mutex(d+"/b").Request()))(t))
}
