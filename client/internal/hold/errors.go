package hold

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

// The errors of holds. Package client has them under the same names, and documents them.
var (
	ErrNotAcquired     = errors.New("client: lock not acquired")
	ErrLost            = errors.New("client: lock lost")
	ErrSelfDeadlock    = errors.New("client: the context already holds this lock")
	ErrUpgradeConflict = errors.New("client: another reader is upgrading")
	ErrUnsupported     = errors.New("client: not supported")
	ErrNoAuth          = errors.New("client: not permitted by the access control list")
	ErrReleasePending  = errors.New("client: release not yet confirmed")
	ErrNotHeld         = errors.New("client: lock not held")
)

// Reason says why a hold ended before it was given back.
type Reason uint8

// The reasons; package client documents them.
const (
	Expired Reason = iota + 1
	Deadline
	Removed
	_ // unused: formerly a reason given by waiters
	Revoked
	MaxHold
	Closed
)

var reasonNames = [...]string{
	Expired: "session expired", Deadline: "no word from the server", Removed: "node removed",
	Revoked: "revoked", MaxHold: "held too long", Closed: "client closed",
}

// String returns the reason in a few words.
func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// Loss says which lock was lost and why. It is an error, but programs get the error of package client
// instead.
type Loss struct {
	Path   string // path of the lock
	Node   string // full path of the hold's node
	Reason Reason
}

// Error names the lock and the reason.
func (l Loss) Error() string { return fmt.Sprintf("client: lock %s lost: %s", l.Path, l.Reason) }

// Is makes errors.Is(err, ErrLost) true.
func (l Loss) Is(target error) bool { return target == ErrLost }

// loss is a Loss with the error that the program gets. All leases of a hold share one loss.
type loss struct {
	Loss
	err error
}

// EndOf returns the error of a call for a lock after the ctx of the call has ended.
func EndOf(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrNotAcquired) { // the time given by WithWait is over
		return fmt.Errorf("%w: %w", cause, ctx.Err())
	}
	return session.CtxErr(ctx)
}

// PublicErr wraps an error of a request in the error that package client exports for it, such as ErrNoAuth
// for zk.ErrNoAuth. If ctx has ended, it returns EndOf.
func PublicErr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return EndOf(ctx)
	}
	for _, names := range [...]struct{ zk, own error }{
		{zk.ErrNoAuth, ErrNoAuth}, {zk.ErrAuthFailed, ErrNoAuth}, {zk.ErrInvalid, recipe.ErrInvalid},
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

// callError is the error of a call. Its text replaces the text of the original error.
type callError struct {
	error
	text string
}

// ErrorAt returns `err` as the error of a call about `path`. The text begins with the prefix of package
// client, contains the path, and repeats no prefix.
func ErrorAt(path string, err error) error {
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

// Unwrap returns the original error.
func (e *callError) Unwrap() error { return e.error }
