package conn

import (
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestReadsDoNotAllocate(t *testing.T) {
	c := loose(t, stateWith(t))
	for _, req := range []struct {
		op   jute.OpCode
		body wire.Body
	}{
		{jute.OpGetData, wire.PathWatch("/short", false)},
		{jute.OpExists, wire.PathWatch("/short", false)},
		{jute.OpGetChildren2, wire.PathWatch("/", false)},
		{jute.OpGetData, wire.PathWatch("/short", true)}, // sets the same watch again
		{jute.OpGetData, wire.PathWatch("/missing", true)},
	} {
		frame := wire.AppendRequest(nil, 1, req.op, req.body)[4:]
		n := testing.AllocsPerRun(100, func() {
			must.That(t, c.handle(frame), "ended")
			c.out.Discard()
		})
		expect.Equal(t, n, 0, "%v allocates %v times", req.op, n)
	}
}

// BenchmarkHandle measures a read at the server, without the network and the client.
func BenchmarkHandle(b *testing.B) {
	c := loose(b, stateWith(b))
	one := wire.AppendRequest(nil, 1, jute.OpGetData, wire.PathWatch("/short", false))
	input := slices.Repeat(one, 16)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += 16 {
		c.reader.in.Drop()
		c.reader.in.Put(input)
		for {
			frame, _, _ := c.reader.in.Peek(1 << 20)
			if frame == nil {
				break
			}
			c.reader.in.Take(frame)
			c.handle(frame)
		}
		c.out.Discard()
	}
}
