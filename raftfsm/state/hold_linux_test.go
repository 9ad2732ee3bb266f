package state

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// BenchmarkHolds writes a snapshot of a million nodes of 100 bytes and as many sessions. It reports for how
// long the snapshot holds the state at its start, and the longest hold after that. Only the time in which the
// thread ran counts.
func BenchmarkHolds(b *testing.B) {
	for _, sessions := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("%d-sessions", sessions), func(b *testing.B) {
			s := New("holds")
			data := string(make([]byte, 100))
			for i := range 1_000_000 {
				if i%1000 == 0 {
					putNode(b, s, fmt.Sprintf("/d%04d", i/1000), "")
				}
				putNode(b, s, fmt.Sprintf("/d%04d/n%06d", i/1000, i), data)
			}
			for range sessions {
				s.sessions.Create(1000, [jute.PasswordSize]byte{}, 1, "127.0.0.1", 0)
			}
			runtime.GC()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var starts, reads []time.Duration
			for b.Loop() {
				begun := threadTime(b)
				snap := s.StartSnapshot(Position{})
				starts = append(starts, threadTime(b)-begun)
				must.OK(b, snap.Write(io.Discard, func(f func()) {
					begun := threadTime(b)
					f()
					reads = append(reads, threadTime(b)-begun)
				}))
				snap.Close()
			}
			b.ReportMetric(float64(slices.Max(starts).Microseconds()), "µs/start")
			b.ReportMetric(float64(slices.Max(reads).Microseconds()), "µs/longest-read")
		})
	}
}

func putNode(tb testing.TB, s *State, path, data string) {
	s.zxid++
	body := jute.AppendString(jute.AppendString(nil, path), data)
	body = jute.AppendInt(jute.AppendACL(body, jute.WorldAnyone), 0)
	_, code, _ := s.tree.Apply(&tree.Change{Zxid: s.zxid}, jute.OpCreate, body, nil)
	must.Equal(tb, code, jute.OK)
}

// threadTime returns how long this thread has run.
func threadTime(tb testing.TB) time.Duration {
	var t unix.Timespec
	must.OK(tb, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}
