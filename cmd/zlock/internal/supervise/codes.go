// Package supervise runs a COMMAND no longer than a right lasts, and knows nothing of what the right is for.
//
// [StartGuard] starts a second process of this program, the guard, which ends COMMAND if this process
// cannot. [Guard.Run] starts COMMAND by it, passes signals on, ends COMMAND and all that it started when
// the right is lost, and returns when nothing of it runs.
package supervise

import "syscall"

// Exit codes for a COMMAND that did not start or did not end by itself, as shells have them.
const (
	ExitFailed        = 125 // an internal error
	ExitNotExecutable = 126 // COMMAND is not executable
	ExitNotFound      = 127 // COMMAND is not found
	exitSignal        = 128 // plus the signal's number
)

// SignalCode is the exit code of a process that a signal ended.
func SignalCode(s syscall.Signal) int { return exitSignal + int(s) }
