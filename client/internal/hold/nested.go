package hold

import (
	"context"

	"github.com/zlockd/zlockd/client/fence"
)

// heldBy returns the hold of path to which a lease of ctx belongs. Permits do not exclude each other, so a
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

// Alone returns an error if the context, or its task, holds the path, so that a set with the path would wait
// for itself.
func (s *Shared) Alone(ctx context.Context, path string, mode fence.Mode) error {
	if s.heldBy(ctx, path) != nil {
		return selfDeadlock(path, "a set cannot be nested")
	}
	return s.named.check(ctx, path, mode)
}
