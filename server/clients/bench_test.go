package clients

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// loose makes a connection of the server that no goroutine serves.
func (r *rig) loose() *conn {
	a, b := net.Pipe()
	r.t.Cleanup(func() { a.Close() })
	c := newConn(&r.srv.shared, b, nil)
	c.replica = r.srv.entrance.Replica()
	c.proof.ids.Store(identity.Unproved(c.from.Host, false))
	c.session = 1
	return c
}

func TestReadsDoNotAllocate(t *testing.T) {
	r := newRig(t, options.Options{})
	w := r.client()
	create(t, w, "/a", strings.Repeat("x", 100), 0)
	c := r.loose()
	for _, req := range []struct {
		op   jute.OpCode
		body wire.Body
	}{
		{jute.OpGetData, wire.PathWatch("/a", false)},
		{jute.OpExists, wire.PathWatch("/a", false)},
		{jute.OpGetChildren2, wire.PathWatch("/", false)},
		{jute.OpGetData, wire.PathWatch("/a", true)}, // the same watch again
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

// pump keeps depth requests under way on each of several connections.
func pump(b *testing.B, r *rig, conns, depth int, op jute.OpCode, body wire.Body) {
	b.Helper()
	list := make([]*wire.Conn, conns)
	for i := range list {
		list[i] = r.client()
	}
	one := wire.AppendRequest(nil, 1, op, body)
	many := slices.Repeat(one, depth)
	reply := func(c *wire.Conn) int {
		must.OK(b, c.WriteRaw(one))
		f := must.Get(c.ReadFrame())(b)
		return len(f) + 4
	}(list[0])
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, c := range list {
		n := b.N/conns + min(1, b.N%conns/(i+1))
		wg.Go(func() {
			buf := make([]byte, reply*depth)
			for n > 0 {
				k := min(n, depth)
				if _, err := c.Conn.Write(many[:k*len(one)]); err != nil {
					b.Error(err)
					return
				}
				if _, err := io.ReadFull(c.Conn, buf[:k*reply]); err != nil {
					b.Error(err)
					return
				}
				n -= k
			}
		})
	}
	wg.Wait()
}

func BenchmarkGetData(b *testing.B) {
	for _, s := range []struct{ conns, depth int }{{1, 1}, {16, 1}, {16, 16}} {
		b.Run(fmt.Sprintf("conns=%d/depth=%d", s.conns, s.depth), func(b *testing.B) {
			r := newRig(b, options.Options{})
			create(b, r.client(), "/a", strings.Repeat("x", 100), 0)
			pump(b, r, s.conns, s.depth, jute.OpGetData, wire.PathWatch("/a", false))
		})
	}
}

func BenchmarkSetData(b *testing.B) {
	for _, s := range []struct{ conns, depth int }{{1, 1}, {16, 16}} {
		b.Run(fmt.Sprintf("conns=%d/depth=%d", s.conns, s.depth), func(b *testing.B) {
			r := newRig(b, options.Options{})
			create(b, r.client(), "/a", "", 0)
			pump(b, r, s.conns, s.depth, jute.OpSetData, wire.SetData("/a", make([]byte, 100), -1))
		})
	}
}

// BenchmarkHandle is the server's part of a read: no network, no client.
func BenchmarkHandle(b *testing.B) {
	r := newRig(b, options.Options{})
	create(b, r.client(), "/a", strings.Repeat("x", 100), 0)
	c := r.loose()
	one := wire.AppendRequest(nil, 1, jute.OpGetData, wire.PathWatch("/a", false))
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
