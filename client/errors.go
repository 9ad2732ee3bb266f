package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Errors of this package. Use errors.Is: most carry more text.
var (
	// ErrNotAcquired says that a try would have had to wait.
	ErrNotAcquired = errors.New("client: lock not acquired")
	// ErrLost says that a lease ended before it was unlocked. errors.As finds
	// the *LostError with the reason.
	ErrLost = errors.New("client: lock lost")
	// ErrSessionExpired says that the session ended during an attempt that may not queue again (see
	// [WithoutRequeue]).
	ErrSessionExpired = zk.ErrSessionExpired
	// ErrNodeRemoved says that another client deleted the node of an attempt that may not queue again.
	ErrNodeRemoved = errors.New("client: node removed by another client")
	// ErrSelfDeadlock says that the context already holds the lock, so that
	// waiting for it would never end.
	ErrSelfDeadlock = errors.New("client: the context already holds this lock")
	// ErrUpgradeConflict says that another reader is already upgrading: one of
	// the two must give up its read lock.
	ErrUpgradeConflict = errors.New("client: another reader is upgrading")
	// ErrUnsupported says that the layout or the server cannot do this.
	ErrUnsupported = errors.New("client: not supported")
	// ErrMixedLayout says that contenders that cannot see each other would share the directory.
	ErrMixedLayout = recipe.ErrMixedLayout
	// ErrPolicyMismatch says that the directory was set up with another policy.
	ErrPolicyMismatch = errors.New("client: directory has another policy")
	// ErrLimitMismatch says that the semaphore was set up with another limit.
	ErrLimitMismatch = errors.New("client: semaphore has another limit")
	// ErrNoSlots says that a lease's permits have no unique numbers, because permits without numbers are in
	// use too; see [Lease.Slots].
	ErrNoSlots = errors.New("client: no numbers of permits")
	// ErrSequenceExhausted says that the directory's numbers wrap soon, or have wrapped, while some
	// contenders cannot order them. Let the directory drain and remove it: numbering starts again at
	// 0.
	ErrSequenceExhausted = recipe.ErrSequenceExhausted
	// ErrNoAuth says that an access control list forbids the request.
	ErrNoAuth = errors.New("client: not permitted by the access control list")
	// ErrReleasePending says that the context ended before the lock was known to
	// be released. The release goes on in the background.
	ErrReleasePending = errors.New("client: release not yet confirmed")
	// ErrNotHeld says that the lease was unlocked before.
	ErrNotHeld = errors.New("client: lock not held")
	// ErrClosed says that the client is closed.
	ErrClosed = zk.ErrClosed
	// ErrInvalid reports an argument or option that cannot be used.
	ErrInvalid = recipe.ErrInvalid
)

// LostReason says why a lease ended before it was unlocked.
type LostReason uint8

const (
	// Expired: the server ended the session.
	Expired LostReason = iota + 1
	// Deadline: the client did not hear from the server for so long that the server may end the
	// session soon.
	Deadline
	// Removed: another client deleted the node.
	Removed
	_ // once a reason that waiters gave
	// Revoked: another client asked for the lock, and the grace to give it back is over.
	Revoked
	// MaxHold: the lease was held longer than WithMaxHold allows.
	MaxHold
	// Closed: the client was closed.
	Closed
)

var reasonNames = [...]string{
	Expired: "session expired", Deadline: "no word from the server", Removed: "node removed",
	Revoked: "revoked", MaxHold: "held too long", Closed: "client closed",
}

// String returns the reason in a few words.
func (r LostReason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// LostError tells what was lost and why. It is the cause of a lost lease's
// context, and errors.Is(err, ErrLost) holds.
type LostError struct {
	Path   string // of the lock
	Node   string // of the hold, its full path
	Reason LostReason
}

// Error names the lock and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("client: lock %s lost: %s", e.Path, e.Reason)
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// isAmbiguous reports whether a write that answered err may have happened.
func isAmbiguous(err error) bool { return errors.Is(err, zk.ErrUncertain) }

// endOf returns the error for a context that ended, as the caller of a lock sees it.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrNotAcquired) { // WithWait
		return fmt.Errorf("%w: %w", cause, ctx.Err())
	}
	return session.CtxErr(ctx)
}

// publicErr puts the package's names on errors of a call in the session.
func publicErr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return endOf(ctx)
	}
	for _, names := range [...]struct{ zk, own error }{
		{zk.ErrNoAuth, ErrNoAuth}, {zk.ErrAuthFailed, ErrNoAuth}, {zk.ErrInvalid, ErrInvalid},
	} {
		if errors.Is(err, names.zk) {
			return fmt.Errorf("%w: %w", names.own, err)
		}
	}
	if errors.Is(err, zk.ErrQuotaExceeded) {
		return fmt.Errorf("client: quota exceeded: %w", err)
	}
	return err
}

// callError is the error of a call, with another text.
type callError struct {
	error
	text string
}

// errorAt returns the error of a call about path. Its text begins with the prefix of this package,
// names the path, and has the prefix of each package once.
func errorAt(path string, err error) error {
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), "client: ", "")
	if before, after, found := strings.Cut(text, "zk: "); found {
		text = before + "zk: " + strings.ReplaceAll(after, "zk: ", "")
	}
	if !strings.Contains(text, path) {
		text = path + ": " + text
	}
	return &callError{err, "client: " + text}
}

func (e *callError) Error() string { return e.text }

// Unwrap returns the error with its own text.
func (e *callError) Unwrap() error { return e.error }
