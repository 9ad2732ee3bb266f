// Package must ends a test when a step fails that the test is not about: a file that cannot be
// read, a server that does not start, a state that is not reached.
package must

import (
	"testing"
	"time"
)

// OK ends the test if err is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns a value, or ends the test if there is an error instead:
//
//	b := must.Get(os.ReadFile(name))(t)
func Get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return v
	}
}

// Await waits until ok reports true. The test ends if that takes longer than limit, which is
// generous: machines are busy.
func Await(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
