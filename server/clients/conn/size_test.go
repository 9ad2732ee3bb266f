package conn

import (
	"testing"
	"unsafe"

	"github.com/zlockd/zlockd/test/expect"
)

// There may be a hundred thousand connections. Each must fit into 768 bytes, one of the sizes of blocks that
// Go allocates.
func TestConnectionIsSmall(t *testing.T) {
	expect.That(t, unsafe.Sizeof(Conn{}) <= 768, "a connection takes %d bytes", unsafe.Sizeof(Conn{}))
}
