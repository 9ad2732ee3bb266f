//go:build !linux

package offline

import (
	"os"
	"testing"
)

// asNobody runs f. If the user is root, who may read every file, it skips the test.
func asNobody(t *testing.T, f func()) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	f()
}
