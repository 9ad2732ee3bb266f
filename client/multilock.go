package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/take"
)

// Request names one lock of a set. The Request methods of the locks return it.
type Request struct {
	c    *Client
	path string
	mode fence.Mode
	cfg  *options
	take func(ctx context.Context, try bool, more ...Option) (*Lease, error)
}

// Request returns the lock as a member of a set.
func (m *Mutex) Request(opts ...Option) Request {
	cfg := m.cfg.with(opts)
	return Request{c: m.c, path: m.path, mode: fence.Exclusive, cfg: cfg,
		take: func(ctx context.Context, try bool, more ...Option) (*Lease, error) {
			return m.lock(ctx, try, slices.Concat(opts, more))
		}}
}

// Request returns the write lock ([fence.Exclusive]) or a read lock
// ([fence.Shared]) as a member of a set.
func (m *RWMutex) Request(mode fence.Mode, opts ...Option) Request {
	cfg := m.cfg.with(opts)
	return Request{c: m.c, path: m.path, mode: mode, cfg: cfg,
		take: func(ctx context.Context, try bool, more ...Option) (*Lease, error) {
			return m.lock(ctx, mode, try, slices.Concat(opts, more))
		}}
}

// Request returns n permits as a member of a set.
func (s *Semaphore) Request(n int, opts ...Option) Request {
	cfg := s.cfg.with(opts)
	return Request{c: s.c, path: s.path, mode: fence.Permit, cfg: cfg,
		take: func(ctx context.Context, try bool, more ...Option) (*Lease, error) {
			return s.acquire(ctx, n, try, slices.Concat(opts, more))
		}}
}

// All waits until all the locks are granted or ctx ends; if ctx ends first, the client holds none of them. It
// takes the locks one after another in the order of their paths, whatever the order of reqs. So sets never
// deadlock with each other, nor with clients that take single locks in the order of the paths. A client that
// takes them in another order can still deadlock with others; see [Inspector.WaitGraph]. If all locks have
// [WithWait], the longest wait limits the whole call.
//
// The time of [WithMaxHold] counts from the moment when all locks are granted. If several locks have such a
// limit, the shortest counts for the set.
//
// For a single lock, All does what a call of that lock does. Several locks have one lease. The lease is lost
// when one of its locks is lost. Each lock has a token of its own (see [Lease.Sequencers]); the set has no
// token.
func (c *Client) All(ctx context.Context, reqs ...Request) (*Lease, error) {
	return c.all(ctx, false, reqs)
}

// TryAll takes all the locks if none of them needs a wait, and otherwise takes none.
func (c *Client) TryAll(ctx context.Context, reqs ...Request) (*Lease, error) {
	return c.all(ctx, true, reqs)
}

// DoAll runs f while it holds all the locks; see [Client.All] and [Mutex.Do].
func (c *Client) DoAll(ctx context.Context, f func(context.Context, *Lease) error, reqs ...Request) error {
	l, err := c.All(ctx, reqs...)
	return l.do(ctx, err, f)
}

func (c *Client) all(ctx context.Context, try bool, reqs []Request) (*Lease, error) {
	if len(reqs) == 0 {
		return nil, fmt.Errorf("%w: no locks", ErrInvalid)
	}
	if len(reqs) == 1 && reqs[0].c == c {
		return reqs[0].take(ctx, try)
	}
	reqs = slices.Clone(reqs)
	slices.SortFunc(reqs, func(a, b Request) int { return cmp.Compare(a.path, b.path) })
	cfg := *reqs[0].cfg
	cfg.events = nil // each lock reports to its own functions
	for i, r := range reqs {
		if r.c != c {
			return nil, fmt.Errorf("%w: %s is a lock of another client", ErrInvalid, r.path)
		}
		if i > 0 && reqs[i-1].path == r.path {
			return nil, fmt.Errorf("%w: %s is named twice", ErrInvalid, r.path)
		}
		if err := r.cfg.check(r.path); err != nil {
			return nil, err
		}
		if err := c.take.Alone(ctx, r.path, r.mode); err != nil {
			return nil, err
		}
		if d := r.cfg.MaxHold; d > 0 && (cfg.MaxHold == 0 || d < cfg.MaxHold) {
			cfg.MaxHold, cfg.Grace = d, r.cfg.Grace
		}
		cfg.WaitSet, cfg.Wait = cfg.WaitSet && r.cfg.WaitSet, max(cfg.Wait, r.cfg.Wait)
	}
	if !cfg.WaitSet {
		cfg.Wait = 0 // one lock without a limit makes the wait for the whole set unlimited
	}
	first := reqs[0]
	ask, err := c.ask(first.path, &cfg, first.mode, try)
	if err != nil {
		return nil, err
	}
	members := make([]take.Member, len(reqs))
	for i, r := range reqs {
		members[i] = func(ctx context.Context, try bool) (*hold.Lease, error) {
			l, err := r.take(ctx, try, WithMaxHold(0, 0)) // the set keeps the limit
			return (*hold.Lease)(l), err
		}
	}
	l, err := c.take.Each(ctx, ask, members)
	return (*Lease)(l), err
}
