package sim

import (
	"testing"
	"time"
)

// crashPointSteps give a cluster an observer, and an id to another server than before.
var crashPointSteps = []string{"observe", "lead", "remove", "add", "kill", "wipe", "replace", "restart", "move"}

// TestG2R6EveryCrashPointOfACluster crashes each server of three and of five, with an observer, at every operation on
// its disk in every step of a history. The steps must be done all the same, and no write that was answered is lost.
func TestG2R6EveryCrashPointOfACluster(t *testing.T) {
	for _, size := range []int{3, 5} {
		share := map[int]int{3: 13, 5: 97}[size]
		if testing.Short() {
			share *= 7
		}
		if *sequenceShare > 0 {
			share = *sequenceShare
		}
		ran := 0
		for step := range crashPointSteps {
			for server := 1; server <= size+1; server++ {
				for nth := 1 + (step+server)%share; ; nth += share {
					at := &crashPoint{step: step, server: uint32(server), nth: nth}
					runSequence(t, size, crashPointSteps, at)
					ran++
					if !at.hit {
						break
					}
				}
			}
		}
		t.Logf("%d members and an observer: %d crash points, one of %d", size, ran, share)
	}
}

// crashPoint is where a server loses its power in a sequence: at its nth operation on its disk from the beginning of
// a step on. It starts again at once.
type crashPoint struct {
	step   int
	server uint32
	nth    int
	hit    bool // it did so many
}

// powerLoss ends the process of the server of a crash point, and starts it again. It is called on a goroutine of that
// server.
func (c *sequence) powerLoss(at *crashPoint) {
	at.hit = true
	id := at.server
	c.mu.Lock()
	l, n := c.life[id], c.run[id]
	c.run[id] = nil
	l.kill()
	c.mu.Unlock()
	c.net.Crash(hostName(id))
	go func() {
		if n != nil {
			n.Abort()
		}
		time.Sleep(100 * time.Millisecond)
		c.mu.Lock()
		again := c.life[id] == l && c.peers[id] != "" && !c.dead[id] && !c.wiped[id]
		c.mu.Unlock()
		if again {
			c.begin(id)
		}
	}()
}
