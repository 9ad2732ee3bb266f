//go:build stock

package oracle_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/oracle"
)

// realConfig configures a ZooKeeper whose speed does not matter.
var realConfig = append(slices.Clone(config), "forceSync=no")

// Two ZooKeepers give the same answers. If they did not, a difference between ZooKeeper and zlockd would
// prove nothing.
func TestRealServersAgree(t *testing.T) {
	a, b := cluster.StartZooKeeper(t, realConfig...), cluster.StartZooKeeper(t, realConfig...)
	explore(t, oracle.NewRunner(a.Client, b.Client), seed(t), *opsFlag/4)
}

// A client cannot tell zlockd from the real server, however it pipelines requests, except where the table of
// known differences says so.
func TestZlockdAgreesWithRealServer(t *testing.T) {
	a := cluster.StartZooKeeper(t, realConfig...)
	r := oracle.NewRunner(a.Client, startZlockd(t))
	r.Pipeline, r.Exact = true, true
	explore(t, r, seed(t), *opsFlag)
}

// A cluster answers like one server: connections to its members see the same history once the members have
// caught up.
func TestClusterAgreesWithRealServer(t *testing.T) {
	e := zlockd(t, cluster.Options{Nodes: 3})
	r := oracle.NewRunner(cluster.StartZooKeeper(t, realConfig...).Client, e.Addrs())
	r.Pipeline, r.Exact = true, true
	explore(t, r, seed(t), *opsFlag/10)
}

// The scripts in testdata show former differences, and cases that random programs meet too rarely.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	must.That(t, err == nil && len(files) != 0, "no scripts: %v", err)
	r := oracle.NewRunner(cluster.StartZooKeeper(t, realConfig...).Client, startZlockd(t))
	r.Pipeline, r.Exact = true, true
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := must.Get(os.ReadFile(file))(t)
			p := must.Get(oracle.Parse(string(text)))(t)
			expect.OK(t, r.Run(p))
		})
	}
}
