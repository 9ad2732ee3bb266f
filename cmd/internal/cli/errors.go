package cli

import (
	"errors"
	"fmt"
)

// UsageError is a mistake in the command line, or several mistakes joined.
type UsageError struct{ error }

// Unwrap returns the mistake.
func (e *UsageError) Unwrap() error { return e.error }

// Usagef returns a mistake in the command line.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Mistake says that an error is a mistake in the command line, which has an exit code of its own.
func Mistake(err error) error { return &UsageError{err} }

// ExitError ends the program with a code. Its text, if any, goes to standard error.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Exit returns an error that ends the program with a code and no message, or nil for the code 0.
func Exit(code int) error {
	if code == 0 {
		return nil
	}
	return &ExitError{Code: code}
}

// Exitf ends the program with a code and a message.
func Exitf(code int, format string, args ...any) error {
	return &ExitError{code, fmt.Errorf(format, args...)}
}

// HasCode reports whether an error ends the program with this exit code because it is an ExitError.
func HasCode(err error, code int) bool {
	_, usage := errors.AsType[*UsageError](err)
	e, exit := errors.AsType[*ExitError](err)
	return !usage && exit && e.Code == code
}
