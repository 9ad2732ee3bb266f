package client

import (
	"context"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
)

// RWMutex is a read-write lock on a path: many readers or one writer. It is fair, unless [WithPolicy] says
// otherwise: a reader waits for the writers before it, and a writer waits for all contenders before it.
//
// A held write lock can be downgraded. An upgrade needs [WithPolicy], because other programs could not
// understand it.
type RWMutex struct {
	c    *Client
	path string
	cfg  *options
}

// RWMutex returns the read-write lock on path. It sends no request; only the methods of the RWMutex do.
func (c *Client) RWMutex(path string, opts ...Option) *RWMutex {
	return &RWMutex{c: c, path: path, cfg: c.locks.with(opts)}
}

// Lock waits until the write lock is granted or ctx ends.
func (m *RWMutex) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, fence.Exclusive, false, opts)
}

// TryLock takes the write lock if no other contender holds the lock or waits for it, and otherwise returns
// ErrNotAcquired.
func (m *RWMutex) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, fence.Exclusive, true, opts)
}

// RLock waits until a read lock is granted or ctx ends.
func (m *RWMutex) RLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, fence.Shared, false, opts)
}

// TryRLock takes a read lock if it need not wait for others, and returns ErrNotAcquired otherwise.
func (m *RWMutex) TryRLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, fence.Shared, true, opts)
}

func (m *RWMutex) lock(ctx context.Context, mode fence.Mode, try bool, opts []Option) (*Lease, error) {
	cfg := m.cfg.with(opts)
	ask, err := m.c.ask(m.path, cfg, mode, try)
	if err != nil {
		return nil, err
	}
	ask.RW = true
	if cfg.PolicySet {
		l, err := m.c.take.UnderPolicy(ctx, ask)
		return (*Lease)(l), err
	}
	kind := recipe.RoleWrite
	if mode == fence.Shared {
		kind = recipe.RoleRead
	}
	l, err := m.c.take.InQueue(ctx, ask, turns.Rule{Layout: cfg.Layout, Kind: kind, RW: true})
	return (*Lease)(l), err
}

// Do runs f while it holds the write lock; see [Mutex.Do].
func (m *RWMutex) Do(ctx context.Context, f func(context.Context, *Lease) error, opts ...Option) error {
	l, err := m.Lock(ctx, opts...)
	return l.do(ctx, err, f)
}

// RDo runs f while it holds a read lock; see [Mutex.Do].
func (m *RWMutex) RDo(ctx context.Context, f func(context.Context, *Lease) error, opts ...Option) error {
	l, err := m.RLock(ctx, opts...)
	return l.do(ctx, err, f)
}

// Path returns the path of the lock.
func (m *RWMutex) Path() string { return m.path }
