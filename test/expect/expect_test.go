package expect

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// recorder records the messages of a test instead of failing.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Error(args ...any)                 { r.said += fmt.Sprint(args...) }
func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func TestDifferencesAreTold(t *testing.T) {
	wrapped := fmt.Errorf("read: %w", io.EOF)
	for want, is := range map[string]func(t testing.TB) bool{
		"":                          func(t testing.TB) bool { return Equal(t, 1, 1) },
		"n 7: got 1, want 2":        func(t testing.TB) bool { return Equal(t, 1, 2, "n %d", 7) },
		`got "a", want "b"`:         func(t testing.TB) bool { return Equal(t, "a", "b") },
		"got\n[1], want\n[1 2]":     func(t testing.TB) bool { return List(t, []int{1}, []int{1, 2}) },
		"read: EOF":                 func(t testing.TB) bool { return OK(t, wrapped) },
		"it is taken: no error":     func(t testing.TB) bool { return Fails(t, nil, "it is taken") },
		"no \"b\" in:\naa":          func(t testing.TB) bool { return Has(t, "aa", "b") },
		"\"b\" in:\nabc":            func(t testing.TB) bool { return Lacks(t, "abc", "b") },
		"5 of 6":                    func(t testing.TB) bool { return That(t, false, "%d of 6", 5) },
		"got the error x, want EOF": func(t testing.TB) bool { return Is(t, errors.New("x"), io.EOF) },
	} {
		r := &recorder{TB: t}
		if held := is(r); held != (want == "") || r.said != want {
			t.Errorf("%v, %q instead of %q", held, r.said, want)
		}
	}
	r := &recorder{TB: t}
	held := List(r, nil, []int{}) && OK(r, nil) && Fails(r, io.EOF) && Is(r, wrapped, io.EOF) &&
		Has(r, "abc", "b") && Lacks(r, "abc", "d") && That(r, true, "x") && OK(r, Err(1, nil))
	if !held || r.said != "" {
		t.Errorf("what holds is told as %q", r.said)
	}
}
