package client

import (
	"context"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
)

// Mutex is an exclusive lock on a path, fair among the clients that wait for it. A Mutex has no state: every
// successful Lock returns a new lease, and two goroutines that lock the same Mutex exclude each other.
type Mutex struct {
	c    *Client
	path string
	cfg  *options
}

// Mutex returns the exclusive lock on path. It sends no request; only the methods of the Mutex do.
func (c *Client) Mutex(path string, opts ...Option) *Mutex {
	return &Mutex{c: c, path: path, cfg: c.locks.with(opts)}
}

// Lock waits until the lock is granted or ctx ends. If ctx ends later, that does not end the lease.
func (m *Mutex) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, false, opts)
}

// TryLock takes the lock if it is free, and otherwise returns ErrNotAcquired. It waits for the server, but
// not for other clients.
func (m *Mutex) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, true, opts)
}

func (m *Mutex) lock(ctx context.Context, try bool, opts []Option) (*Lease, error) {
	cfg := m.cfg.with(opts)
	ask, err := m.c.ask(m.path, cfg, fence.Exclusive, try)
	if err != nil {
		return nil, err
	}
	l, err := m.c.take.InQueue(ctx, ask, turns.Rule{Layout: cfg.Layout, Kind: recipe.RoleLock})
	return (*Lease)(l), err
}

// Do runs f, with the lease's context, while it holds the lock. If the lock was lost, errors.Is(err, ErrLost)
// is true for the error of Do, whatever f returned; Do's error also contains the error of f. The context of f
// also ends with ctx; [WithWait] limits only the wait. A panic in f releases the lock.
func (m *Mutex) Do(ctx context.Context, f func(context.Context, *Lease) error, opts ...Option) error {
	l, err := m.Lock(ctx, opts...)
	return l.do(ctx, err, f)
}

// Path returns the path of the lock.
func (m *Mutex) Path() string { return m.path }

// Lease is the right to act that a lock gives. It lasts until it is unlocked or lost. A lease belongs to one
// grant and never becomes valid again. It is safe for concurrent use.
type Lease hold.Lease

func (l *Lease) hold() *hold.Lease { return (*hold.Lease)(l) }

// Unlock gives the lock back, and returns nil when that is done. It returns an error that is ErrLost if the
// lease was lost before; another holder may have been active since. It returns ErrReleasePending if ctx ended
// first; the release continues in the background. It returns ErrNotHeld if the lease was already unlocked.
//
// Whatever Unlock returns, the program may begin its next attempt at once; the attempt waits until the lock
// is released.
func (l *Lease) Unlock(ctx context.Context) error { return l.hold().Unlock(ctx) }

// Release is like Unlock, but does not wait for the server: it returns as soon as the request is on its way.
// This saves a round trip and a write of the server for programs that take locks in quick succession. While
// the session lives, the lock is released as certainly as by Unlock. But a client that asks immediately after
// Release may still find the lock held. Release also does not report whether another client removed the node
// just before. A program that uses Release must close the client before it exits.
func (l *Lease) Release() error { return l.hold().Release() }
