package sim

import (
	"context"
	"fmt"
	oldrand "math/rand"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// three runs f on three servers with a heartbeat timeout, when all of them serve.
func three(t *testing.T, seed uint64, heartbeat time.Duration, f func(c *nodes, lead uint32)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		oldrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from here
		c := &nodes{t: t, net: NewNetwork(rand.New(rand.NewPCG(seed, 3)), time.Millisecond), heartbeat: heartbeat,
			peers: map[uint32]string{1: "h1:2888", 2: "h2:2888", 3: "h3:2888"}, disk: map[uint32]*Disk{},
			run: map[uint32]*raftfsm.Node{}}
		for id := range c.peers {
			c.disk[id] = NewDisk(rand.New(rand.NewPCG(seed, uint64(10+id))))
		}
		for id := range c.peers {
			go c.start(id)
		}
		defer func() {
			c.net.Heal()
			for id := range c.peers {
				c.disk[id].Go()
				c.crash(id)
			}
			time.Sleep(time.Minute)
		}()
		end := time.Now().Add(30 * time.Second)
		for id := uint32(1); id <= 3; {
			if n := c.node(id); n != nil {
				if ok, _ := n.Serving(); ok {
					id++
					continue
				}
			}
			if time.Sleep(5 * time.Millisecond); time.Now().After(end) {
				t.Errorf("server %d does not serve", id)
				return
			}
		}
		f(c, c.leads())
	})
}

// session opens a session at a server.
func (c *nodes) session(id uint32, timeout time.Duration) int64 {
	body := state.SessionBody{Timeout: int32(timeout.Milliseconds()), Owner: id, Addr: "10.0.0.1"}
	o, _, ok := ask(c.node(id), state.Request{Op: state.OpCreateSession, Body: body.Append(nil)})
	if !ok {
		c.t.Error("no session")
	}
	return o.Session.ID
}

// A server that is cut off, the leader or a follower, serves its clients for the
// heartbeat timeout and two seconds at most, and no client of a session that has
// ended at the others.
func TestG23CutOffServerStopsServingInTime(t *testing.T) {
	const shortest = 4 * time.Second
	for _, heartbeat := range []time.Duration{300 * time.Millisecond, time.Second, 2 * time.Second} {
		for _, leads := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, leads %v", heartbeat, leads), func(t *testing.T) {
				three(t, 1, heartbeat, func(c *nodes, lead uint32) {
					cut := lead
					if !leads {
						cut = lead%3 + 1
					}
					session := c.session(cut, shortest)
					time.Sleep(500 * time.Millisecond)
					began := time.Now()
					for id := range c.peers {
						if id != cut {
							c.net.Cut(hostName(cut), hostName(id))
							c.net.Cut(hostName(id), hostName(cut))
						}
					}
					for ok := true; ok && time.Since(began) < time.Minute; ok, _ = c.node(cut).Serving() {
						time.Sleep(time.Millisecond)
						if c.node(cut).PingOK(shortest) && c.ended(cut, session) {
							t.Errorf("G23: its client is told after %v that its session lives, which has ended", time.Since(began))
							break
						}
					}
					if d := time.Since(began); d > heartbeat+2*time.Second {
						t.Errorf("G23: it serves for %v", d)
					}
				})
			})
		}
	}
}

// ended reports whether a session has ended at a server other than but.
func (c *nodes) ended(but uint32, session int64) (ended bool) {
	for id := range c.peers {
		if id == but {
			continue
		}
		c.node(id).View(func(s *state.State) {
			if _, there := s.Sessions().Get(session); !there {
				ended = true
			}
		})
	}
	return ended
}

// A leader hangs with its disk in the middle of a change of members: that entry is
// stored on raft's main loop, which hangs as well, so that the server knows of no
// other leader. One other server must lead soon, and then go on leading; and the
// server that hangs must not tell its clients that their sessions live.
func TestG21StuckLeaderIsReplacedOnce(t *testing.T) {
	const timeout = 4 * time.Second
	for seed := range uint64(3) {
		three(t, seed, time.Second, func(c *nodes, lead uint32) {
			session := c.session(lead, timeout)
			time.Sleep(500 * time.Millisecond)
			c.disk[lead].Hang()
			began := time.Now()
			for _, op := range []string{"add", "remove"} { // two at once
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					defer cancel()
					id := map[string]uint32{"add": 4, "remove": lead%3 + 1}[op]
					_ = c.node(lead).ChangeMember(ctx, state.MemberChange{Op: op, ID: id, Addr: "h4:2888"})
				}()
			}
			elections, last := 0, uint32(0)
			for time.Since(began) < 9*time.Second { // then its watchdog ends the server
				time.Sleep(10 * time.Millisecond)
				for id := range c.peers {
					if id != lead && id != last && c.node(id).Status().Role == "leader" {
						elections, last = elections+1, id
					}
				}
				if ok, _ := c.node(lead).Serving(); ok && c.node(lead).PingOK(timeout) && c.ended(lead, session) {
					t.Errorf("G10: a client is told after %v that its session lives, which has ended", time.Since(began))
					break
				}
			}
			if elections != 1 {
				t.Errorf("G21: leadership changed %d times within 9 s", elections)
			}
		})
	}
}
