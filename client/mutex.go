package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
)

// Mutex is an exclusive lock on a path, fair among the clients that wait for it.
// It holds no state: every successful Lock returns a lease of its own, and two
// goroutines that lock the same Mutex exclude each other.
type Mutex struct {
	c    *Client
	path string
	cfg  *options
}

// Mutex returns the exclusive lock on path. Nothing is sent before it is used.
func (c *Client) Mutex(path string, opts ...Option) *Mutex {
	return &Mutex{c: c, path: path, cfg: c.locks.with(opts)}
}

// Lock waits until the lock is granted or ctx ends. The end of ctx after that does not end the
// lease.
func (m *Mutex) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, false, opts)
}

// TryLock takes the lock if it is free, and returns ErrNotAcquired otherwise. It does not wait for
// other clients, but for the server.
func (m *Mutex) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, true, opts)
}

func (m *Mutex) lock(ctx context.Context, try bool, opts []Option) (*Lease, error) {
	cfg := m.cfg.with(opts)
	a := &attempt{path: m.path, dir: m.path, mode: fence.Exclusive, try: try, cfg: cfg}
	return m.c.acquire(ctx, a, queue{recipe.Rule{Layout: cfg.layout, Kind: recipe.RoleLock}}.run)
}

// Do runs f while it holds the lock, with the lease's context. If the lock was lost, errors.Is(err,
// ErrLost) holds for the error of Do, whatever f returned; an error of f is kept beside it. f's
// context also ends with ctx; [WithWait] limits only the wait. A panic in f releases the lock.
func (m *Mutex) Do(ctx context.Context, f func(context.Context, *Lease) error, opts ...Option) error {
	l, err := m.Lock(ctx, opts...)
	return l.do(ctx, err, f)
}

// do runs f, if the lease was given, and unlocks in any case.
func (l *Lease) do(ctx context.Context, refused error, f func(context.Context, *Lease) error) (err error) {
	if refused != nil {
		return refused
	}
	done := false
	defer func() {
		if !done { // f panics or ends the goroutine
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), panicPatience)
			defer cancel()
			_ = l.Unlock(bounded)
		}
	}()
	work, end := context.WithCancelCause(Task(l.mark(ctx), taskOf(l.ctx)))
	defer end(nil)
	defer context.AfterFunc(l.ctx, func() { end(context.Cause(l.ctx)) })()
	err = f(work, l)
	done = true
	unlock := l.Unlock(ctx)
	switch {
	case errors.Is(unlock, ErrReleasePending):
		return err
	case errors.Is(unlock, ErrNotHeld): // f unlocked; after a loss that is still a loss
		if unlock = l.Err(); errors.Is(unlock, ErrNotHeld) {
			return err
		}
	}
	switch {
	case err == nil:
		return unlock
	case unlock == nil, errors.Is(err, ErrLost):
		return err
	}
	return errorAt(l.h.path, fmt.Errorf("%w: %w", unlock, err))
}

// panicPatience bounds how long a panic waits for the lock to be released; after
// that the release goes on in the background.
const panicPatience = 2 * time.Second

// Path returns the path of the lock.
func (m *Mutex) Path() string { return m.path }

// RWMutex is a read-write lock on a path: many readers or one writer. It is fair, unless
// [WithPolicy] says otherwise: a reader waits for the writers before it, a writer for all
// contenders before it.
//
// A held write lock can be downgraded. An upgrade needs [WithPolicy], because other programs could
// not understand it.
type RWMutex struct {
	c    *Client
	path string
	cfg  *options
}

// RWMutex returns the read-write lock on path. Nothing is sent before it is used.
func (c *Client) RWMutex(path string, opts ...Option) *RWMutex {
	return &RWMutex{c: c, path: path, cfg: c.locks.with(opts)}
}

// Lock waits until the write lock is granted or ctx ends.
func (m *RWMutex) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, fence.Exclusive, false, opts)
}

// TryLock takes the write lock if no other contender holds the lock or waits for it, and returns
// ErrNotAcquired otherwise.
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
	a := &attempt{path: m.path, dir: m.path, mode: mode, rw: true, try: try, cfg: cfg}
	if cfg.policySet {
		return m.c.acquire(ctx, a, policyAcquire)
	}
	kind := recipe.RoleWrite
	if mode == fence.Shared {
		kind = recipe.RoleRead
	}
	return m.c.acquire(ctx, a, queue{recipe.Rule{Layout: cfg.layout, Kind: kind, RW: true}}.run)
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
