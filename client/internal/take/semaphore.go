package take

import (
	"context"
	"fmt"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
)

// Permits returns the semaphore at path. If the path stores no number of permits yet, the client stores
// `wish` as that number. If `wish` is 0, the path must store a number already.
func (c *Client) Permits(path string, wish int, terms *Terms, tell func(hold.Event)) *Permits {
	s := &Permits{c: c, path: path, terms: terms, tell: tell, d: semLayoutOf(terms.Layout, path)}
	s.wish.Store(int64(wish))
	return s
}

// Take waits until n permits are granted.
func (s *Permits) Take(ctx context.Context, ask Ask, n int) (*hold.Lease, error) {
	ask.Path, ask.Mode = s.path, fence.Permit
	a := &attempt{Ask: ask, dir: s.d.lock, dirs: []string{s.d.lock, s.d.leases}}
	return s.c.acquire(ctx, a, func(ctx context.Context, e *session.Epoch, a *attempt) (*hold.Grant, error) {
		return s.compete(ctx, e, a, n)
	})
}

// Check refuses a layout that has no semaphores, and an impossible number of permits.
func (s *Permits) Check(n int) error {
	switch {
	case s.terms.Layout != recipe.LayoutCurator && s.terms.Layout != recipe.LayoutKazoo:
		err := fmt.Errorf("%w: a semaphore cannot have the layout %v", hold.ErrUnsupported, s.terms.Layout)
		return hold.ErrorAt(s.path, err)
	case n < 1:
		err := fmt.Errorf("%w: the number of permits must be at least 1, not %d", recipe.ErrInvalid, n)
		return hold.ErrorAt(s.path, err)
	case s.wish.Load() < 0:
		err := fmt.Errorf("%w: a semaphore cannot have %d permits", recipe.ErrInvalid, s.wish.Load())
		return hold.ErrorAt(s.path, err)
	}
	return nil
}

// compete() queues for the semaphore's internal lock. The holder of that lock is the head of the queue: it
// waits for permits, and then gives the lock back. Only the head waits for permits, so a release wakes one
// contender. Before compete() makes a node, it checks that the path is free or belongs to a semaphore.
func (s *Permits) compete(ctx context.Context, e *session.Epoch, a *attempt, n int) (*hold.Grant, error) {
	if a.Try && s.terms.Layout == recipe.LayoutCurator {
		g, err := contend(ctx, &permitTry{permitting: permitting{s: s, e: e, a: a, n: n}})
		return g, lostPlace(err)
	}
	look := func() error {
		sight, err := s.look(ctx, e)
		if err == nil && a.Try {
			_, err = s.free(ctx, e, a, sight.limit, n)
		}
		return err
	}
	var err error
	if a.Try {
		err = tryLook(ctx, e, s.path, look)
	} else {
		err = look()
	}
	if err != nil {
		return nil, err
	}
	// The lock of the semaphore's queue has only those options of the call that describe its owner.
	head, cfg := *a, *a.Terms
	cfg.LockDelay, cfg.MaxHold, cfg.Linger = 0, 0, false
	head.leave, head.Terms, head.permits = func() {}, &cfg, true
	turn, err := s.d.q.run(ctx, e, &head)
	if err != nil {
		return nil, err
	}
	g, err := contend(ctx, newPermitHead(s, a, turn, n))
	// Release the lock of the queue at once. Otherwise the client's next request, for example a TryAcquire,
	// could find it held.
	s.c.GiveBack(turn)
	if err == nil {
		a.leave() // the permits are granted, and only the queue needs the turn in this process
	}
	return g, lostPlace(err)
}
