package client

import (
	"context"
	"errors"
	"testing"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
)

// What is nested in a set of locks is nested in the one that it names: in how that one
// is held, and with its token.
func TestLeaseNestedInASetIsOfItsOwnLock(t *testing.T) {
	c, d, o := dial(t), dir(t), observer(t)
	ctx := testCtx(t)
	a, b := c.RWMutex(d+"/a", WithReentrant()), c.RWMutex(d+"/b", WithReentrant())
	set := must[*Lease](t)(c.AcquireAll(ctx, a.Request(fence.Exclusive), b.Request(fence.Shared)))
	if _, err := b.Lock(set.Context()); !errors.Is(err, ErrSelfDeadlock) {
		t.Errorf("a write lock in a read lock: %v", err)
	}
	read := must[*Lease](t)(b.RLock(set.Context()))
	write := must[*Lease](t)(a.Lock(set.Context()))
	for i, l := range []*Lease{write, read} {
		s := set.Sequencers()[i]
		if l.Sequencer() != s || len(l.Sequencers()) != 1 || l.Path() != s.Path || l.Token() != s.Token || l.Node() != s.NodePath() || len(l.Nodes()) != 1 {
			t.Errorf("%v at %s, want %+v", l.Sequencers(), l.Nodes(), s)
		}
	}
	unlock(t, set)
	if n, m := len(names(t, o, d+"/a")), len(names(t, o, d+"/b")); n != 1 || m != 1 {
		t.Errorf("%d and %d nodes, while the nested leases are held", n, m)
	}
	unlock(t, read)
	unlock(t, write)
	queued(t, o, d+"/a", 0)
	queued(t, o, d+"/b", 0)
	set = must[*Lease](t)(c.AcquireAll(testCtx(t), c.RWMutex(d+"/a").Request(fence.Shared), c.RWMutex(d+"/b").Request(fence.Exclusive)))
	unlock(t, must[*Lease](t)(c.RWMutex(d+"/b", WithReentrant()).Lock(set.Context())))
	unlock(t, set)
}

// A named task waits for what it holds in a set, lock by lock.
func TestNamedTaskKnowsHowItHoldsEachLockOfASet(t *testing.T) {
	c, d := dial(t), dir(t)
	ctx := Task(testCtx(t), "order 1")
	a, b := c.RWMutex(d+"/a"), c.RWMutex(d+"/b")
	set := must[*Lease](t)(c.AcquireAll(ctx, a.Request(fence.Exclusive), b.Request(fence.Shared)))
	if l, err := b.RLock(ctx); err != nil {
		t.Errorf("a second read lock: %v", err)
	} else {
		unlock(t, l)
	}
	unlock(t, set)
	set = must[*Lease](t)(c.AcquireAll(ctx, a.Request(fence.Shared), b.Request(fence.Exclusive)))
	if _, err := b.TryRLock(ctx); !errors.Is(err, ErrSelfDeadlock) {
		t.Errorf("a read lock beside the own write lock: %v", err)
	}
	unlock(t, set)
	if n := len(c.named.m); n != 0 {
		t.Errorf("%d leases are kept", n)
	}
}

// A mutex that is read-locked within itself stays a mutex.
func TestUnlockOfAMutexBeforeAReadLockNestedInIt(t *testing.T) {
	c, d, o := dial(t), dir(t), observer(t)
	outer := lock(t, c.Mutex(d).Lock)
	inner := must[*Lease](t)(c.RWMutex(d, WithReentrant()).RLock(outer.Context()))
	unlock(t, outer)
	if !inner.Valid() || len(names(t, o, d)) != 1 {
		t.Error("the hold ended before the last lease")
	}
	unlock(t, inner)
	queued(t, o, d, 0)
}

// What Do runs is work under the lease, for the wait graph too.
func TestDoIsOneTaskWithItsLease(t *testing.T) {
	c, d := dial(t), dir(t)
	err := c.Mutex(d).Do(testCtx(t), func(ctx context.Context, l *Lease) error {
		return c.Mutex(d+"/inner").Do(ctx, func(_ context.Context, inner *Lease) error {
			outer, in := must[*recipe.Queue](t)(c.Inspector().Inspect(ctx, d)).Holders[0], must[*recipe.Queue](t)(c.Inspector().Inspect(ctx, d+"/inner")).Holders[0]
			if outer.Owner.Task != in.Owner.Task {
				t.Errorf("tasks %q and %q", outer.Owner.Task, in.Owner.Task)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}
