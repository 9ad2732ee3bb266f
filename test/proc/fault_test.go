package proc

import (
	"flag"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
)

var (
	kills  = flag.Int("kills", 3, "how often the leader is killed")
	pauses = flag.Int("pauses", 5, "how often the leader is paused")
)

func report(t *testing.T, what string, list []time.Duration) {
	slices.Sort(list)
	t.Logf("%s: p50 %v, p99 %v, max %v (n=%d)", what, list[len(list)/2].Round(10*time.Microsecond),
		list[len(list)*99/100].Round(10*time.Microsecond), list[len(list)-1].Round(10*time.Microsecond), len(list))
}

// TestG2G21KillLeader kills the leader under load. Writes continue soon, the clients of the other servers
// notice only a pause, and nothing is lost or doubled.
func TestG2G21KillLeader(t *testing.T) {
	c := cluster.Three(t)
	report(t, "writes resume after kill -9 of the leader", killLeader(t, c, *kills))
	c.SameState()
}

// TestG2KillAll kills all servers at once. Every answered write must be on disk.
func TestG2KillAll(t *testing.T) {
	c := cluster.Three(t)
	w := StartWriters(t, c, 2, 30*time.Second)
	for range 2 {
		time.Sleep(500 * time.Millisecond)
		for _, s := range c.Servers {
			s.Signal(syscall.SIGKILL)
		}
		for _, s := range c.Servers {
			<-s.Exited()
		}
		for _, s := range c.Servers {
			s.Start()
		}
		c.WaitServing(time.Minute)
	}
	w.Check(c)
	c.SameState()
}

// TestG2KillSingle kills a lone server under load, again and again.
func TestG2KillSingle(t *testing.T) {
	c := cluster.Run(t, cluster.Options{})
	w := StartWriters(t, c, 8, 30*time.Second)
	for range 5 {
		time.Sleep(300 * time.Millisecond)
		c.Servers[0].Kill()
		c.Servers[0].Start()
		c.Servers[0].WaitServing(time.Minute)
	}
	w.Check(c)
	_, expired := w.disturbances(c.Servers)
	expect.Equal(t, expired, 0, "sessions lost over a restart")
}

// TestR1PauseLeader stops the leader for longer than its lease and continues
// it, under load: the servers must still hold the same state.
func TestR1PauseLeader(t *testing.T) {
	c := cluster.Three(t)
	w := StartWriters(t, c, 2, 20*time.Second)
	for range *pauses {
		time.Sleep(200 * time.Millisecond)
		lead := c.WaitLeader()
		lead.Signal(syscall.SIGSTOP)
		time.Sleep(1200 * time.Millisecond)
		lead.Signal(syscall.SIGCONT)
	}
	time.Sleep(time.Second)
	c.WaitServing(time.Minute)
	w.Check(c)
	c.SameState()
	_, expired := w.disturbances(c.Servers)
	expect.Equal(t, expired, 0, "sessions lost over a pause")
}

// TestG24RollingRestart restarts one server after another with an orderly stop.
func TestG24RollingRestart(t *testing.T) {
	c := cluster.Three(t)
	w := StartWriters(t, c, 1, 10*time.Second)
	// Try several times: a faulty restart delays writes each time, a busy machine only sometimes.
	best := time.Duration(math.MaxInt64)
	for try := 0; try < 5 && best > 2*time.Second; try++ {
		w.slowest()
		for _, s := range c.Servers {
			s.Stop()
			s.Start()
			s.WaitServing(time.Minute)
		}
		time.Sleep(300 * time.Millisecond)
		best = min(best, w.slowest())
	}
	expect.That(t, best <= 2*time.Second, "a write waited %v", best)
	w.Check(c)
	c.SameState()
	_, expired := w.disturbances(c.Servers)
	expect.Equal(t, expired, 0, "sessions lost over a rolling restart")
}

// TestR25StopAll stops all servers for longer than any session's timeout. A session whose client keeps asking
// must not end.
func TestR25StopAll(t *testing.T) {
	c := cluster.Three(t)
	w := StartWriters(t, c, 2, 9*time.Second)
	time.Sleep(300 * time.Millisecond)
	for _, s := range c.Servers {
		s.Signal(syscall.SIGSTOP)
	}
	time.Sleep(10 * time.Second)
	for _, s := range c.Servers {
		s.Signal(syscall.SIGCONT)
	}
	time.Sleep(2 * time.Second)
	c.WaitServing(time.Minute)
	w.Check(c)
	_, expired := w.disturbances(c.Servers)
	expect.Equal(t, expired, 0, "sessions lost while everything stood still")
}
