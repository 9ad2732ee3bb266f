package proc

import (
	"flag"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
)

var vanishes = flag.Int("vanishes", 1, "how often the leader's host vanishes, and is cut off one way")

// arrived is when answers to what was committed before a cut have come.
const arrived = 150 * time.Millisecond

// TestG21LeadersHostVanishes takes the leader's host off the network without a
// reset reaching anybody. The clients of the others keep their connections,
// writes resume, the survivors notice that its connections are dead, and it
// comes back by itself.
func TestG21LeadersHostVanishes(t *testing.T) {
	w := newWires(t, 3)
	c := cluster.LayOut(t, cluster.Options{Hosts: w.hosts(3), Flags: []string{"--peer-insecure"}})
	c.StartAll()
	load := StartWriters(t, c, 2, 30*time.Second)
	var resumed, noticed []time.Duration
	for range *vanishes {
		time.Sleep(500 * time.Millisecond)
		lead := c.WaitLeader()
		survivors := c.Others(lead)
		lost, ended := load.disturbances(survivors)
		w.vanish(lead.ID)
		at := time.Now()
		resumed = append(resumed, arrived+load.awaitWrite(at.Add(arrived), lead, 20*time.Second))
		for limit := at.Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			open := 0
			for _, s := range survivors {
				open += w.connections(s.ID, lead.ID)
			}
			if open == 0 {
				break
			}
			if time.Now().After(limit) {
				t.Fatalf("30 s after the host vanished %d connections with it are thought to be open", open)
			}
		}
		noticed = append(noticed, time.Since(at))
		if l, e := load.disturbances(survivors); e != ended {
			t.Errorf("clients of the survivors lost %d sessions; the host vanished at %s", e-ended,
				at.UTC().Format("15:04:05.000"))
		} else if l != lost && resumed[len(resumed)-1] < 2*time.Second {
			t.Errorf("clients of the survivors lost %d connections; the host vanished at %s", l-lost,
				at.UTC().Format("15:04:05.000"))
		} else if l != lost {
			// They are let go after three seconds without a leader.
			t.Logf("clients of the survivors had to connect again: %d", l-lost)
		}
		w.appear(lead.ID)
		lead.WaitServing(20 * time.Second)
		load.awaitWrite(time.Now(), nil, 20*time.Second)
	}
	report(t, "writes resume after the leader's host vanished", resumed)
	report(t, "survivors have closed all connections with it", noticed)
	if t.Failed() {
		for _, s := range c.Servers {
			for _, o := range load.Of(s) {
				t.Logf("a client of server %d: %q", s.ID, o.Ends)
			}
		}
	}
	if p50 := resumed[len(resumed)/2]; p50 > 3*time.Second {
		t.Errorf("writes resume only after %v", p50)
	}
	if last := noticed[len(noticed)-1]; last > 15*time.Second {
		t.Errorf("a dead peer was noticed only after %v", last)
	}
	load.Check(c)
	c.SameState()
}

// TestG21LeaderIsCutOffOneWay makes the leader unable to reach the others, which
// still reach it, and the other way round. Writes must resume both times, and
// the clients, which reach all servers, lose no session.
func TestG21LeaderIsCutOffOneWay(t *testing.T) {
	w := newWires(t, 3)
	c := cluster.LayOut(t, cluster.Options{Hosts: w.hosts(3), Flags: []string{"--peer-insecure"}})
	c.StartAll()
	load := StartWriters(t, c, 2, 10*time.Second)
	for _, way := range []string{"from", "to"} {
		var resumed []time.Duration
		for range *vanishes {
			time.Sleep(500 * time.Millisecond)
			lead := c.WaitLeader()
			cut := func(f func(from, to int)) {
				for _, s := range c.Others(lead) {
					if way == "from" {
						f(lead.ID, s.ID)
					} else {
						f(s.ID, lead.ID)
					}
				}
			}
			cut(w.deafen)
			at := time.Now()
			resumed = append(resumed, arrived+load.awaitWrite(at.Add(arrived), lead, 20*time.Second))
			time.Sleep(2 * time.Second)
			cut(w.heal)
			for _, s := range c.Servers {
				s.WaitServing(20 * time.Second)
			}
		}
		report(t, "writes resume when nothing goes "+way+" the leader", resumed)
		if worst := resumed[len(resumed)-1]; worst > 5*time.Second {
			t.Errorf("writes resume only after %v when nothing goes %s the leader", worst, way)
		}
	}
	if _, expired := load.disturbances(c.Servers); expired > 0 {
		t.Errorf("%d sessions were lost", expired)
	}
	load.Check(c)
	c.SameState()
}
