// Package supervise runs a COMMAND while a right lasts, such as the hold of a lock.
//
// [StartGuard] starts a second process of this program, the guard, which ends COMMAND if this process cannot.
// [Guard.Run] makes the guard start COMMAND, and passes signals on. When the right is lost it ends COMMAND
// and all processes that COMMAND started. It returns when none of them runs.
package supervise

import (
	"errors"
	"io/fs"
	"syscall"
)

// Exit codes for a COMMAND that did not start or that a signal ended, the same as in shells.
const (
	ExitFailed        = 125 // an internal error
	ExitNotExecutable = 126 // COMMAND is not executable
	ExitNotFound      = 127 // COMMAND is not found
	exitSignal        = 128 // plus the number of the signal that ended COMMAND
)

// SignalCode is the exit code of a process that a signal ended.
func SignalCode(s syscall.Signal) int { return exitSignal + int(s) }

// NotStarted returns the exit code for an error of COMMAND's start.
func NotStarted(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		return ExitNotFound
	}
	return ExitNotExecutable
}
