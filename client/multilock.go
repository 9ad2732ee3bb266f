package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
)

// Request names one lock of a set; Request methods of the locks make it.
type Request struct {
	c    *Client
	path string
	mode fence.Mode
	cfg  *lockConfig
	q    queue
	// alone takes the lock by itself, where one transaction for all cannot.
	alone func(ctx context.Context, try bool) (*Lease, error)
}

// Request returns the lock as a member of a set.
func (m *Mutex) Request(opts ...AcquireOption) Request {
	cfg := m.cfg.with(opts)
	return Request{c: m.c, path: m.path, mode: fence.Exclusive, cfg: cfg, q: queue{recipe.Rule{Layout: cfg.layout, Kind: recipe.RoleLock}},
		alone: func(ctx context.Context, try bool) (*Lease, error) { return m.lock(ctx, try, opts) }}
}

// Request returns the write lock ([fence.Exclusive]) or a read lock
// ([fence.Shared]) as a member of a set.
func (m *RWMutex) Request(mode fence.Mode, opts ...AcquireOption) Request {
	cfg := m.cfg.with(opts)
	return Request{c: m.c, path: m.path, mode: mode, cfg: cfg, q: rwQueue(cfg.layout, mode),
		alone: func(ctx context.Context, try bool) (*Lease, error) {
			return m.lock(ctx, mode, try, opts)
		}}
}

// Request returns n permits as a member of a set.
func (s *Semaphore) Request(n int, opts ...AcquireOption) Request {
	cfg := s.cfg.with(opts)
	return Request{c: s.c, path: s.path, mode: fence.Permit, cfg: cfg,
		alone: func(ctx context.Context, try bool) (*Lease, error) {
			return s.acquire(ctx, n, try, opts)
		}}
}

// AcquireAll waits until all the locks are granted, or ctx ends and none is. They
// are taken one after another in the order of their paths, whatever the order in
// which they are named. So sets never deadlock with each other, nor with those who
// take single locks in the order of the paths. Who takes them in another order can
// still deadlock with others; see [Client.WaitGraph]. [WithAtomicSet] queues for
// all the locks in one step instead.
//
// The lease is one: it is lost when one of its locks is lost. Each lock has a
// token of its own, see [Lease.Sequencers]; [Lease.Token] is that of the first path.
func (c *Client) AcquireAll(ctx context.Context, reqs ...Request) (*Lease, error) {
	return c.acquireAll(ctx, false, reqs)
}

// TryAcquireAll takes all the locks if none needs waiting, and none otherwise, in
// one transaction where the locks allow it.
func (c *Client) TryAcquireAll(ctx context.Context, reqs ...Request) (*Lease, error) {
	return c.acquireAll(ctx, true, reqs)
}

func (c *Client) acquireAll(ctx context.Context, try bool, reqs []Request) (*Lease, error) {
	if len(reqs) == 0 {
		return nil, fmt.Errorf("%w: no locks", ErrInvalid)
	}
	reqs = slices.Clone(reqs)
	slices.SortFunc(reqs, func(a, b Request) int { return cmp.Compare(a.path, b.path) })
	// Who never waits for one lock while holding another cannot deadlock.
	wanted, possible := try, true
	dirs := make([]string, len(reqs))
	for i, r := range reqs {
		dirs[i] = r.path
		if r.c != c {
			return nil, fmt.Errorf("%w: %s is a lock of another client", ErrInvalid, r.path)
		}
		if i > 0 && reqs[i-1].path == r.path {
			return nil, fmt.Errorf("%w: %s", ErrDuplicatePath, r.path)
		}
		if err := r.cfg.check(r.path); err != nil {
			return nil, err
		}
		if heldBy(ctx, c, r.path) != nil {
			return nil, selfDeadlock(r.path, "a set cannot be nested")
		}
		if err := c.named.check(ctx, r.path, r.mode); err != nil {
			return nil, err
		}
		wanted = wanted || r.cfg.atomicSet
		possible = possible && r.mode != fence.Permit && !r.cfg.policySet && r.cfg.lockDelay == 0
	}
	a := &attempt{path: reqs[0].path, dir: reqs[0].path, mode: reqs[0].mode, try: try, cfg: reqs[0].cfg, alone: true, dirs: dirs}
	if wanted && possible {
		return c.acquire(ctx, a, nil, func(ctx context.Context, e *epoch, a *attempt) (*hold, error) {
			return c.competeAll(ctx, e, a, reqs)
		})
	}
	a.dirs = []string{} // those of its parts
	return c.acquire(ctx, a, nil, func(ctx context.Context, _ *epoch, a *attempt) (*hold, error) {
		return takeEach(ctx, a, reqs)
	})
}

