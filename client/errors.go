package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// Errors of this package. Use errors.Is: most carry more text.
var (
	// ErrNotAcquired is the answer of a try that would have had to wait.
	ErrNotAcquired = errors.New("client: lock not acquired")
	// ErrLost says that a lease ended before it was unlocked. errors.As finds
	// the *LostError with the reason.
	ErrLost = errors.New("client: lock lost")
	// ErrSessionExpired says that the session ended while an attempt was under
	// way that was not allowed to queue again.
	ErrSessionExpired = errors.New("client: session expired")
	// ErrNodeRemoved says that somebody deleted the node of an attempt that was
	// not allowed to queue again.
	ErrNodeRemoved = errors.New("client: node removed by somebody else")
	// ErrSelfDeadlock says that the context already holds the lock, so that
	// waiting for it would never end.
	ErrSelfDeadlock = errors.New("client: the context already holds this lock")
	// ErrUpgradeConflict says that another reader is already upgrading: one of
	// the two must give up its read lock.
	ErrUpgradeConflict = errors.New("client: another reader is upgrading")
	// ErrUnsupported says that the layout or the server cannot do this.
	ErrUnsupported = errors.New("client: not supported")
	// ErrMixedLayout says that contenders of clients that cannot see each other
	// share the directory.
	ErrMixedLayout = errors.New("client: contenders of incompatible layouts in one directory")
	// ErrPolicyMismatch says that the directory was set up with another policy.
	ErrPolicyMismatch = errors.New("client: directory has another policy")
	// ErrLimitMismatch says that the semaphore was set up with another limit.
	ErrLimitMismatch = errors.New("client: semaphore has another limit")
	// ErrSequenceExhausted says that the directory's numbers are about to wrap,
	// or have, while clients contend that cannot order them. Let the directory
	// drain and remove it: numbering starts again at 0.
	ErrSequenceExhausted = errors.New("client: sequence numbers exhausted; let the directory drain and remove it")
	// ErrDuplicatePath says that one path was named twice in a set of locks.
	ErrDuplicatePath = errors.New("client: path named twice")
	// ErrNoAuth says that an access control list forbids the request.
	ErrNoAuth = errors.New("client: not permitted by the access control list")
	// ErrReadOnly says that the server takes no writes.
	ErrReadOnly = errors.New("client: server is read-only")
	// ErrReleasePending says that the context ended before the lock was known to
	// be released. The release goes on in the background.
	ErrReleasePending = errors.New("client: release not yet confirmed")
	// ErrNotHeld says that the lease was unlocked before.
	ErrNotHeld = errors.New("client: lock not held")
	// ErrClosed says that the client is closed.
	ErrClosed = errors.New("client: closed")
	// ErrInvalid reports an argument or option that cannot be used.
	ErrInvalid = errors.New("client: invalid argument")
)

// LostReason says why a lease ended before it was unlocked.
type LostReason uint8

const (
	// Expired: the server ended the session.
	Expired LostReason = iota + 1
	// Deadline: the server was not heard from for so long that it may end the
	// session soon.
	Deadline
	// Removed: somebody deleted the node.
	Removed
	// Broken: somebody deleted the node because its recorded maximum hold was over.
	Broken
	// Revoked: somebody asked for the lock and the grace to give it back is over.
	Revoked
	// MaxHold: the lease was held longer than WithMaxHold allows.
	MaxHold
	// Closed: the client was closed.
	Closed
	// Disconnected: the connection was lost and the lease was taken WithStrict.
	Disconnected
)

var reasonNames = [...]string{
	Expired: "session expired", Deadline: "no word from the server", Removed: "node removed",
	Broken: "broken after its maximum hold", Revoked: "revoked", MaxHold: "held too long", Closed: "client closed",
	Disconnected: "connection lost",
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

// unfinished marks a write whose outcome is unknown because nobody waited for it.
type unfinished struct{ error }

func (u unfinished) Unwrap() error { return u.error }

// serverCode finds the number in the library's text for codes it has no name for.
func serverCode(err error) (int, bool) {
	s, ok := strings.CutPrefix(err.Error(), "unknown error: ")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// Codes of the wire protocol that the library does not name.
const (
	codeRolledBack    = -2
	codeUnimplemented = -6
	codeNotReadOnly   = -119
	codeQuota         = -125
)

func isCode(err error, code int) bool {
	if err == nil {
		return false
	}
	n, ok := serverCode(err)
	return ok && n == code
}

// isDefinite reports whether err is the server's refusal: the request had no
// effect and would be refused again.
func isDefinite(err error) bool {
	for _, e := range []error{
		zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrInvalidACL,
		zk.ErrNoChildrenForEphemerals, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrInvalidFlags,
		zk.ErrShortBuffer, zk.ErrAPIError, ErrClosed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	n, ok := serverCode(err)
	// -1…-4 and -7 are the server's words for "something broke on the way".
	return ok && n < -4 && n != -7
}

// ownErrors are decisions of this package: nothing is unknown about them.
var ownErrors = []error{
	ErrNotAcquired, ErrLost, ErrSessionExpired, ErrNodeRemoved, ErrSelfDeadlock, ErrUpgradeConflict, ErrUnsupported,
	ErrMixedLayout, ErrPolicyMismatch, ErrLimitMismatch, ErrSequenceExhausted, ErrDuplicatePath, ErrNoAuth, ErrReadOnly,
	ErrReleasePending, ErrNotHeld, ErrInvalid, errNotValid, errLostEarly, errSlipped, errAgain,
}

// isAmbiguous reports whether a write that answered err may have happened.
func isAmbiguous(err error) bool {
	if err == nil {
		return false
	}
	if errors.As(err, &unfinished{}) {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false // ended before it was sent, or it would be unfinished
	}
	for _, own := range ownErrors {
		if errors.Is(err, own) {
			return false
		}
	}
	if re := (*requeueError)(nil); errors.As(err, &re) {
		return false
	}
	return !isDefinite(err)
}

// publicErr puts the package's names on errors of the library.
func publicErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed):
		return fmt.Errorf("%w: %w", ErrNoAuth, err)
	case isCode(err, codeNotReadOnly):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case errors.Is(err, zk.ErrSessionExpired):
		return fmt.Errorf("%w: %w", ErrSessionExpired, err)
	case errors.Is(err, zk.ErrInvalidPath):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case isCode(err, codeQuota):
		return fmt.Errorf("client: quota exceeded: %w", err)
	}
	return err
}

// ctxErr is the error for a context that ended. A cause, such as the loss of the
// lease whose context it is, is kept.
func ctxErr(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
