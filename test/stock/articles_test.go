//go:build stock

package stock

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
)

// The programs of the articles that made these locks known, with the clients
// that they use. The herd is counted in test/articles.

// TestZkCliSharedLock replays a shared lock made by hand in zkCli.sh.
func TestZkCliSharedLock(t *testing.T) {
	t.Parallel()
	replay(t, freshTarget(t, cluster.Options{Nodes: 1}), "sharedlock")
}

// TestTutorialLock runs the tutorial's lock with its fifteen contenders. A
// wake-up that the program loses costs it half a minute.
func TestTutorialLock(t *testing.T) {
	driver{name: "tutorial", args: javaDriver(t, "TutorialLock"), least: 2, keys: 1,
		timeout: 10 * time.Minute}.run(t, startTarget(t, generous()))
}
