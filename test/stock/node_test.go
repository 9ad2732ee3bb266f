//go:build stock

package stock

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// TestNodeClient runs node-zookeeper-client, which npm installs into a
// temporary directory. It is the one client that is skipped when it cannot be
// had.
func TestNodeClient(t *testing.T) {
	need(t, "node", "npm")
	dir := filepath.Join(scratch, "node")
	must.OK(t, os.CopyFS(dir, os.DirFS("testdata/node")))
	npm := exec.Command("npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install node-zookeeper-client: %v\n%s", err, out)
	}
	driver{
		name: "node", args: []string{"node", filepath.Join(dir, "driver.js")}, least: 7, keys: 1,
	}.run(t, startTarget(t, generous()))
}
