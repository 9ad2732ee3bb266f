package zkreal

import (
	"os"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/cluster"
)

// Required reports whether a missing ZooKeeper is a failure on this machine.
func Required() bool {
	return os.Getenv("ZLOCKD_REQUIRE_STOCK") == "1" || strings.EqualFold(os.Getenv("CI"), "true")
}

// Require ends the test unless it was built with the tag stock and ZooKeeper
// can be run here. Without the tag no test may depend on what is installed.
func Require(t testing.TB) {
	t.Helper()
	if !tagged {
		t.Skip("needs a ZooKeeper: make test-stock")
	}
	_, err := cluster.ZooKeeperArgs(nil, "")
	switch {
	case err == nil:
	case Required():
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}
