package hold

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The name of a task is known while the task holds a lock.
func TestTasksAreKnownByName(t *testing.T) {
	t.Parallel()
	s, e := withoutServer()
	n := &s.named
	ctx := Task(t.Context(), "job")
	lease := func(mode fence.Mode) *Lease {
		return newLease(ctx, s.newHold(granted(e, "/a", mode, new(atomic.Int32))), mode)
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
	must.Equal(t, TaskOf(ctx), "job")
	must.Equal(t, TaskIn(ctx), "job")
	must.Equal(t, TaskIn(t.Context()), "", "task of a context without one")
	first, second := TaskOf(t.Context()), TaskOf(t.Context())
	must.That(t, first != "", "a task has no name")
	must.That(t, first != second, "two tasks have the name %s", first)
}

// A context holds the locks of its leases, and of the leases around them, but no permits.
func TestLocksThatAContextHolds(t *testing.T) {
	t.Parallel()
	s, e := withoutServer()
	other, _ := withoutServer()
	lease := func(ctx context.Context, path string, mode fence.Mode) *Lease {
		return must.Get(s.BeginUnwatched(ctx, granted(e, path, mode, new(atomic.Int32))))(t)
	}
	outer := lease(t.Context(), "/a", fence.Exclusive)
	inner := lease(outer.Context(), "/b", fence.Shared)
	permit := lease(inner.Context(), "/c", fence.Permit)
	ctx := permit.Context()
	must.Equal(t, s.heldBy(ctx, "/a"), outer.h, "the outer lock")
	must.Equal(t, s.heldBy(ctx, "/b"), inner.h, "the inner lock")
	must.Equal(t, s.heldBy(ctx, "/c"), nil, "a permit")
	must.Equal(t, s.heldBy(ctx, "/d"), nil, "another path")
	must.Equal(t, other.heldBy(ctx, "/a"), nil, "the path of another client")
	must.Equal(t, s.heldBy(outer.Context(), "/b"), nil, "the inner lock in the outer context")
	must.Equal(t, s.heldBy(t.Context(), "/a"), nil, "the outer lock in a context around it")
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
		l, err := s.Nested(ctx, x.path, x.mode, x.reentrant)
		expect.Is(t, err, x.want, "%+v", x)
		expect.Equal(t, l != nil, x.want == nil, "a nested lease for %+v", x)
	}
	inner.h.lose(Removed, Node{Path: "/b/n"})
	must.Is(t, context.Cause(inner.Context()), ErrLost)
	must.Equal(t, s.heldBy(ctx, "/b"), nil, "a lost lock")
	must.Equal(t, s.heldBy(ctx, "/a"), outer.h, "the lock around it")
	outer.h.lose(Deadline)
	must.That(t, s.heldBy(ctx, "/a") == nil, "a lost lock is held")
}
