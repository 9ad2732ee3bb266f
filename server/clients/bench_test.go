package clients

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// pump keeps `depth` requests under way on each of `conns` connections.
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
