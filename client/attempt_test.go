package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Contenders of one process have their turns in the order in which they came. One that leaves the queue is
// passed over, and one that has its turn twice passes it on once.
func TestLocalQueueIsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := localQueues{m: map[localKey][]chan struct{}{}}
		key := localKey{LayoutCurator, "/a"}
		leave := must.Get(g.enter(t.Context(), key, true))(t)
		_, err := g.enter(t.Context(), key, true)
		must.Is(t, err, ErrNotAcquired)
		must.Get(g.enter(t.Context(), localKey{LayoutKazoo, "/a"}, true))(t)
		type turn struct {
			i     int
			leave func()
			err   error
		}
		turns := make(chan turn, 10)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 4 {
			go func() {
				ctx := ctx
				if i != 1 {
					ctx = t.Context()
				}
				leave, err := g.enter(ctx, key, false)
				turns <- turn{i, leave, err}
			}()
			synctest.Wait()
			must.Equal(t, g.waiting(key), i+1, "waiting")
		}
		cancel()
		gone := <-turns
		must.Equal(t, gone.i, 1, "the call that ended")
		must.Is(t, gone.err, context.Canceled)
		must.Equal(t, g.waiting(key), 3, "waiting")
		leave()
		for _, i := range []int{0, 2, 3} {
			leave() // of an earlier turn: it does nothing
			synctest.Wait()
			must.Equal(t, len(turns), 1, "turns")
			next := <-turns
			must.Equal(t, next.i, i, "the call with the turn")
			must.OK(t, next.err)
			leave = next.leave
			leave()
		}
		must.Equal(t, len(g.m), 1, "queues, one of them busy")
		must.Get(g.enter(t.Context(), key, true))(t)
	})
}

// A turn that comes as its contender leaves goes to the next one.
func TestLocalTurnThatComesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // the contender sees the turn or the end first
			g := localQueues{m: map[localKey][]chan struct{}{}}
			leave := must.Get(g.enter(t.Context(), localKey{}, false))(t)
			ctx, cancel := context.WithCancel(t.Context())
			first := make(chan error, 1)
			go func() {
				leave, err := g.enter(ctx, localKey{}, false)
				if err == nil {
					leave()
				}
				first <- err
			}()
			synctest.Wait()
			second := make(chan error, 1)
			go func() {
				_, err := g.enter(t.Context(), localKey{}, false)
				second <- err
			}()
			synctest.Wait()
			g.mu.Lock()
			cancel()
			g.pass(localKey{})
			g.mu.Unlock()
			<-first
			must.OK(t, <-second)
			leave()
		}
	})
}

// A task that holds a lock is known as long as it does.
func TestTasksAreKnownByName(t *testing.T) {
	t.Parallel()
	c, e := withoutServer()
	n := &c.named
	n.m = map[taskPath][]*Lease{}
	ctx := Task(t.Context(), "job")
	lease := func(mode fence.Mode) *Lease {
		h := newHold(&attempt{c: c, path: "/a", cfg: &options{}}, e, mode, 5, heldNode{path: "/a/n"})
		return newLease(ctx, h, mode)
	}
	permit, read, other := lease(fence.Permit), lease(fence.Shared), lease(fence.Shared)
	n.add(permit)
	must.Equal(t, len(n.m), 0, "permits that are known")
	n.add(read)
	n.add(other)
	must.Is(t, n.check(ctx, "/a", fence.Exclusive), ErrSelfDeadlock)
	must.OK(t, n.check(ctx, "/a", fence.Shared))
	must.OK(t, n.check(ctx, "/a", fence.Permit))
	must.OK(t, n.check(ctx, "/b", fence.Exclusive))
	must.OK(t, n.check(Task(ctx, "another"), "/a", fence.Exclusive))
	must.OK(t, n.check(t.Context(), "/a", fence.Exclusive))
	n.remove(read)
	must.Is(t, n.check(ctx, "/a", fence.Exclusive), ErrSelfDeadlock)
	n.remove(other)
	must.OK(t, n.check(ctx, "/a", fence.Exclusive))
	must.Equal(t, len(n.m), 0, "leases that are known")
	write := lease(fence.Exclusive)
	n.add(write)
	must.Is(t, n.check(ctx, "/a", fence.Shared), ErrSelfDeadlock)
	must.Equal(t, taskOf(ctx), "job")
	must.Equal(t, taskIn(ctx), "job")
	must.Equal(t, taskIn(t.Context()), "", "task of a context without one")
	first, second := taskOf(t.Context()), taskOf(t.Context())
	must.That(t, first != "", "a task has no name")
	must.That(t, first != second, "two tasks have the name %s", first)
}

