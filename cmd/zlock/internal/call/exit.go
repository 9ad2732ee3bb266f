package call

import (
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
)

// Exit codes of zlock itself. zlock exits with COMMAND's own code, so its own codes are in the range that
// shells and timeout(1) reserve for such wrappers.
const (
	ExitOK          = 0
	ExitNo          = 1                    // the answer is no, or the list is empty
	exitError       = 2                    // check and break found no answer
	ExitCycle       = 3                    // wait-graph found a cycle
	ExitNoSession   = 120                  // no usable session within --connect-timeout
	ExitRevoked     = 121                  // revoked, and COMMAND stopped
	ExitLost        = 122                  // the lock was lost while COMMAND ran
	ExitMaxHold     = 123                  // --max-hold reached
	ExitNotAcquired = 124                  // not acquired (-n, -w)
	ExitFailed      = supervise.ExitFailed // usage or internal error
	ExitNotExec     = supervise.ExitNotExecutable
	ExitNotFound    = supervise.ExitNotFound
)

// OnlyNo gives errors exit code 2, except the answer no and mistakes in the command line.
func OnlyNo(err error) error {
	if err == nil || cli.HasCode(err, ExitNo) {
		return err
	}
	return &cli.ExitError{Code: exitError, Err: err}
}
