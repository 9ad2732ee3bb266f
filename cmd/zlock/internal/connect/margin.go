package connect

import (
	"context"
	"time"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/call"
)

// CheckMargin refuses a session timeout that is too short: the server could grant the lock to another client
// before zlock has ended COMMAND. The error names a timeout that suffices.
func CheckMargin(asked bool, timeout, killAfter time.Duration) error {
	margin := MarginFor(killAfter)
	need := NeededTimeout(margin)
	if timeout >= need {
		return nil
	}
	if asked {
		return cli.Usagef("a session timeout of %v is too short: with --kill-after %v, COMMAND may still "+
			"run when another client gets the lock; give --session-timeout %v, or --kill-after %v",
			timeout, killAfter, need, killFor(timeout))
	}
	return cli.Exitf(call.ExitFailed,
		"the server grants a session timeout of %v, which is too short: with --kill-after %v, COMMAND may "+
			"still run when another client gets the lock; let the server grant %v, or give --kill-after %v",
		timeout, killAfter, need, killFor(timeout))
}

// MarginFor returns how long before its end zlock must treat a lock as lost. In that time zlock can end
// COMMAND: processes that do not end by themselves are killed after killAfter, and two seconds are for
// delays.
func MarginFor(killAfter time.Duration) time.Duration { return killAfter + 2*time.Second }

// NeededTimeout returns the shortest session timeout, in whole seconds, that has room for this margin and for
// two heartbeats before it. Package client has the same rule.
func NeededTimeout(margin time.Duration) time.Duration {
	return (time.Duration(float64(margin)/beforeMargin) + time.Second - 1).Truncate(time.Second)
}

// killFor returns the longest --kill-after, in whole seconds, for a session timeout.
func killFor(timeout time.Duration) time.Duration {
	return max(0, (time.Duration(float64(timeout)*beforeMargin) - 2*time.Second).Truncate(time.Second))
}

// beforeMargin is the part of a session timeout that a margin may use. Clocks that drift and two heartbeats
// need the rest.
const beforeMargin = 1 - 0.005 - 2*0.2

// tooShort explains why the client refused the session's timeout. The server may have granted a shorter one
// than zlock asked for, so tooShort opens a session to see.
func tooShort(ctx context.Context, c *call.Call, f Flags, err error) error {
	killAfter := f.Margin - MarginFor(0)
	f.Margin = 0
	cl, again := Dial(ctx, c, &f)
	if again != nil {
		return cli.Usagef("%v", err)
	}
	defer HangUp(c, cl)
	if short := CheckMargin(false, cl.Session().Timeout, killAfter); short != nil {
		return short
	}
	return cli.Usagef("%v", err)
}
