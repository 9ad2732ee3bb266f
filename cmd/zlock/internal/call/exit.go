package call

import (
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
)

// Exit codes of zlock itself. As zlock also exits with COMMAND's code, the codes here are in the range that
// shells and timeout(1) reserve for programs that run other programs.
const (
	ExitOK          = 0
	ExitNo          = 1                    // the answer is no, or the list is empty
	exitError       = 2                    // check and break could not find out the answer
	ExitCycle       = 3                    // wait-graph found a cycle
	ExitNoSession   = 120                  // no usable session within --connect-timeout
	ExitRevoked     = 121                  // the lock was revoked, and COMMAND stopped
	ExitLost        = 122                  // the lock was lost while COMMAND ran
	ExitMaxHold     = 123                  // --max-hold reached
	ExitNotAcquired = 124                  // the lock was not acquired, or not in time (-n, -w)
	ExitFailed      = supervise.ExitFailed // usage or internal error
	ExitNotExec     = supervise.ExitNotExecutable
	ExitNotFound    = supervise.ExitNotFound
)

// OnlyNo lets a command exit with 1 only for the answer "no". Any other error gets the exit code 2, except a
// mistake in the command line.
func OnlyNo(err error) error {
	if err == nil || cli.HasCode(err, ExitNo) {
		return err
	}
	return &cli.ExitError{Code: exitError, Err: err}
}
