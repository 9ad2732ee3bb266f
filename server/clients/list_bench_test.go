package clients

import (
	"fmt"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// BenchmarkLists lists directories of many names, with and without a change before each list.
func BenchmarkLists(b *testing.B) {
	for _, n := range []int{5_000, 100_000, 300_000} {
		for _, changes := range []bool{false, true} {
			b.Run(fmt.Sprintf("names=%d/changes=%v", n, changes), func(b *testing.B) {
				r := newRig(b, options.Options{MaxConnsPerAddr: -1})
				c := r.client()
				create(b, c, "/dir", "", 0)
				for at := 0; at < n; at += 500 {
					var p batch
					for i := range 500 {
						p.add(jute.OpCreate, wire.Create(fmt.Sprintf("/dir/name-%010d", at+i), nil, jute.WorldAnyone, 0))
					}
					must.OK(b, c.WriteRaw(p.b))
					for range 500 {
						must.Get(c.Next())(b)
					}
				}
				for i := 0; b.Loop(); i++ {
					if changes {
						create(b, c, fmt.Sprintf("/dir/more-%d", i), "", 0)
					}
					call(b, c, jute.OK, jute.OpGetChildren, wire.PathWatch("/dir", false))
				}
			})
		}
	}
}
