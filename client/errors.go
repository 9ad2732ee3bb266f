package client

import (
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/take"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Errors of this package. Compare them with errors.Is, because most errors carry more text.
var (
	// ErrNotAcquired says that a call did not get the lock and may not wait for it, or no longer.
	ErrNotAcquired = hold.ErrNotAcquired
	// ErrLost says that a lease ended before it was unlocked. errors.As finds
	// the *LostError with the reason.
	ErrLost = hold.ErrLost
	// ErrSessionExpired says that the session ended during an attempt that may not queue again (see
	// [WithoutRequeue]).
	ErrSessionExpired = zk.ErrSessionExpired
	// ErrNodeRemoved says that another client deleted the node of an attempt that may not queue again.
	ErrNodeRemoved = take.ErrNodeRemoved
	// ErrSelfDeadlock says that the context already holds the lock, so that a wait for it would never end.
	ErrSelfDeadlock = hold.ErrSelfDeadlock
	// ErrUpgradeConflict says that another reader is already upgrading: one of the two readers must give up its
	// read lock.
	ErrUpgradeConflict = hold.ErrUpgradeConflict
	// ErrUnsupported says that the layout of the lock, or the server, does not support the call.
	ErrUnsupported = hold.ErrUnsupported
	// ErrMixedLayout says that the directory has, or would get, contenders that cannot see each other.
	ErrMixedLayout = recipe.ErrMixedLayout
	// ErrPolicyMismatch says that the directory was set up with another policy.
	ErrPolicyMismatch = take.ErrPolicyMismatch
	// ErrLimitMismatch says that the semaphore was set up with another limit.
	ErrLimitMismatch = take.ErrLimitMismatch
	// ErrNoSlots says that a lease's permits have no unique numbers, because other holders use permits
	// without numbers. See [Lease.Slots].
	ErrNoSlots = take.ErrNoSlots
	// ErrSequenceExhausted says that the sequence numbers in the lock's directory wrap soon, or have wrapped,
	// and that some contenders cannot order wrapped numbers. Wait until the directory is empty and remove it:
	// then numbering starts again at 0.
	ErrSequenceExhausted = recipe.ErrSequenceExhausted
	// ErrNoAuth says that an access control list forbids the request.
	ErrNoAuth = hold.ErrNoAuth
	// ErrReleasePending says that the context ended before the lock was known to be released. The release
	// continues in the background.
	ErrReleasePending = hold.ErrReleasePending
	// ErrNotHeld says that the lease is already unlocked.
	ErrNotHeld = hold.ErrNotHeld
	// ErrClosed says that the client is closed.
	ErrClosed = zk.ErrClosed
	// ErrInvalid reports an argument or option that cannot be used.
	ErrInvalid = recipe.ErrInvalid
)

// LostReason says why a lease ended before it was unlocked.
type LostReason uint8

const (
	// Expired: the server ended the session.
	Expired = LostReason(hold.Expired)
	// Deadline: the client has not heard from the server for a long time, so the server may end the session
	// soon.
	Deadline = LostReason(hold.Deadline)
	// Removed: another client deleted the node.
	Removed = LostReason(hold.Removed)
	// Revoked: another client asked for the lock, and the grace to give it back is over.
	Revoked = LostReason(hold.Revoked)
	// MaxHold: the lease was held longer than WithMaxHold allows.
	MaxHold = LostReason(hold.MaxHold)
	// Closed: the client was closed.
	Closed = LostReason(hold.Closed)
)

// String returns the reason in a few words.
func (r LostReason) String() string { return hold.Reason(r).String() }

// LostError says which lock was lost and why. It is the cause of a lost lease's context. errors.Is(err,
// ErrLost) is true for it.
type LostError struct {
	Path   string // path of the lock
	Node   string // full path of the hold's node
	Reason LostReason
}

// Error names the lock and the reason.
func (e *LostError) Error() string {
	return hold.Loss{Path: e.Path, Node: e.Node, Reason: hold.Reason(e.Reason)}.Error()
}

// Is makes errors.Is(err, ErrLost) true.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// lostError turns a loss into the error that a program gets.
func lostError(l hold.Loss) error {
	return &LostError{Path: l.Path, Node: l.Node, Reason: LostReason(l.Reason)}
}
