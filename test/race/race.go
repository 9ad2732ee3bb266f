// Package race tells tests whether they run under the race detector, which makes all code about ten times
// slower.
package race

import "testing"

// Alone skips a test under the race detector because the test runs on one goroutine: it cannot race, and the
// plain run makes the same checks.
func Alone(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("one goroutine: the race detector finds nothing here")
	}
}
