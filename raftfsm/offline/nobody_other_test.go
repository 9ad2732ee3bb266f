//go:build !linux

package offline

import (
	"os"
	"testing"
)

// asNobody runs f, unless root would run it, who may read everything.
func asNobody(t *testing.T, f func()) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	f()
}
