package conn

import (
	"testing"
	"unsafe"

	"github.com/zlockd/zlockd/test/expect"
)

// There may be a hundred thousand connections, and each takes a block of memory of a fixed size: 768 bytes.
func TestConnectionIsSmall(t *testing.T) {
	expect.That(t, unsafe.Sizeof(Conn{}) <= 768, "a connection takes %d bytes", unsafe.Sizeof(Conn{}))
}
