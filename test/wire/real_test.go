//go:build stock

package wire_test

import (
	"testing"

	"github.com/zlockd/zlockd/test/zkreal"
)

// The methods are proven against the real server: what they decode is then
// what the protocol means.
func TestRealServer(t *testing.T) {
	tryAll(t, func(t *testing.T) string { return zkreal.Start(t, zkreal.Config{TTL: true}).Addr })
}
