// Package status is the vocabulary in which servers answer each other, the operators and the command zlock:
// codes of errors, and how far the members of a cluster are. Its types are plain values with JSON names, so
// that a fact has the same form in the server that reports it and in the program that prints it.
package status

import (
	"errors"
	"fmt"
)

// Code names the reason of an error for programs. The text of the error is for
// people and may change; a code does not.
type Code string

// Codes of errors.
const (
	// no server leads at the moment, or the server that was asked does not lead
	NoLeader    Code = "no_leader"
	NoMajority  Code = "no_majority"  // no server has led for long; an operator must start servers, or recover
	Interrupted Code = "interrupted"  // it is not known whether the request took effect
	Overtaken   Code = "overtaken"    // another change of members came first; this change had no effect
	NotJoined   Code = "not_joined"   // the server has not joined its cluster yet
	Changing    Code = "changing"     // another server changes the members step by step
	Stale       Code = "stale"        // the members have changed since the request was made
	IsMember    Code = "is_member"    // the server is a member already
	NotMember   Code = "not_member"   // the server is not a member
	NotReady    Code = "not_ready"    // the server has not caught up
	Unsafe      Code = "unsafe"       // the change would leave no majority of voters that follow the leader
	Restoring   Code = "restoring"    // another restore is under way
	NotAllowed  Code = "unauthorized" // the request names no user, or a wrong password
)

// Passes reports whether the same request may succeed soon. Such an error says that the cluster is between
// two leaders, or that a connection ended.
func (c Code) Passes() bool {
	switch c {
	case NoLeader, Interrupted, Overtaken, NotJoined:
		return true
	}
	return false
}

// Error is an error with a code. A program that gets the error over the network gets the code too. For
// errors.Is, two Errors with the same code are equal.
type Error struct {
	Code  Code
	text  string
	cause error
}

// Error implements error.
func (e *Error) Error() string { return e.text }

// Unwrap returns the error that was given a code.
func (e *Error) Unwrap() error { return e.cause }

// Is compares codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error) //nolint:errorlint // errors.Is has unwrapped it
	return ok && t.Code == e.Code
}

// Errorf makes an error with a code; its arguments are those of fmt.Errorf.
func Errorf(c Code, format string, args ...any) error { return With(c, fmt.Errorf(format, args...)) }

// With adds a code to an error; nil stays nil.
func With(c Code, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: c, text: err.Error(), cause: err}
}

// Of returns the code of an error, empty if it has none.
func Of(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Failure is an error in the form in which it is sent to another program.
type Failure struct {
	Text string `json:"error,omitempty"`
	Code Code   `json:"code,omitempty"`
}

// Failed returns the form in which an error is sent.
func Failed(err error) Failure {
	if err == nil {
		return Failure{}
	}
	return Failure{err.Error(), Of(err)}
}

// Err returns the error that Failed was given. It returns nil if that error was nil.
func (f Failure) Err() error {
	switch {
	case f.Text == "":
		return nil
	case f.Code == "":
		return errors.New(f.Text)
	}
	return &Error{Code: f.Code, text: f.Text}
}
