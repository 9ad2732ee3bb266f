package sim

import (
	"slices"
	"testing"
	"time"
)

// A leader is killed over and over while disks and wires are as slow as on a
// machine that has too much to do: votes take as long as servers let each other
// stand first, so that two stand at once, split the votes, or depose each other.
// There must be a leader soon nevertheless, not when raft's own timers have run
// out.
func TestG21KilledLeaderIsReplacedSoonOnABusyMachine(t *testing.T) {
	for name, c := range map[string]struct{ wire, disk time.Duration }{
		// A vote is up to six writes and four messages, one after the other; it may be
		// split once.
		"slow disks": {5 * time.Millisecond, 80 * time.Millisecond},
		"slow wires": {15 * time.Millisecond, 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			set := settings{heartbeat: time.Second, latency: c.wire, snapshot: 1 << 30, trailing: 10_240}
			quietWith(t, set, func(t *testing.T, cl *cluster) { killLeaders(t, cl, c.disk) })
		})
	}
}

func killLeaders(t *testing.T, c *cluster, disk time.Duration) {
	rounds := 60
	if testing.Short() {
		rounds = 25
	}
	var took []time.Duration
	for range rounds {
		leader, others := c.mustLead()
		for _, id := range others {
			c.disk(id).Slow(time.Duration(c.rng.Int64N(int64(disk))))
		}
		time.Sleep(time.Duration(c.rng.Int64N(int64(300 * time.Millisecond))))
		killed := time.Now()
		c.crash(leader)
		for c.leader() == 0 && time.Since(killed) < 20*time.Second {
			time.Sleep(5 * time.Millisecond)
		}
		took = append(took, time.Since(killed))
		for id := range c.ids() {
			c.disk(id).Slow(0)
		}
		c.start(leader)
		c.ready(leader, 20*time.Second)
	}
	slices.Sort(took)
	t.Logf("the next leader: p50 %v, p90 %v, max %v", took[rounds/2], took[rounds*9/10], took[rounds-1])
	// One alone may meet with two split votes, one after the other.
	if most := took[rounds*9/10]; most > 2*time.Second {
		t.Errorf("G21: one next leader in ten was there only after %v", most)
	}
}
