//go:build stock

package wire_test

import (
	"testing"

	"github.com/zlockd/zlockd/test/cluster"
)

// The methods are proven against the real server: what they decode is then what the protocol means.
func TestRealServer(t *testing.T) {
	tryAll(t, func(t *testing.T) string {
		return cluster.StartZooKeeper(t, "extendedTypesEnabled=true").Client
	})
}