// competeAll takes places in all queues at once. They all have one zxid, so any
// two sets are in the same order in every queue they share.
func (c *Client) competeAll(ctx context.Context, e *epoch, a *attempt, reqs []Request) (*hold, error) {
	members := make([]*attempt, len(reqs))
	nodes := make([]newNode, len(reqs))
	for i, r := range reqs {
		m := *a
		m.path, m.dir, m.mode, m.cfg = r.path, r.path, r.mode, r.cfg
		members[i] = &m
		if a.try {
			if err := r.q.precheck(ctx, e, &m); err != nil {
				return nil, err
			}
		}
		nodes[i] = r.q.node(e, &m)
	}
	made, err := c.protectedCreate(ctx, e, nodes...)
	if err != nil {
		return nil, err
	}
	a.enqueued(made[0])
	waiters := make([]*waiter, len(made))
	held := make([]heldNode, len(made))
	for i, m := range made {
		waiters[i] = newWaiter(e, members[i], reqs[i].q, m)
		held[i] = heldNode{path: m.path, id: m.id, lock: reqs[i].path, mode: reqs[i].mode}
	}
	if err := waitAll(ctx, e, waiters, held); err != nil {
		gone := c.reap(e, pathsOf(held)...)
		if errors.Is(err, ErrNotAcquired) {
			awaitGone(ctx, gone)
		}
		return nil, err
	}
	return newHold(a, e, a.mode, fence.Token(made[0].stat.Czxid), held...), nil
}

// waitAll waits in one queue after the other. Having been first in one, a
// contender stays first while its node lives.
func waitAll(ctx context.Context, e *epoch, waiters []*waiter, held []heldNode) error {
	for _, w := range waiters {
		part, err := w.wait(ctx, nil)
		if err != nil {
			return err
		}
		part.endLife()
	}
	for i, w := range waiters {
		if err := w.watchOwn(ctx); err != nil {
			return err
		}
		held[i].w = w.ownW
	}
	if !e.valid() {
		return &requeueError{ErrSessionExpired}
	}
	return nil
}

// takeEach takes one lock after another, in the order of their paths.
func takeEach(ctx context.Context, a *attempt, reqs []Request) (*hold, error) {
	var parts []*Lease
	// The releases are sent, so that what this client asks next does not find the
	// locks, but not waited for.
	giveBack := func() {
		ended, end := context.WithCancel(context.Background())
		end()
		for _, l := range parts {
			_ = l.Unlock(ended)
		}
	}
	for _, r := range reqs {
		l, err := r.alone(ctx, a.try)
		if err != nil {
			giveBack()
			return nil, err
		}
		parts = append(parts, l)
	}
	first := parts[0]
	var nodes []heldNode
	for _, l := range parts {
		if l.h.e != first.h.e || !l.Valid() {
			// One was lost while others were waited for.
			giveBack()
			return nil, &requeueError{lostOnTheWay(l.Err())}
		}
		for _, n := range l.h.nodesNow() {
			n.lock, n.mode = l.h.path, l.Mode()
			nodes = append(nodes, n)
		}
	}
	h := newHold(a, first.h.e, a.mode, first.Token(), nodes...)
	h.parts = parts
	return h, nil
}

// lostOnTheWay is what the loss of a lock means to an attempt that goes on for others.
func lostOnTheWay(loss error) error {
	var lost *LostError
	if !errors.As(loss, &lost) {
		return ErrSessionExpired // its node went with the session of another part
	}
	switch lost.Reason {
	case Removed, Broken:
		return fmt.Errorf("%w: %s", ErrNodeRemoved, lost.Node)
	case Revoked, MaxHold:
		return lost
	}
	return ErrSessionExpired
}

// unlockEach gives all back at the same time, and returns the first error.
func unlockEach(ctx context.Context, parts []*Lease) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, l := range parts {
		wg.Go(func() { errs[i] = l.Unlock(ctx) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}
