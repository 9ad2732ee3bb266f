package must

import (
	"net"
	"testing"
)

// Refused returns an address that refuses connections until the test ends. It is the local end of an open
// connection, so no listener gets its port.
func Refused(t testing.TB) string {
	t.Helper()
	ln := Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { ln.Close() })
	out := Get(net.Dial("tcp", ln.Addr().String()))(t)
	t.Cleanup(func() { out.Close() })
	return out.LocalAddr().String()
}
