package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
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

// All waits until all the locks are granted or ctx ends; if ctx ends, the client holds none
// of them. It takes the locks one after another in the order of their paths, whatever the order of
// reqs. So sets never deadlock with each other, nor with clients that take single locks in the
// order of the paths. A client that takes them in another order can still deadlock with others; see
// [Inspector.WaitGraph]. If all locks have [WithWait], the longest wait limits the whole call.
//
// A limit counts from the moment when all are granted; of several the shortest counts for the set.
//
// A set of one lock is that lock. A larger set has one lease, which is lost when one of its locks is
// lost. Each lock has a token of its own, see [Lease.Sequencers]; the set has none.
func (c *Client) All(ctx context.Context, reqs ...Request) (*Lease, error) {
	return c.all(ctx, false, reqs)
}

// TryAll takes all the locks if it need not wait for any of them, and none otherwise.
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
	cfg.events = nil // the functions of each lock hear of that lock
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
		if heldBy(ctx, c, r.path) != nil {
			return nil, selfDeadlock(r.path, "a set cannot be nested")
		}
		if err := c.named.check(ctx, r.path, r.mode); err != nil {
			return nil, err
		}
		if d := r.cfg.maxHold; d > 0 && (cfg.maxHold == 0 || d < cfg.maxHold) {
			cfg.maxHold, cfg.grace = d, r.cfg.grace
		}
		cfg.waitSet, cfg.wait = cfg.waitSet && r.cfg.waitSet, max(cfg.wait, r.cfg.wait)
	}
	if !cfg.waitSet {
		cfg.wait = 0 // one lock without a limit makes the wait for the set unlimited
	}
	first := reqs[0]
	// Its parts make the nodes.
	a := &attempt{path: first.path, dir: first.path, mode: first.mode, try: try, cfg: &cfg, alone: true,
		dirs: []string{}}
	return c.acquire(ctx, a, func(ctx context.Context, _ *session.Epoch, a *attempt) (*hold, error) {
		return takeEach(ctx, a, reqs)
	})
}

// takeEach takes one lock after another, in the order of their paths.
func takeEach(ctx context.Context, a *attempt, reqs []Request) (*hold, error) {
	var parts []*Lease
	// Send the releases, so that the client's next request does not find the locks, but do not wait
	// for them.
	giveBack := func() {
		ended, end := context.WithCancel(context.Background())
		end()
		for _, l := range parts {
			_ = l.Unlock(ended)
		}
	}
	for _, r := range reqs {
		l, err := r.take(ctx, a.try, WithMaxHold(0, 0)) // the set keeps the limit
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
			return nil, lostOnTheWay(l.Err())
		}
		for _, n := range l.h.nodesNow() {
			n.lock = l.h.path
			nodes = append(nodes, n)
		}
	}
	h := newHold(a, first.h.e, a.mode, 0, nodes...)
	h.parts = parts
	return h, nil
}

// lostOnTheWay returns the error of an attempt that lost one lock while it waited for others.
func lostOnTheWay(loss error) error {
	lost, ok := errors.AsType[*LostError](loss)
	switch {
	case !ok: // its node went with the session
	case lost.Reason == Revoked:
		return lost // the set leaves, as a waiter does
	case lost.Reason == Removed:
		return &requeueError{fmt.Errorf("%w: %s", ErrNodeRemoved, lost.Node)}
	}
	return &requeueError{ErrSessionExpired}
}