// The owner record stands in each node of a lock, and behind a candidate's value where it is of use.
func TestContentOfNodes(t *testing.T) {
	t.Parallel()
	c, _ := withoutServer()
	c.owner = recipe.Owner{PID: 5, Cmd: "job"}
	a := &attempt{c: c, task: "task", cfg: &options{reason: "why", revocable: true}}
	o, ok := recipe.ParseOwner(a.data())
	must.That(t, ok, "no record: %s", a.data())
	want := recipe.Owner{Version: 1, PID: 5, Cmd: "job", Task: "task", Reason: "why", Revocable: true}
	must.Equal(t, o, want)
	a.cfg.maxHold, a.cfg.grace = time.Minute, -1
	o, _ = recipe.ParseOwner(a.data())
	must.Equal(t, o.MaxHold, "1m0s")
	must.Equal(t, o.Grace, "0s")
	must.That(t, !o.Over, "the limit is over at once")
	for _, x := range []struct {
		tasked bool
		layout Layout
		owner  bool
	}{{false, LayoutCurator, false}, {true, LayoutCurator, true}, {true, LayoutKazoo, false}, {false,
		LayoutKazoo, false}} {
		a.value, a.tasked, a.cfg.layout = []byte("me"), x.tasked, x.layout
		value, _ := recipe.ValueOf(a.data())
		expect.Equal(t, string(value), "me", "value of %+v", x)
		expect.Equal(t, len(a.data()) > 2, x.owner, "a record beside the value of %+v: %q", x, a.data())
	}
}

// A context holds the locks of its leases, and of those around them, but no permits.
func TestLocksThatAContextHolds(t *testing.T) {
	t.Parallel()
	c, e := withoutServer()
	other, _ := withoutServer()
	lease := func(ctx context.Context, path string, mode fence.Mode) *Lease {
		h := newHold(&attempt{c: c, path: path, cfg: &options{}, leave: func() {}}, e, mode, 5,
			heldNode{path: path + "/n"})
		must.That(t, e.Add(h), "not added")
		return must.Get(h.addLease(ctx, mode))(t)
	}
	outer := lease(t.Context(), "/a", fence.Exclusive)
	inner := lease(outer.Context(), "/b", fence.Shared)
	permit := lease(inner.Context(), "/c", fence.Permit)
	ctx := permit.Context()
	must.Equal(t, heldBy(ctx, c, "/a"), outer.h, "the outer lock")
	must.Equal(t, heldBy(ctx, c, "/b"), inner.h, "the inner lock")
	must.Equal(t, heldBy(ctx, c, "/c"), nil, "a permit")
	must.Equal(t, heldBy(ctx, c, "/d"), nil, "another path")
	must.Equal(t, heldBy(ctx, other, "/a"), nil, "the path of another client")
	must.Equal(t, heldBy(outer.Context(), c, "/b"), nil, "the inner lock in the outer context")
	must.Equal(t, heldBy(t.Context(), c, "/a"), nil, "the outer lock in a context around it")
	for _, x := range []struct {
		path      string
		mode      fence.Mode
		reentrant bool
		want      error
	}{
		{"/a", fence.Exclusive, true, nil}, {"/a", fence.Shared, true, nil}, {"/a", fence.Exclusive, false,
			ErrSelfDeadlock},
		{"/b", fence.Shared, true, nil}, {"/b", fence.Exclusive, true, ErrSelfDeadlock},
	} {
		l, err := nested(ctx, c, &attempt{c: c, path: x.path, mode: x.mode, cfg: &options{reentrant: x.reentrant}})
		expect.Is(t, err, x.want, "%+v", x)
		expect.Equal(t, l != nil, x.want == nil, "a nested lease for %+v", x)
	}
	for _, a := range []*attempt{
		{c: c, path: "/c", mode: fence.Exclusive, cfg: &options{}}, {c: c, path: "/a", mode: fence.Permit,
			cfg: &options{}},
		{c: c, path: "/a", mode: fence.Exclusive, alone: true, cfg: &options{}},
	} {
		l, err := nested(ctx, c, a)
		expect.OK(t, err, "%+v", a)
		expect.Equal(t, l, nil, "nested lease of %+v", a)
	}
	inner.h.lose(Removed, heldNode{path: "/b/n"})
	must.Equal(t, heldBy(ctx, c, "/b"), nil, "a lost lock")
	must.Equal(t, heldBy(ctx, c, "/a"), outer.h, "the lock around it")
	outer.h.lose(Deadline)
	must.That(t, heldBy(ctx, c, "/a") == nil, "a lost lock is held")
}

