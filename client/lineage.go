package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"

	"github.com/zlockd/zlockd/client/fence"
)

// lineage lists the leases that a lease's context is nested in. Goroutines have no identity, so the
// context says whether its user already holds a lock.
type lineage struct {
	lease  *Lease
	parent *lineage
}

type lineageKey struct{}

func lineageOf(ctx context.Context) *lineage {
	l, _ := ctx.Value(lineageKey{}).(*lineage)
	return l
}

// heldBy returns the hold of path that ctx has. Permits do not exclude each other, so a context
// with a permit does not hold the path.
func heldBy(ctx context.Context, c *Client, path string) *hold {
	for l := lineageOf(ctx); l != nil; l = l.parent {
		for _, lease := range append([]*Lease{l.lease}, l.lease.h.parts...) {
			h := lease.h
			if h.c == c && h.parts == nil && slices.Contains(h.locks(), path) && h.modeOf(path) != fence.Permit &&
				lease.Err() == nil && l.lease.Err() == nil {
				return h
			}
		}
	}
	return nil
}

// named keeps the leases of named tasks. A goroutine that locks a second time without the lease's
// context would wait for itself; the name of its task reveals that.
type named struct {
	mu sync.Mutex            // nothing else is locked while it is held
	m  map[taskPath][]*Lease // active leases
}

type taskPath struct{ task, path string }

// add registers a lease taken with a context that names its task.
func (n *named) add(ctx context.Context, l *Lease) {
	task := taskIn(ctx)
	if task == "" || l.mode == fence.Permit || l.h.parts != nil { // the parts are known themselves
		return
	}
	paths := l.h.locks()
	if l.path != "" {
		paths = []string{l.path}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range paths {
		k := taskPath{task, p}
		n.m[k] = append(n.m[k], l)
		l.tasks = append(l.tasks, k)
	}
}

// remove is called when the lease is unlocked or lost.
func (n *named) remove(l *Lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range l.tasks {
		n.m[k] = slices.DeleteFunc(n.m[k], func(x *Lease) bool { return x == l })
		if len(n.m[k]) == 0 {
			delete(n.m, k)
		}
	}
	l.tasks = nil
}

// check fails if the task of ctx holds path, so that a lock in mode would wait for it.
func (n *named) check(ctx context.Context, path string, mode fence.Mode) error {
	task := taskIn(ctx)
	if task == "" || mode == fence.Permit {
		return nil
	}
	n.mu.Lock()
	leases := slices.Clone(n.m[taskPath{task, path}])
	n.mu.Unlock()
	for _, l := range leases {
		if mode == fence.Exclusive || l.h.modeOf(path) == fence.Exclusive {
			return selfDeadlock(path, fmt.Sprintf("task %q holds it; lock with the lease's context to say so", task))
		}
	}
	return nil
}

// locks returns the paths of the locks of the hold.
func (h *hold) locks() []string {
	paths := []string{h.path}
	for _, n := range h.nodesNow() {
		if n.lock != "" && !slices.Contains(paths, n.lock) {
			paths = append(paths, n.lock)
		}
	}
	return paths
}

// modeOf returns the mode in which the hold has one of its locks.
func (h *hold) modeOf(path string) fence.Mode {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes {
		if n.lock == path && n.mode != 0 {
			return n.mode
		}
	}
	return h.mode
}

// taskIn returns the task of ctx, "" if ctx has no task.
func taskIn(ctx context.Context) string {
	task, _ := ctx.Value(taskKey{}).(string)
	return task
}

// taskOf returns the task of ctx, or a fresh one if ctx has no task.
func taskOf(ctx context.Context) string {
	if task := taskIn(ctx); task != "" {
		return task
	}
	return rand.Text()
}

// nested decides what an attempt gets if its context may already hold the path: a nested lease, an
// error, or nil, nil if the context does not hold it.
func nested(ctx context.Context, c *Client, a *attempt) (*Lease, error) {
	if a.mode == fence.Permit || a.alone {
		return nil, nil // more permits, or another candidacy, are another thing
	}
	path, mode := a.path, a.mode
	for {
		held := heldBy(ctx, c, path)
		if held == nil {
			return nil, c.named.check(ctx, path, mode)
		}
		if mode == fence.Exclusive && held.modeOf(path) == fence.Shared {
			return nil, selfDeadlock(path, "it holds a read lock; Upgrade turns that into a write lock")
		}
		if !a.cfg.reentrant {
			return nil, selfDeadlock(path, "WithReentrant allows this")
		}
		one := "" // unless the hold is of other locks, too
		if path != held.path || len(held.locks()) > 1 {
			one = path
		}
		l, err := held.addLease(ctx, one, mode)
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, ctxErr(ctx)
		}
		// Lost, or downgraded, at this moment: look again.
	}
}
