package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// TestRestoreFigures measures what docs/data.md says of a running cluster that is
// restored: three servers with a million nodes of 100 bytes, while clients write
// and read. Like TestFigures it runs only when asked for.
func TestRestoreFigures(t *testing.T) {
	if os.Getenv("ZLOCKD_FIGURES") == "" {
		t.Skip("measures; set ZLOCKD_FIGURES=1")
	}
	bin, dir := cluster.Build(t), t.TempDir()
	zoo, ours, file := filepath.Join(dir, "zoo"), filepath.Join(dir, "ours"), filepath.Join(dir, "backup")
	fill(t, zoo, 1_000_000)
	t.Log(measured(t, bin, "import", "--from", zoo, "--data-dir", ours))
	s := serve(t, bin, ours)
	s.backup(t, file)
	s.stop()

	c := cluster.Three(t, "--super-digest", superFlag)
	r := &running{admin: c.Servers[0].Admin}
	yes := clusterName(t, c.Servers[0])
	begun := time.Now()
	t.Log(r.zlock(t, "restore", file, "--yes", yes))
	t.Logf("into empty servers: %.2f s", time.Since(begun).Seconds())

	u := newUsers(t, c)
	time.Sleep(time.Second)
	u.answers.Store(0)
	time.Sleep(5 * time.Second)
	mean := u.answers.Swap(0) / 5
	pids := make([]int, len(c.Servers))
	for i, s := range c.Servers {
		pids[i] = s.Pid()
		t.Logf("server %d: %d MiB before", i+1, rss(pids[i])>>20)
		// its highest begins again
		must.OK(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pids[i]), []byte("5"), 0))
	}
	u.longest.Store(0)
	restored := make(chan time.Duration)
	begun = time.Now()
	go func() {
		t.Log(r.zlock(t, "restore", file, "--yes", yes))
		restored <- time.Since(begun)
	}()
	var seconds []int64
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
			seconds = append(seconds, u.answers.Swap(0))
		case <-u.ended:
			over = true
		}
	}
	switched := time.Now()
	conn := dial(t, c.Servers[1].Client)
	must.Get(conn.Get(t.Context(), "/d0001"))(t)
	t.Logf("first answer to a new session %d ms after the switch", time.Since(switched).Milliseconds())
	conn.Close(cancelled())
	t.Logf("over as many nodes: %.2f s, the switch after %.2f s", (<-restored).Seconds(),
		switched.Sub(begun).Seconds())
	t.Logf("answers a second: %d before, %v until the switch: slowest %d %%; longest answer %d ms", mean,
		seconds, 100*slices.Min(seconds)/mean, u.longest.Load())
	for i, pid := range pids {
		t.Logf("server %d: at most %d MiB", i+1, peakRSS(pid)>>10)
	}
	u.wait()
	c.SameState()
}

// users are sixteen clients that write and sixteen that read, until a restore
// ends their sessions.
type users struct {
	answers, longest atomic.Int64
	ended            chan struct{} // closed when the first is cut off
	once             sync.Once
	wg               sync.WaitGroup
}

func newUsers(t *testing.T, c *cluster.Ensemble) *users {
	u := &users{ended: make(chan struct{})}
	for i := range 32 {
		conn, path := dial(t, c.Servers[i%3].Client), fmt.Sprintf("/d%04d", i)
		u.wg.Go(func() {
			defer conn.Close(cancelled())
			for {
				asked := time.Now()
				var err error
				if i < 16 {
					_, err = conn.Set(context.Background(), path, []byte("x"), -1)
				} else {
					_, err = conn.Get(context.Background(), path)
				}
				if err != nil || conn.Err() != nil {
					u.once.Do(func() { close(u.ended) })
					return
				}
				u.answers.Add(1)
				took := time.Since(asked).Milliseconds()
				for was := u.longest.Load(); took > was && !u.longest.CompareAndSwap(was, took); was = u.longest.Load() {
				}
			}
		})
	}
	return u
}

func (u *users) wait() { u.wg.Wait() }
