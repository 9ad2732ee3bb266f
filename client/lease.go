package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Context returns the context for the work under the lock. It ends when the lease is unlocked or lost, or
// when a lease around it ends; after a loss context.Cause is the *LostError. It has the values of the context
// with which the lock was taken, but does not end with that context, which limited only the wait. Use
// [Mutex.Do] for work that must also end with the caller's context. If a lease is unlocked before the leases
// nested in it, its context ends when the last of them ends.
func (l *Lease) Context() context.Context { return l.hold().Context() }

// Lost returns a channel that closes when the lease is lost. It stays open after Unlock.
func (l *Lease) Lost() <-chan struct{} { return l.hold().Lost() }

// Err returns nil while the lease is held, the *LostError after a loss, and ErrNotHeld after Unlock.
//
// It looks at the clock, so its answer is right even immediately after a pause of the process.
func (l *Lease) Err() error { return l.hold().Err() }

// Valid reports whether the lease is certainly held at this moment: whether Err is nil.
func (l *Lease) Valid() bool { return l.Err() == nil }

// Until returns the time at which the lease ends if the client does not hear from the server. This time moves
// on while the server answers, but not beyond [WithMaxHold].
func (l *Lease) Until() time.Time { return l.hold().Until() }

// Check asks the server whether the hold is current. It returns nil if it is, and an error that is ErrLost if
// it is not. It waits for a connection. It sees every release and removal that was complete before the call.
func (l *Lease) Check(ctx context.Context) error { return l.hold().Check(ctx) }

// Path returns the path of the lock, or of the first lock if there are several.
func (l *Lease) Path() string { return l.hold().Path() }

// Mode returns how the lock is held.
func (l *Lease) Mode() fence.Mode { return l.hold().Mode() }

// Token returns the number of the hold. It is larger than the tokens of all earlier holds that excluded this
// one. Nested and downgraded leases have the token of their hold. A set of several locks has no token of its
// own, and Token returns 0: see [Lease.Sequencers].
func (l *Lease) Token() fence.Token { return l.hold().Token() }

// Sequencer describes the hold to a third party. That party asks a [fence.Gate] or [Client.CheckSequencer]
// whether the hold is current. For a lease of several locks, Sequencer describes the first lock.
func (l *Lease) Sequencer() fence.Sequencer { return l.Sequencers()[0] }

// Sequencers describes the hold node by node, for leases of several locks.
func (l *Lease) Sequencers() []fence.Sequencer { return l.hold().Sequencers() }

// Slots returns the numbers of a lease's permits, from 1 to the number of permits, one for each. No other
// holder has the same number until the permits are given back. For a lease of several locks it returns the
// numbers of all its semaphores. A lease without permits has none.
//
// It returns an error that is ErrNoSlots if a permit without a number was in use when the permits were
// granted, because it is unknown which number the holder of that permit uses. Curator's semaphore and release
// 0.1.0 make such permits. Permits of [LayoutKazoo] never have numbers. Whatever Slots returns, the lease is
// held.
func (l *Lease) Slots() ([]int, error) { return l.hold().Slots() }

// Node returns the path of the node that stands for the hold, or of the first node if there are several.
func (l *Lease) Node() string { return l.Nodes()[0] }

// Nodes returns the paths of all nodes of the hold.
func (l *Lease) Nodes() []string { return l.hold().Nodes() }

// Asked returns a channel that delivers the first request to give the lock back. If the holder should not be
// able to ignore the request, see [WithRevocable].
func (l *Lease) Asked() <-chan recipe.Revocation { return l.hold().Asked() }

// Txn carries out all operations or none, and only if the lease is held at that moment. The server decides
// that, without a clock or a token. Txn returns the result of each operation. If the lock is gone, the error
// is ErrLost. If the server refuses an operation, a *zk.MultiError says which. An error that is
// zk.ErrUncertain says that the outcome is unknown.
func (l *Lease) Txn(ctx context.Context, ops ...zk.Op) ([]zk.Result, error) {
	return l.hold().Txn(ctx, ops...)
}

// Publish changes the value of the leader that holds the lease. For a lease that does not come from
// [Election.Campaign] it returns ErrUnsupported.
func (l *Lease) Publish(ctx context.Context, value []byte) error { return l.hold().Publish(ctx, value) }

// Downgrade turns a write lock into a read lock; no writer gets in between. The lease keeps its token.
func (l *Lease) Downgrade(ctx context.Context) error { return l.hold().Downgrade(ctx) }

// Upgrade turns a read lock into a write lock, ahead of all waiters. If another reader is upgrading, Upgrade
// fails at once with ErrUpgradeConflict; one of the two readers must then give up its read lock. Upgrade
// needs [WithPolicy]; without it the error is ErrUnsupported. If ctx ends while the client asks the server
// for the write lock, the lease may become a write lock. [Lease.Mode] returns the result.
func (l *Lease) Upgrade(ctx context.Context) error { return l.hold().Upgrade(ctx, false) }

// TryUpgrade is like Upgrade, but fails with ErrNotAcquired if other readers hold the lock.
func (l *Lease) TryUpgrade(ctx context.Context) error { return l.hold().Upgrade(ctx, true) }

// do() runs f if the lease was granted, and then unlocks the lease, whatever f does.
func (l *Lease) do(ctx context.Context, refused error, f func(context.Context, *Lease) error) (err error) {
	if refused != nil {
		return refused
	}
	done := false
	defer func() {
		if !done { // f has panicked or ended the goroutine
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), panicPatience)
			defer cancel()
			_ = l.Unlock(bounded)
		}
	}()
	work, end := context.WithCancelCause(l.hold().Mark(ctx))
	defer end(nil)
	defer context.AfterFunc(l.Context(), func() { end(context.Cause(l.Context())) })()
	err = f(work, l)
	done = true
	unlock := l.Unlock(ctx)
	switch {
	case errors.Is(unlock, ErrReleasePending):
		return err
	case errors.Is(unlock, ErrNotHeld): // f has unlocked the lease; a loss before that is still an error
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
	return hold.ErrorAt(l.Path(), fmt.Errorf("%w: %w", unlock, err))
}

// panicPatience bounds how long a panic waits for the lock to be released; after that the release continues
// in the background.
const panicPatience = 2 * time.Second

// CheckSequencer asks the server whether the hold that s describes is current. It returns nil if it is, and
// an error that is [fence.ErrStale] if it is not. So the client is a [fence.Checker].
func (c *Client) CheckSequencer(ctx context.Context, s fence.Sequencer) error {
	path := s.NodePath()
	var st *zk.Stat
	err := c.steadily(ctx, path, func(e *session.Epoch) error {
		err := e.Conn().Sync(ctx, path)
		if err == nil {
			st, err = e.Conn().Exists(ctx, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	if st == nil {
		return fmt.Errorf("%w: %s is gone", fence.ErrStale, path)
	}
	born, name := fence.Token(st.Czxid), recipe.Base(s.Node)
	made, _, _ := recipe.ParseName(name)
	// The node of a downgraded hold is newer than its token. The name of that node is unique, so it is enough
	// that the node exists.
	if born == s.Token || s.Mode == fence.Shared && born > s.Token &&
		(made.Maker == recipe.MakerSelf || recipe.IsPolicyNode(name)) {
		return nil
	}
	return fmt.Errorf("%w: %s has token %d", fence.ErrStale, path, born)
}

var _ fence.Checker = (*Client)(nil)
