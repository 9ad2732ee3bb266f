//go:build !linux

package offline

import (
	"os"
	"testing"
)

// asNobody runs f, except as root, who may read everything.
func asNobody(t *testing.T, f func()) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	f()
}
