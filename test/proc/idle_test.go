package proc

import (
	"flag"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

var idle = flag.Int("idle", 1000, "sessions that only ping")

// TestG10IdleSessionsOutliveTheLeader kills the leader under many idle
// sessions of six seconds, again and again. None may end; those of the dead
// server find another within five seconds, and those of the others notice
// nothing.
func TestG10IdleSessionsOutliveTheLeader(t *testing.T) {
	c := cluster.Three(t)
	began := time.Now()
	h := StartHerd(t, c, *idle, 6*time.Second)
	t.Logf("%d sessions opened in %v", *idle, time.Since(began).Round(time.Millisecond))
	time.Sleep(2 * time.Second) // all have pinged
	if n := h.Disconnects.Load(); n > 0 {
		t.Errorf("%d connections ended before anything happened", n)
	}
	var took []time.Duration
	for range *kills {
		lead := c.WaitLeader()
		theirs, at := h.On(lead), time.Now()
		lead.Kill()
		for len(h.Moves(at)) < theirs || h.Attached() < *idle {
			if time.Since(at) > 20*time.Second {
				t.Fatalf("of %d sessions %d are attached 20 s after the leader's death", *idle, h.Attached())
			}
			time.Sleep(5 * time.Millisecond)
		}
		for _, m := range h.Moves(at) {
			if m.from == lead {
				took = append(took, m.at.Sub(m.lost))
			} else {
				t.Errorf("a client of surviving server %d lost its connection: %v", m.from.ID, m.why)
			}
		}
		if theirs > 0 {
			t.Logf("%d sessions of server %d attached to others within %v", theirs, lead.ID,
				took[len(took)-1].Round(time.Millisecond))
		}
		time.Sleep(time.Second)
		lead.Start()
		lead.WaitServing(20 * time.Second)
		h.Spread()
	}
	must.That(t, len(took) != 0, "no leader had a client")
	report(t, "sessions of a dead leader attached again", took)
	if worst := took[len(took)-1]; worst > 5*time.Second {
		t.Errorf("a session was without a server for %v", worst)
	}
	time.Sleep(7 * time.Second) // longer than the timeout: a forgotten session has ended by now
	if n := h.Attached(); n != *idle {
		t.Errorf("%d of %d sessions attached at the end", n, *idle)
	}
	t.Logf("%d connections ended, %d pings slower than 2 s, %d sessions expired", h.Disconnects.Load(),
		h.SlowPings.Load(), h.Expired.Load())
	if n := h.Expired.Load(); n > 0 {
		t.Errorf("%d sessions expired", n)
	}
}
