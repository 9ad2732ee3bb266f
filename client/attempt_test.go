package client

import (
	"testing"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// If a named task asks again for a lock that it holds, the client refuses. It refuses even if the call does
// not use the lease's context. Otherwise the task would wait for itself forever.
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
	again := start(task, m.Lock) // the task no longer holds the lock
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
	must.Equal(t, c.take.Named(), 0, "locks that tasks hold")
	// After a lease is lost, the task may lock again.
	l = must.Get(m.Lock(task))(t)
	remove(t, observer(t), l.Node())
	soon(t, "loss", l.Lost())
	unlock(t, must.Get(m.Lock(task))(t))
	l.Unlock(task)
}

// For each lock of a set, the client knows whether the task holds the lock to read or to write.
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
	expect.Equal(t, c.take.Named(), 0, "locks that tasks hold")
}
