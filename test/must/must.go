// Package must ends a test when a step fails that is not the test's subject, such as reading a file or
// starting a server. Equal, List, Fails, Is, Has, Lacks and That compare as in package expect.
package must

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
)

// OK ends the test if err is an error.
func OK(t testing.TB, err error, what ...any) {
	if err == nil {
		return
	}
	t.Helper()
	expect.OK(t, err, what...)
	t.FailNow()
}

// Get returns a value, or ends the test if there is an error instead:
//
//	b := must.Get(os.ReadFile(name))(t)
func Get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		if err != nil {
			t.Helper()
			OK(t, err)
		}
		return v
	}
}

// Get2 is Get for two values.
func Get2[A, B any](a A, b B, err error) func(testing.TB) (A, B) {
	return func(t testing.TB) (A, B) {
		if err != nil {
			t.Helper()
			OK(t, err)
		}
		return a, b
	}
}

// Await waits until ok() reports true. The test ends if that takes longer than `limit`. Choose a generous
// limit, because machines are busy.
func Await(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func Equal[T comparable](t testing.TB, got, want T, what ...any) {
	if got == want {
		return
	}
	t.Helper()
	expect.Equal(t, got, want, what...)
	t.FailNow()
}

func List[S ~[]E, E comparable](t testing.TB, got, want S, what ...any) {
	if slices.Equal(got, want) {
		return
	}
	t.Helper()
	expect.List(t, got, want, what...)
	t.FailNow()
}

func Fails(t testing.TB, err error, what ...any) {
	if err != nil {
		return
	}
	t.Helper()
	expect.Fails(t, err, what...)
	t.FailNow()
}

func Is(t testing.TB, err, want error, what ...any) {
	if errors.Is(err, want) {
		return
	}
	t.Helper()
	expect.Is(t, err, want, what...)
	t.FailNow()
}

func Has(t testing.TB, text, part string, what ...any) {
	if strings.Contains(text, part) {
		return
	}
	t.Helper()
	expect.Has(t, text, part, what...)
	t.FailNow()
}

func Lacks(t testing.TB, text, part string, what ...any) {
	if !strings.Contains(text, part) {
		return
	}
	t.Helper()
	expect.Lacks(t, text, part, what...)
	t.FailNow()
}

func That(t testing.TB, holds bool, format string, args ...any) {
	if holds {
		return
	}
	t.Helper()
	expect.That(t, holds, format, args...)
	t.FailNow()
}
