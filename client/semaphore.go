package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Semaphore has a limited number of permits, and serves its waiters in the order of arrival.
//
// The number of permits is stored at the path. A program's number is used only if none is stored yet;
// otherwise the stored number counts. The tokens of permits identify holds but do not order them: check them
// with [Client.CheckSequencer], not by "highest wins".
type Semaphore struct {
	c    *Client
	path string
	cfg  *options
	wish atomic.Int64 // the number given
	d    semLayout
	told sync.Once // reports once that another number is stored
}

// semLayout says where the parts of a semaphore are.
type semLayout struct {
	lock, leases string // directories
	q            queue
	leaseName    func(id recipe.ID, slot int) string
	numbered     bool    // the permits have numbers
	mode         zk.Mode // of the permits
	use          recipe.Use
}

// Semaphore returns the semaphore on path. The number of permits that is stored there counts. If none is
// stored, the first use stores permits; 0 means that a number must be stored. With [LayoutKazoo] the client
// refuses a number that differs from the stored one, as kazoo does. Nothing is sent before the semaphore is
// used.
func (c *Client) Semaphore(path string, permits int, opts ...Option) *Semaphore {
	cfg := c.locks.with(opts)
	s := &Semaphore{c: c, path: path, cfg: cfg, d: semLayoutOf(cfg.layout, path)}
	s.wish.Store(int64(permits))
	return s
}

func semLayoutOf(l Layout, path string) semLayout {
	if l == LayoutKazoo {
		return semLayout{lock: path + "-__lock__", leases: path,
			q: queue{recipe.Rule{Layout: l, Kind: recipe.RoleLock}}, mode: zk.Ephemeral,
			use:       recipe.UseBarePermits,
			leaseName: func(id recipe.ID, _ int) string { return id.Hex() }}
	}
	return semLayout{
		lock: recipe.Join(path, "locks"), leases: recipe.Join(path, recipe.PermitsName),
		q: queue{recipe.Rule{Layout: l, Kind: recipe.RoleLock}}, mode: zk.EphemeralSequential,
		use:      recipe.UsePermits,
		numbered: true, leaseName: recipe.PermitName,
	}
}

// Acquire waits until n permits are granted or ctx ends. The lease stands for all n permits.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, n, false, opts)
}

// TryAcquire takes n permits if so many are free and no other contender waits for permits, and returns
// ErrNotAcquired otherwise.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, n, true, opts)
}

func (s *Semaphore) acquire(ctx context.Context, n int, try bool, opts []Option) (*Lease, error) {
	if err := s.check(n); err != nil {
		return nil, err
	}
	cfg := s.cfg.with(opts)
	if cfg.layout != s.cfg.layout {
		return nil, errorAt(s.path, fmt.Errorf("%w: a semaphore's layout is not that of a call", ErrInvalid))
	}
	dirs := []string{s.d.lock, s.d.leases}
	a := &attempt{path: s.path, dir: s.d.lock, dirs: dirs, mode: fence.Permit, try: try, cfg: cfg}
	return s.c.acquire(ctx, a, func(ctx context.Context, e *session.Epoch, a *attempt) (*hold, error) {
		return s.compete(ctx, e, a, n)
	})
}

func (s *Semaphore) check(n int) error {
	switch {
	case s.cfg.layout != LayoutCurator && s.cfg.layout != LayoutKazoo:
		return errorAt(s.path, fmt.Errorf("%w: semaphores have no layout %v", ErrUnsupported, s.cfg.layout))
	case n < 1 || s.wish.Load() < 0:
		return errorAt(s.path, fmt.Errorf("%w: %d permits of %d", ErrInvalid, n, s.wish.Load()))
	}
	return nil
}

// Do runs f while it holds n permits; see [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, n int, f func(context.Context, *Lease) error,
	opts ...Option) error {
	l, err := s.Acquire(ctx, n, opts...)
	return l.do(ctx, err, f)
}

// Path returns the path of the semaphore.
func (s *Semaphore) Path() string { return s.path }

// compete takes the lock at the head of the queue, waits there for permits, and gives the lock
// back. Only the head waits for permits, so a release wakes one contender. Before it makes a node it
// looks whether the path is free or a semaphore's.
func (s *Semaphore) compete(ctx context.Context, e *session.Epoch, a *attempt, n int) (*hold, error) {
	if a.try && s.cfg.layout == LayoutCurator {
		h, err := contend(ctx, &permitTry{permitting: permitting{s: s, e: e, a: a, n: n}})
		return h, lostPlace(err)
	}
	look := func() error {
		sight, err := s.look(ctx, e)
		if err == nil && a.try {
			_, err = s.free(ctx, e, a, sight.limit, n)
		}
		return err
	}
	var err error
	if a.try {
		err = tryLook(ctx, e, s.path, look)
	} else {
		err = look()
	}
	if err != nil {
		return nil, err
	}
	head, cfg := *a, *a.cfg // of the lock at the head of the queue: only what describes its owner applies
	cfg.lockDelay, cfg.maxHold, cfg.linger = 0, 0, false
	head.leave, head.cfg, head.permits = func() {}, &cfg, true
	ih, err := s.d.q.run(ctx, e, &head)
	if err != nil {
		return nil, err
	}
	h, err := contend(ctx, newPermitHead(s, a, ih, n))
	// No caller knows of the lock at the head, so the client's next request, especially a try, must not find
	// it.
	_ = ih.release(ctx, true)
	if err == nil {
		a.leave() // the local queue is only for the lock at the head
	}
	return h, lostPlace(err)
}

// free returns the permits in use, and ErrNotAcquired if n others are not free.
func (s *Semaphore) free(ctx context.Context, e *session.Epoch, a *attempt, limit, n int) (
	used []string, err error) {
	used, err = e.Children(ctx, s.d.leases)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	do, err := recipe.DecidePermits(limit, len(used), n)
	if err == nil && do == recipe.Wait {
		a.waitsForPermits("", s.d.leases, used)
		err = ErrNotAcquired
	}
	return used, err
}
