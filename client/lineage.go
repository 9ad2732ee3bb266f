package client

import (
	"context"
	"crypto/rand"

	"github.com/zlockd/zlockd/client/fence"
)

// lineage is what a lease's context tells of the leases it is nested in.
// Goroutines have no identity, so the context is what can hold a lock twice.
type lineage struct {
	lease  *Lease
	parent *lineage
}

type lineageKey struct{}

func lineageOf(ctx context.Context) *lineage {
	l, _ := ctx.Value(lineageKey{}).(*lineage)
	return l
}

// heldBy returns the lease of path that ctx holds.
func heldBy(ctx context.Context, c *Client, path string) *Lease {
	for l := lineageOf(ctx); l != nil; l = l.parent {
		if h := l.lease.h; h.c == c && h.covers(path) && l.lease.active() {
			return l.lease
		}
	}
	return nil
}

// covers reports whether the hold is of path.
func (h *hold) covers(path string) bool {
	if h.path == path {
		return true
	}
	for _, n := range h.nodesNow() {
		if n.lock == path {
			return true
		}
	}
	return false
}

// taskOf returns the task ctx belongs to, a fresh one if it has none.
func taskOf(ctx context.Context) string {
	if t, ok := ctx.Value(taskKey{}).(string); ok && t != "" {
		return t
	}
	return rand.Text()
}

// nested decides what a context that may hold the path already gets: a nested
// lease, an error, or nil, nil if it holds nothing.
func nested(ctx context.Context, c *Client, a *attempt) (*Lease, error) {
	if a.mode == fence.Permit || a.alone {
		return nil, nil // more permits, or another candidacy, are another thing
	}
	path, mode := a.path, a.mode
	held := heldBy(ctx, c, path)
	if held == nil {
		return nil, nil
	}
	if mode == fence.Exclusive && held.h.modeNow() == fence.Shared {
		return nil, selfDeadlock(path, "it holds a read lock; Upgrade turns that into a write lock")
	}
	if !a.cfg.reentrant {
		return nil, selfDeadlock(path, "WithReentrant allows this")
	}
	l, err := held.h.addLease(ctx, mode)
	if err != nil {
		return nil, nil // lost at this moment: compete anew
	}
	return l, nil
}
