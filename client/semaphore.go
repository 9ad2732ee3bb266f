package client

import (
	"context"
	"fmt"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/internal/take"
)

// Semaphore has a limited number of permits, and serves its waiters in the order of arrival.
//
// The number of permits is stored at the path. A program's number is used only if none is stored yet;
// otherwise the stored number counts. The tokens of permits identify holds, but do not order them. So check
// them with [Client.CheckSequencer]; a higher token is not newer.
type Semaphore struct {
	c       *Client
	path    string
	cfg     *options
	permits *take.Permits
}

// Semaphore returns the semaphore on path. If the path stores a number of permits, that number counts.
// Otherwise the first use stores the argument `permits` as that number; if `permits` is 0, a number must
// already be stored. With [LayoutKazoo] the client refuses a number that differs from the stored number, as
// kazoo does. Semaphore sends no request; only its methods do.
func (c *Client) Semaphore(path string, permits int, opts ...Option) *Semaphore {
	cfg := c.locks.with(opts)
	return &Semaphore{c: c, path: path, cfg: cfg,
		permits: c.take.Permits(path, permits, &cfg.Terms, c.teller(path, cfg))}
}

// Acquire waits until n permits are granted or ctx ends. The lease stands for all n permits.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, n, false, opts)
}

// TryAcquire takes n permits if n permits are free and no other contender waits for permits, and otherwise
// returns ErrNotAcquired.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, n, true, opts)
}

func (s *Semaphore) acquire(ctx context.Context, n int, try bool, opts []Option) (*Lease, error) {
	if err := s.permits.Check(n); err != nil {
		return nil, err
	}
	cfg := s.cfg.with(opts)
	if cfg.Layout != s.cfg.Layout {
		return nil, hold.ErrorAt(s.path,
			fmt.Errorf("%w: give the layout to the semaphore, not to a call", ErrInvalid))
	}
	ask, err := s.c.ask(s.path, cfg, fence.Permit, try)
	if err != nil {
		return nil, err
	}
	l, err := s.permits.Take(ctx, ask, n)
	return (*Lease)(l), err
}

// Do runs f while it holds n permits; see [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, n int, f func(context.Context, *Lease) error,
	opts ...Option) error {
	l, err := s.Acquire(ctx, n, opts...)
	return l.do(ctx, err, f)
}

// Path returns the path of the semaphore.
func (s *Semaphore) Path() string { return s.path }

// SetPermits changes the number of permits. It fails if the path has another kind of lock. Waiters take the
// new number into account. If the number is lower than before, no holder loses a permit: the number in use
// shrinks as holders give permits back.
func (s *Semaphore) SetPermits(ctx context.Context, permits int) error {
	if err := s.permits.Check(permits); err != nil {
		return err
	}
	err := s.c.steadily(ctx, s.path, func(e *session.Epoch) error { return s.permits.Store(ctx, e, permits) })
	if err == nil {
		s.permits.Stored(permits)
	}
	return err
}
