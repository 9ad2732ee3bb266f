//go:build stock

package stock

import (
	"path/filepath"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// TestKazoo runs Debian's kazoo: plain operations, every recipe, and locks
// contended by processes.
func TestKazoo(t *testing.T) {
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/client.py")
	g := startTarget(t, generous())
	script := must.Get(filepath.Abs("testdata/kazoo/driver.py"))(t)
	driver{
		name:  "kazoo",
		args:  []string{"/usr/bin/python3", "-B", script},
		least: 41,
		keys:  6,
	}.run(t, g)
}
