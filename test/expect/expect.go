// Package expect compares what a test got with what it wants. A difference fails the test, which continues;
// the functions with the same names in package `must` end it. A message is a format and its arguments, as for
// t.Errorf; it need not repeat the two values. Tests of models compare millions of times. Therefore only a
// difference calls t.Helper, which looks at the stack.
package expect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Equal expects that two values are the same.
func Equal[T comparable](t testing.TB, got, want T, what ...any) bool {
	if got == want {
		return true
	}
	t.Helper()
	return fail(t, what, "got %s, want %s", show(got), show(want))
}

// List expects the same elements in the same order; nil is an empty list.
func List[S ~[]E, E comparable](t testing.TB, got, want S, what ...any) bool {
	if slices.Equal(got, want) {
		return true
	}
	t.Helper()
	return fail(t, what, "got\n%s, want\n%s", show(got), show(want))
}

// OK expects no error.
func OK(t testing.TB, err error, what ...any) bool {
	if err == nil {
		return true
	}
	t.Helper()
	return fail(t, what, "%v", err)
}

// Fails expects an error.
func Fails(t testing.TB, err error, what ...any) bool {
	if err != nil {
		return true
	}
	t.Helper()
	return fail(t, what, "no error")
}

// Is expects an error that is `want` or wraps it.
func Is(t testing.TB, err, want error, what ...any) bool {
	if errors.Is(err, want) {
		return true
	}
	t.Helper()
	return fail(t, what, "got the error %v, want %v", err, want)
}

// Has expects a text with a part in it.
func Has(t testing.TB, text, part string, what ...any) bool {
	if strings.Contains(text, part) {
		return true
	}
	t.Helper()
	return fail(t, what, "no %q in:\n%s", part, text)
}

// Lacks expects a text without a part in it.
func Lacks(t testing.TB, text, part string, what ...any) bool {
	if !strings.Contains(text, part) {
		return true
	}
	t.Helper()
	return fail(t, what, "%q in:\n%s", part, text)
}

// That expects a condition to hold.
func That(t testing.TB, holds bool, format string, args ...any) bool {
	if holds {
		return true
	}
	t.Helper()
	t.Errorf(format, args...)
	return false
}

// Err returns the error of a call that has one other result.
func Err[T any](_ T, err error) error { return err }

func fail(t testing.TB, what []any, format string, args ...any) bool {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	if len(what) > 0 {
		text = fmt.Sprintf(what[0].(string), what[1:]...) + ": " + text
	}
	t.Error(text)
	return false
}

func show(v any) string {
	switch v.(type) {
	case string, []byte, []string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%+v", v)
}
