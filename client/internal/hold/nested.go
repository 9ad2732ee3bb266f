package hold

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"

	"github.com/zlockd/zlockd/client/fence"
)

// heldBy returns the hold of `path` to which a lease of ctx belongs. Permits do not exclude each other, so a
// context with a permit does not hold the path.
func (s *Shared) heldBy(ctx context.Context, path string) *Hold {
	for outer := leaseIn(ctx); outer != nil; outer = outer.outer {
		for _, lease := range append([]*Lease{outer}, outer.h.g.Parts...) {
			h := lease.h
			if h.s == s && h.g.Parts == nil && h.g.Path == path && h.modeNow() != fence.Permit &&
				lease.Err() == nil && outer.Err() == nil {
				return h
			}
		}
	}
	return nil
}

// Nested decides what a contender gets if its context may already hold the path: a nested lease, or an error.
// It returns nil, nil if the context does not hold the path.
func (s *Shared) Nested(ctx context.Context, path string, mode fence.Mode, reentrant bool) (*Lease, error) {
	for {
		held := s.heldBy(ctx, path)
		if held == nil {
			return nil, s.named.check(ctx, path, mode)
		}
		if mode == fence.Exclusive && held.modeNow() == fence.Shared {
			return nil, selfDeadlock(path, "it holds a read lock; Upgrade turns that into a write lock")
		}
		if !reentrant {
			return nil, selfDeadlock(path, "WithReentrant allows this")
		}
		l, err := held.addLease(ctx, mode)
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, EndOf(ctx)
		}
		// The lease was lost or downgraded just now: look again.
	}
}

// Alone returns an error if the context, or its task, already holds the path. A call for a set with this path
// would then wait for itself.
func (s *Shared) Alone(ctx context.Context, path string, mode fence.Mode) error {
	if s.heldBy(ctx, path) != nil {
		return selfDeadlock(path, "a set cannot be nested")
	}
	return s.named.check(ctx, path, mode)
}

func selfDeadlock(path, hint string) error {
	return fmt.Errorf("%w: %s: %s", ErrSelfDeadlock, path, hint)
}

// Task names the work that a context belongs to.
func Task(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, taskKey{}, name)
}

type taskKey struct{}

// TaskIn returns the task of ctx. It returns "" if ctx has no task.
func TaskIn(ctx context.Context) string {
	task, _ := ctx.Value(taskKey{}).(string)
	return task
}

// TaskOf returns the task of ctx, or a fresh one if ctx has no task.
func TaskOf(ctx context.Context) string {
	if task := TaskIn(ctx); task != "" {
		return task
	}
	return rand.Text()
}

// named finds the leases of a task by the task's name. A goroutine that locks a second time without the
// lease's context would wait for itself. The name of its task shows that it already holds the lock.
type named struct {
	mu sync.Mutex            // nothing else is locked while it is held
	m  map[taskPath][]*Lease // active leases
}

type taskPath struct{ task, path string }

// add() registers a lease under the task that its context names.
func (n *named) add(l *Lease) {
	if l.mode == fence.Permit || l.h.g.Parts != nil { // for a set, each part is registered instead
		return
	}
	k := taskPath{TaskIn(l.ctx), l.h.g.Path}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = map[taskPath][]*Lease{}
	}
	n.m[k] = append(n.m[k], l)
}

// remove() deletes the entry of a lease that was unlocked or lost.
func (n *named) remove(l *Lease) {
	k := taskPath{TaskIn(l.ctx), l.h.g.Path}
	n.mu.Lock()
	defer n.mu.Unlock()
	left := slices.DeleteFunc(n.m[k], func(x *Lease) bool { return x == l })
	if len(left) == 0 {
		delete(n.m, k)
		return
	}
	n.m[k] = left
}

// check() returns an error if the task of ctx already holds `path` and a call for the lock in `mode` would
// wait for the task itself.
func (n *named) check(ctx context.Context, path string, mode fence.Mode) error {
	task := TaskIn(ctx)
	if task == "" || mode == fence.Permit {
		return nil
	}
	n.mu.Lock()
	leases := slices.Clone(n.m[taskPath{task, path}])
	n.mu.Unlock()
	for _, l := range leases {
		if mode == fence.Exclusive || l.h.modeNow() == fence.Exclusive {
			return selfDeadlock(path,
				fmt.Sprintf("task %q holds it; for a nested lock, use the context of the lease", task))
		}
	}
	return nil
}
