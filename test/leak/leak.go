// Package leak finds goroutines that tests leave behind, also in parallel tests.
package leak

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// patience bounds the wait for goroutines that are about to end.
const patience = 30 * time.Second

var checks atomic.Int64

// Check fails the test if a goroutine that the test began is still there after all other cleanups. Call Check
// before anything that registers a cleanup. A label on each goroutine names its test, so goroutines of
// parallel tests do not count. Goroutines that a runtime timer started have no label: AtEnd finds them. A
// goroutine with a text of `except` in its stack does not count.
func Check(t testing.TB, except ...string) {
	t.Helper()
	part := mark(t.Name())
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if stacks := left(part, except, patience); len(stacks) > 0 {
			t.Errorf("the test leaves goroutines behind:\n%s", strings.Join(stacks, "\n\n"))
		}
	})
}

// mark() labels this goroutine and those that it will begin. It returns the text of the label in their
// stacks.
func mark(name string) (part string) {
	const key = "leak.Check"
	value := fmt.Sprintf("%s %d", name, checks.Add(1))
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(key, value)))
	return fmt.Sprintf("%q:%q", key, value)
}

// AtEnd is for the end of TestMain, after everything that the tests share was closed. If a stack of a
// goroutine contains `part` and no text of `except`, AtEnd prints the stack and returns 1. Otherwise it
// returns `code`. If `code` is not 0, AtEnd looks at no stack.
func AtEnd(code int, part string, except ...string) int {
	if code != 0 {
		return code
	}
	stacks := left(part, append(except, "/test/leak.AtEnd+"), patience)
	if len(stacks) == 0 {
		return 0
	}
	fmt.Fprintf(os.Stderr, "the tests leave goroutines behind:\n%s\n", strings.Join(stacks, "\n\n"))
	return 1
}

// left() waits until no stack contains `part`. After the time `most` it returns the stacks that still do. It
// looks at the stacks only after a pause, because a look takes some milliseconds of processor time: the
// goroutines of a client that was just closed have ended by then.
func left(part string, except []string, most time.Duration) (stacks []string) {
	end := time.Now().Add(most)
	for wait := min(5*time.Millisecond, most); ; wait = min(2*wait, 100*time.Millisecond) {
		time.Sleep(wait)
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1) // a write to a buffer cannot fail
		stacks = slices.DeleteFunc(strings.Split(b.String(), "\n\n"), func(s string) bool {
			within := func(part string) bool { return strings.Contains(s, part) }
			// The goroutine of a test ends with the test.
			return !within(part) || within("\ttesting.tRunner+") || slices.ContainsFunc(except, within)
		})
		if len(stacks) == 0 || time.Now().After(end) {
			return stacks
		}
	}
}
