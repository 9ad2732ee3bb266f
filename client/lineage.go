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
		if h := l.lease.h; h.c == c && h.path == path && l.lease.active() {
			return l.lease
		}
	}
	return nil
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
func nested(ctx context.Context, c *Client, path string, mode fence.Mode, cfg *lockConfig) (*Lease, error) {
	held := heldBy(ctx, c, path)
	if held == nil {
		return nil, nil
	}
	if mode == fence.Exclusive && held.h.modeNow() == fence.Shared {
		return nil, selfDeadlock(path, "it holds a read lock; Upgrade turns that into a write lock")
	}
	if !cfg.reentrant {
		return nil, selfDeadlock(path, "WithReentrant allows this")
	}
	l, err := held.h.addLease(ctx, mode)
	if err != nil {
		return nil, nil // lost at this moment: compete anew
	}
	return l, nil
}
