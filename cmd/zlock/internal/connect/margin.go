package connect

import (
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// CheckMargin refuses a session timeout too short to end COMMAND before the server gives the
// lock away, and says which timeout would do.
func CheckMargin(asked bool, timeout, killAfter time.Duration) error {
	margin := MarginFor(killAfter)
	need := NeededTimeout(margin)
	if timeout >= need {
		return nil
	}
	if asked {
		return cli.Usagef("a session timeout of %v is too short to end COMMAND within --kill-after %v before "+
			"the lock can move; --session-timeout %v would do, or --kill-after %v",
			timeout, killAfter, need, killFor(timeout))
	}
	return cli.Exitf(call.ExitFailed,
		"the server grants a session timeout of %v, too short to end COMMAND within --kill-after %v before "+
			"the lock can move: %v is needed; --kill-after %v would do",
		timeout, killAfter, need, killFor(timeout))
}

// MarginFor returns the time between the loss of the lease here and the moment when the server
// may give the lock to another client: enough to kill what does not end by itself, and two
// seconds for delays on the way.
func MarginFor(killAfter time.Duration) time.Duration { return killAfter + 2*time.Second }

// NeededTimeout returns the shortest session timeout, in whole seconds, that leaves room for
// two heartbeats before the margin begins. It repeats the rule of package client, which
// decides.
func NeededTimeout(margin time.Duration) time.Duration {
	return (time.Duration(float64(margin)/beforeMargin) + time.Second - 1).Truncate(time.Second)
}

// killFor returns the longest --kill-after, in whole seconds, for a session timeout.
func killFor(timeout time.Duration) time.Duration {
	return max(0, (time.Duration(float64(timeout)*beforeMargin) - 2*time.Second).Truncate(time.Second))
}

// beforeMargin is the part of a session timeout that can be a margin: not what clocks may drift, nor two
// heartbeats.
const beforeMargin = 1 - 0.005 - 2*0.2
