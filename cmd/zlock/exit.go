package main

import (
	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/cmd/zlock/internal/supervise"
)

// Exit codes of zlock itself. zlock passes COMMAND's own status through, so these keep to the
// range that shells and timeout(1) reserve for such wrappers.
const (
	exitOK          = 0
	exitNo          = 1                    // the answer is no, or there is nothing
	exitError       = 2                    // check and break could not find out
	exitCycle       = 3                    // wait-graph found a cycle
	exitNoSession   = 120                  // no usable session within --connect-timeout
	exitRevoked     = 121                  // revoked and stopped
	exitLost        = 122                  // the lock was lost while COMMAND ran
	exitMaxHold     = 123                  // --max-hold reached
	exitNotAcquired = 124                  // not acquired (-n, -w)
	exitFailed      = supervise.ExitFailed // usage or internal error
	exitNotExec     = supervise.ExitNotExecutable
	exitNotFound    = supervise.ExitNotFound
)

// onlyNo makes every other error than the answer no, and a mistake in the command line, exit
// code 2.
func onlyNo(err error) error {
	if err == nil || cli.HasCode(err, exitNo) {
		return err
	}
	return &cli.ExitError{Code: exitError, Err: err}
}
