package proc

import (
	"flag"
	"testing"
	"time"
)

var idle = flag.Int("idle", 1000, "sessions that only ping")

// TestG10IdleSessionsOutliveTheLeader kills the leader under many idle
// sessions of six seconds. None may end; those of the dead server find another
// within five seconds, and those of the others notice nothing.
func TestG10IdleSessionsOutliveTheLeader(t *testing.T) {
	c := StartCluster(t, 3, "--min-session-timeout", "4s")
	began := time.Now()
	h := c.StartHerd(*idle, 6*time.Second)
	t.Logf("%d sessions opened in %v", *idle, time.Since(began).Round(time.Millisecond))
	time.Sleep(3 * time.Second) // all have pinged
	quiet := time.Now()
	if n := h.Disconnects.Load(); n > 0 {
		t.Errorf("%d connections ended before anything happened", n)
	}
	lead := c.Leader()
	theirs := h.On(lead)
	lead.Kill()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if moves := h.Moves(quiet); len(moves) >= theirs && h.Attached() == *idle {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("of %d sessions %d are attached 20 s after the leader's death", *idle, h.Attached())
		}
	}
	var took []time.Duration
	for _, m := range h.Moves(quiet) {
		if m.from != lead {
			t.Errorf("a client of surviving server %d lost its connection: %v", m.from.ID, m.why)
			continue
		}
		took = append(took, m.at.Sub(m.lost))
	}
	report(t, "sessions of the dead leader attached again", took)
	if worst := took[len(took)-1]; worst > 5*time.Second {
		t.Errorf("a session was without a server for %v", worst)
	}
	// Longer than the timeout: whoever was forgotten has ended by now.
	time.Sleep(7 * time.Second)
	lead.Start()
	lead.WaitServing(20 * time.Second)
	if n := h.Expired.Load(); n > 0 {
		t.Errorf("%d sessions expired", n)
	}
	if n := h.Attached(); n != *idle {
		t.Errorf("%d of %d sessions attached at the end", n, *idle)
	}
	for _, s := range c.Servers {
		t.Logf("server %d holds %d", s.ID, h.On(s))
	}
	t.Logf("%d connections ended, %d pings slower than 2 s, %d expired", h.Disconnects.Load(), h.SlowPings.Load(), h.Expired.Load())
}
