package conn

import (
	"bytes"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestBytesThatAreAPing(t *testing.T) {
	ping := wire.AppendRequest(nil, jute.XidPing, jute.OpPing, nil)
	must.Equal(t, len(ping), pingSize)
	expect.That(t, isPing(ping), "a ping: want isPing(ping)")
	expect.That(t, isPing(append(ping, 9)), "a ping: want isPing(append(ping, 9))")
	expect.That(t, isPing(wire.AppendRequest(nil, 7, jute.OpPing, nil)), "a ping with another number")
	for _, at := range []int{0, 1, 2, 3, 8, 9, 10, 11} {
		other := bytes.Clone(ping)
		other[at] ^= 1
		expect.That(t, !isPing(other), "another byte %d", at)
	}
}
