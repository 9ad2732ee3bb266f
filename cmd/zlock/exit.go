package main

import (
	"errors"
	"fmt"
	"syscall"
)

// Exit codes of zlock itself. zlock passes COMMAND's own status through, so these keep to the
// range that shells and timeout(1) reserve for such wrappers.
const (
	exitOK          = 0
	exitNo          = 1   // the answer is no, or there is nothing
	exitCycle       = 3   // wait-graph found a cycle
	exitNoSession   = 120 // no usable session within --connect-timeout
	exitRevoked     = 121 // revoked and stopped
	exitLost        = 122 // the lock was lost while COMMAND ran
	exitMaxHold     = 123 // --max-hold reached
	exitNotAcquired = 124 // not acquired (-n, -w)
	exitFailed      = 125 // usage or internal error
	exitNotExec     = 126 // COMMAND is not executable
	exitNotFound    = 127 // COMMAND is not found
	exitSignal      = 128 // plus the signal's number
)

// exitError ends zlock with a code; its text, if any, goes to standard error.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit ends zlock with a code and no message.
func exit(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// exitf ends zlock with a code and a message.
func exitf(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// usageError is a mistake in the command line.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// codeOf returns the exit code for an error. Commands without codes of their own use it.
func codeOf(err error) int {
	var e *exitError
	var u *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &u):
		return exitFailed // even if a command has codes of its own
	case errors.As(err, &e):
		return e.code
	default:
		return exitFailed
	}
}

// signalCode is the exit code of a process that a signal ended.
func signalCode(s syscall.Signal) int { return exitSignal + int(s) }