// Locking twice without passing the lease's context on would wait forever.
func TestNamedTaskDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	task, other := Task(testCtx(t), "order 4711"), Task(testCtx(t), "order 4712")
	m, rw := c.Mutex(d), c.RWMutex(d+"/rw")
	l := must.Get(m.Lock(task))(t)
	wantErr(t, errOf(m.Lock(task)), ErrSelfDeadlock)
	wantErr(t, errOf(c.All(task, rw.Request(1), m.Request())), ErrSelfDeadlock)
	g := start(other, m.Lock)
	unlock(t, l)
	mine := g.wait(t)
	again := start(task, m.Lock) // not held by this task any more
	unlock(t, mine)
	unlock(t, again.wait(t))

	r := must.Get(rw.RLock(task))(t)
	unlock(t, must.Get(rw.RLock(task))(t)) // readers do not wait for each other
	wantErr(t, errOf(rw.Lock(task)), ErrSelfDeadlock)
	unlock(t, r)
	set := must.Get(c.All(task, rw.Request(1), m.Request()))(t)
	_, err := m.TryLock(task)
	must.Is(t, err, ErrSelfDeadlock)
	must.Is(t, err, ErrNotAcquired)
	unlock(t, set)
	must.Equal(t, len(c.named.m), 0, "left: %v", c.named.m)
	// What is lost is not held.
	l = must.Get(m.Lock(task))(t)
	remove(t, observer(t), l.Node())
	soon(t, "loss", l.Lost())
	unlock(t, must.Get(m.Lock(task))(t))
	l.Unlock(task)
}

// A named task waits for what it holds in a set, lock by lock.
func TestNamedTaskKnowsHowItHoldsEachLockOfASet(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	ctx := Task(testCtx(t), "order 1")
	a, b := c.RWMutex(d+"/a"), c.RWMutex(d+"/b")
	set := must.Get(c.All(ctx, a.Request(fence.Exclusive), b.Request(fence.Shared)))(t)
	if l, err := b.RLock(ctx); err != nil {
		t.Errorf("a second read lock: %v", err)
	} else {
		unlock(t, l)
	}
	unlock(t, set)
	set = must.Get(c.All(ctx, a.Request(fence.Shared), b.Request(fence.Exclusive)))(t)
	expect.Is(t, expect.Err(b.TryRLock(ctx)), ErrSelfDeadlock, "a read lock beside the own write lock")
	unlock(t, set)
	expect.Equal(t, len(c.named.m), 0, "leases are kept")
}
