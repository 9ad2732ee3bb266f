package locks_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/client/recipe/waits"
	"github.com/zlockd/zlockd/server/locks"
	"github.com/zlockd/zlockd/test/must"
)

// BenchmarkScan looks at up to 100,000 contenders, and reports how long its pieces hold the state lock. It
// measures each piece twice: by the processor time of the thread, which includes its share of garbage
// collection, and by the clock, which also runs while the machine does other work.
func BenchmarkScan(b *testing.B) {
	for _, size := range []struct{ locks, each int }{{10_000, 3}, {33_000, 3}, {1, 100_000}} {
		b.Run(fmt.Sprintf("%dx%d", size.locks, size.each), func(b *testing.B) {
			f := newForest(b)
			f.crowd("/l", size.locks, size.each)
			var assembled time.Duration
			var held, ran []time.Duration
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				s := locks.NewScan()
				for more := true; more; {
					begun, cpu := time.Now(), threadTime(b)
					more = s.Step(f.t)
					ran = append(ran, threadTime(b)-cpu)
					held = append(held, time.Since(begun))
					s.Rest()
				}
				begun := time.Now()
				list := s.Locks(f)
				waits.Graph(list)
				assembled += time.Since(begun)
			}
			for by, all := range map[string][]time.Duration{"cpu": ran, "clock": held} {
				slices.Sort(all)
				for what, at := range map[string]int{"median": len(all) / 2, "p99.9": len(all) * 999 / 1000,
					"longest": len(all) - 1} {
					b.ReportMetric(float64(all[at].Microseconds()), "µs-"+by+"/"+what)
				}
			}
			b.ReportMetric(float64(assembled.Milliseconds())/float64(b.N), "ms/assembling")
		})
	}
}

// threadTime is how long this thread has run.
func threadTime(tb testing.TB) time.Duration {
	var t unix.Timespec
	must.OK(tb, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}
