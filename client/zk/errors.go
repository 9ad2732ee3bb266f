package zk

import (
	"errors"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// The refusals of a server. Compare with errors.Is: a call returns an *Error, which also names the request.
var (
	ErrNoNode                  error = jute.NoNode
	ErrNodeExists              error = jute.NodeExists
	ErrNotEmpty                error = jute.NotEmpty
	ErrBadVersion              error = jute.BadVersion
	ErrNoAuth                  error = jute.NoAuth
	ErrAuthFailed              error = jute.AuthFailed
	ErrInvalidACL              error = jute.InvalidACL
	ErrBadArguments            error = jute.BadArguments
	ErrNoChildrenForEphemerals error = jute.NoChildrenForEphemerals
	ErrNoWatcher               error = jute.NoWatcher
	ErrQuotaExceeded           error = jute.QuotaExceeded
	ErrThrottled               error = jute.Throttled
	ErrUnimplemented           error = jute.Unimplemented
	ErrNotReadOnly             error = jute.ErrCode(-119)
)

// Errors of the session.
var (
	// ErrUncertain says that the client sent a request and does not know its outcome: the connection was
	// lost, or the context ended, before the answer. For ErrConnectionLost, and for the context errors of
	// such calls, errors.Is(err, ErrUncertain) is true.
	ErrUncertain = errors.New("zk: outcome unknown")
	// ErrConnectionLost says that the connection was lost before the answer. Only writes fail with it:
	// the Conn repeats reads on the next connection.
	ErrConnectionLost error = &uncertain{errors.New("connection lost")}
	// ErrSessionExpired says that the server ended the session. Its ephemeral nodes are gone, and the Conn
	// cannot be used again.
	ErrSessionExpired = errors.New("zk: session expired")
	// ErrClosed says that the Conn was closed.
	ErrClosed = errors.New("zk: closed")
	// ErrInvalid reports options or servers that cannot be used.
	ErrInvalid = errors.New("zk: invalid argument")
	// ErrNotServing and ErrSilent say why a server cannot be used now (see Conn.Trouble).
	ErrNotServing = errors.New(
		"the server closed the connection instead of greeting: it may not be serving yet, " +
			"or may lag behind other servers")
	ErrSilent = errors.New("the server accepts connections but has not answered")
	// ErrTooLarge says that a request is longer than Options.MaxRequest.
	ErrTooLarge = errors.New("zk: request too large")
)

// Error is a server's refusal of one request.
type Error struct {
	Op   string // such as "create"
	Path string
	Code jute.ErrCode
}

// Error names the request and the reason.
func (e *Error) Error() string { return "zk: " + e.Op + " " + e.Path + ": " + e.Code.Error() }

// Unwrap returns the code, so that errors.Is(err, ErrNoNode) works.
func (e *Error) Unwrap() error { return e.Code }

// uncertain marks an error that leaves the outcome of a write unknown.
type uncertain struct{ err error }

func (u *uncertain) Error() string {
	return "zk: " + strings.TrimPrefix(u.err.Error(), "zk: ") + ", outcome unknown"
}
func (u *uncertain) Unwrap() error        { return u.err }
func (u *uncertain) Is(target error) bool { return target == ErrUncertain }

// IsRefusal reports whether err is a server's refusal. A refused request certainly had no effect.
func IsRefusal(err error) bool {
	_, refused := errors.AsType[*Error](err)
	return refused && !errors.Is(err, ErrUncertain)
}

// dialError adds the servers of a Dial to its error.
type dialError struct {
	servers string
	err     error
}

func (e *dialError) Unwrap() error { return e.err }

func (e *dialError) Error() string {
	return "zk: connect to " + e.servers + ": " + strings.ReplaceAll(e.err.Error(), "zk: ", "")
}
