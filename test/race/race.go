// Package race tells tests whether they run under the race detector, which makes everything some ten times
// as slow.
package race

import "testing"

// Alone leaves a test out under the race detector, as it runs on one goroutine: nothing in it can race, and
// the plain run has made the same checks.
func Alone(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("one goroutine: the race detector finds nothing here")
	}
}
