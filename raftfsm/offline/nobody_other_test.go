//go:build !linux

package offline

import (
	"os"
	"testing"
)

// asNobody runs f; for root, who may read each file, it does not.
func asNobody(t *testing.T, f func()) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	f()
}
