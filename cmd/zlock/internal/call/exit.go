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
	exitError       = 2                    // check and break found no answer
	ExitCycle       = 3                    // wait-graph found a cycle
	ExitNoSession   = 120                  // no usable session within --connect-timeout
	ExitRevoked     = 121                  // the lock was revoked, and COMMAND stopped
	ExitLost        = 122                  // the lock was lost while COMMAND ran
	ExitMaxHold     = 123                  // --max-hold reached
	ExitNotAcquired = 124                  // the lock was not acquired (-n, -w)
	ExitFailed      = supervise.ExitFailed // usage or internal error
	ExitNotExec     = supervise.ExitNotExecutable
	ExitNotFound    = supervise.ExitNotFound
)

// OnlyNo gives an error exit code 2, unless it is the answer "no" or a mistake in the command line.
func OnlyNo(err error) error {
	if err == nil || cli.HasCode(err, ExitNo) {
		return err
	}
	return &cli.ExitError{Code: exitError, Err: err}
}
