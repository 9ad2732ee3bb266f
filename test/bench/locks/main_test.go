package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/zlocktest"
)

// runBench runs the program on a new server.
func runBench(t *testing.T, args ...string) (report, error) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), append([]string{"-json", "-servers", zlocktest.Start(t).Addr}, args...), &out)
	var r report
	if jerr := json.Unmarshal([]byte(out.String()), &r); jerr != nil {
		t.Fatalf("%v: %s", errors.Join(err, jerr), out.String())
	}
	return r, err
}

// runUntil runs the program longer and longer until a lock was acquired: on a busy machine little may happen
// at first.
func runUntil(t *testing.T, first time.Duration, args ...string) (r report, err error) {
	t.Helper()
	for d := first; d <= 30*time.Second && r.Acquired == 0 && err == nil; d *= 10 {
		r, err = runBench(t, append(args, "-duration", d.String())...)
	}
	return r, err
}

func TestEveryRecipeExcludes(t *testing.T) {
	for _, recipe := range benchRecipes {
		t.Run(recipe, func(t *testing.T) {
			r, err := runUntil(t, 300*time.Millisecond, "-recipe", recipe, "-clients", "3", "-read-ratio", "0.5")
			if err != nil || r.Acquired == 0 || r.Lost+r.Errors+r.Violations > 0 || r.Acquire.N != r.Acquired ||
				r.Acquire.P50 <= 0 {
				t.Errorf("%v: %+v", err, r)
			}
		})
	}
}

func TestFaultsAreSurvived(t *testing.T) {
	r, err := runUntil(t, time.Second, "-fault", "cut", "-fault-every", "100ms", "-clients", "2", "-goroutines",
		"2", "-locks", "2")
	if err != nil || r.Acquired == 0 || r.Violations > 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

// The measured price of a lock counts only the lock's own requests. One worker needs a create, a list with a
// read of its own node, and a delete.
func TestPriceIsThatOfTheLock(t *testing.T) {
	r, err := runUntil(t, 300*time.Millisecond)
	if err != nil || r.Acquired == 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	// The sum also contains the requests that create the directory, and the requests of an unfinished last
	// cycle.
	if all := r.Requests * float64(r.Acquired); all > 4*float64(r.Acquired)+12 {
		t.Errorf("%.0f requests for %d acquisitions", all, r.Acquired)
	}
}

func TestViolationIsReported(t *testing.T) {
	m := newMeter(&benchFlags{Clients: 2, Goroutines: 1, Locks: 1, Recipe: "mutex", Fault: "none"})
	valid := func() bool { return true }
	l := m.locks[0]
	l.writers.Add(1) // as if a writer were inside
	m.hold(t.Context(), l, grant{valid: valid})
	l.writers.Add(-1)
	m.hold(t.Context(), l, grant{token: 7, valid: valid})
	m.hold(t.Context(), l, grant{token: 6, valid: valid})
	var r report
	if m.judge(&r); r.Violations != 2 || m.firstViolation == "" {
		t.Errorf("%d violations, first %q", r.Violations, m.firstViolation)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-recipe", "none"}, {"-policy", "none"}, {"-fault", "fire"}, {"-clients", "0"}, {"-read-ratio", "2"},
		{"-duration", "0s"},
		{"-fault", "kill-leader"}, {"-recipe", "go-zookeeper", "-fault", "cut"}, {"more"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}
