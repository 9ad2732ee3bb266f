package locks_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/locks"
)

// BenchmarkScan looks at up to 100,000 contenders and tells how long the pieces
// took: for so long the state lock is held.
func BenchmarkScan(b *testing.B) {
	for _, size := range []struct{ locks, each int }{{10_000, 3}, {33_000, 3}, {1, 100_000}} {
		b.Run(fmt.Sprintf("%dx%d", size.locks, size.each), func(b *testing.B) {
			f := newForest(b)
			f.dirs("/l")
			for l := range size.locks {
				dir := fmt.Sprintf("/l/%06d", l)
				f.node(1, dir, "", 0, jute.WorldAnyone)
				for i := range size.each {
					f.node(int64(1+(l+i)%500), dir+"/lock-", `{"v":1,"host":"web","pid":7,"reason":"nightly"}`, 3, jute.WorldAnyone)
				}
			}
			var assembled time.Duration
			var held []time.Duration
			for b.Loop() {
				s := locks.NewScan()
				for more := true; more; {
					begun := time.Now()
					more = s.Step(f.t)
					held = append(held, time.Since(begun))
					s.Rest()
				}
				begun := time.Now()
				list := s.Locks(f)
				locks.WaitGraph(list)
				assembled += time.Since(begun)
			}
			slices.Sort(held)
			b.ReportMetric(float64(held[len(held)/2].Microseconds()), "µs/median-piece")
			b.ReportMetric(float64(held[len(held)*999/1000].Microseconds()), "µs/p99.9-piece")
			b.ReportMetric(float64(assembled.Milliseconds())/float64(b.N), "ms/assembling")
		})
	}
}
