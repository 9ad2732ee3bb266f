package proc

import (
	"flag"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
)

var znodes = flag.Int("znodes", 50_000, "nodes of a large tree")

// killLeader kills the leader some times under load and returns when writes
// went on each time.
func killLeader(t *testing.T, c *cluster.Ensemble, times int) (resumed []time.Duration) {
	t.Helper()
	w := StartWriters(t, c, 2, 10*time.Second)
	for range times {
		time.Sleep(300 * time.Millisecond)
		lead := c.WaitLeader()
		lost, ended := w.disturbances(c.Others(lead))
		at := time.Now()
		lead.Kill()
		resumed = append(resumed, w.awaitWrite(at.Add(2*time.Millisecond), lead, 20*time.Second))
		time.Sleep(300 * time.Millisecond)
		if l, e := w.disturbances(c.Others(lead)); l != lost || e != ended {
			t.Errorf("clients of the survivors lost %d connections and %d sessions", l-lost, e-ended)
		}
		lead.Start()
		lead.WaitServing(60 * time.Second)
	}
	w.Check(c)
	return resumed
}

// restartAll ends every server, starts all again, and returns how long it took
// from there until each of them served.
func restartAll(t *testing.T, c *cluster.Ensemble, sig syscall.Signal) time.Duration {
	t.Helper()
	for _, s := range c.Servers {
		s.MustSignal(sig)
	}
	for _, s := range c.Servers {
		select {
		case <-s.Exited():
		case <-time.After(30 * time.Second):
			t.Fatalf("server %d did not stop", s.ID)
		}
	}
	at := time.Now()
	for _, s := range c.Servers {
		s.Start()
	}
	for _, s := range c.Servers {
		s.WaitServing(60 * time.Second)
	}
	return time.Since(at)
}

// TestG21LargeTree compares the fail-over of a large tree with that of an
// empty one, and stops and starts the whole cluster with it.
func TestG21LargeTree(t *testing.T) {
	c := cluster.Three(t)
	report(t, "writes resume with an empty tree", killLeader(t, c, *kills))
	began := time.Now()
	Fill(t, c.WaitLeader(), *znodes)
	t.Logf("%d nodes created in %v", *znodes, time.Since(began).Round(time.Millisecond))
	large := killLeader(t, c, *kills)
	report(t, "writes resume with the large tree", large)
	if p50 := large[len(large)/2]; p50 > time.Second {
		t.Errorf("writes resume only after %v with %d nodes", p50, *znodes)
	}
	for _, way := range []struct {
		name string
		sig  syscall.Signal
	}{{"in order", syscall.SIGTERM}, {"by kill -9", syscall.SIGKILL}} {
		took := restartAll(t, c, way.sig)
		t.Logf("all three serve %v after a stop %s", took.Round(time.Millisecond), way.name)
		expect.That(t, took <= 5*time.Second,
			"after a stop %s it takes %v until all serve", way.name, took)
		for _, s := range c.Servers {
			if n := s.Metric("znode_count"); n < int64(*znodes) {
				t.Errorf("server %d has %d nodes", s.ID, n)
			}
		}
	}
	c.SameState()
}
