//go:build stock

package wire_test

import (
	"testing"

	"github.com/zlockd/zlockd/test/cluster"
)

// The test runs the methods against a real ZooKeeper, which proves that they decode the protocol correctly.
func TestRealServer(t *testing.T) {
	tryAll(t, func(t *testing.T) string {
		return cluster.StartZooKeeper(t, "extendedTypesEnabled=true").Client
	})
}
