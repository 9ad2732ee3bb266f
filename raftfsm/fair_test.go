package raftfsm

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/must"
)

// Clients of one server that send as much as it takes do not keep those of
// another waiting, whoever leads, nor another client of their own server.
func TestClientsOfOneServerDoNotStarveOthers(t *testing.T) {
	c := newTrio(t, false, nil)
	leader := 0
	for id, n := range c.nodes {
		if n != nil && n.term.Load() != nil {
			leader = id
		}
	}
	follower := leader%3 + 1
	innocent := map[int]state.Outcome{}
	for _, id := range []int{leader, follower} {
		innocent[id] = openSession(t, c.nodes[id], 30000)
	}
	for _, busy := range []int{leader, follower} {
		for _, size := range []int{300_000, 100} {
			if testing.Short() && (size == 100 || busy != leader) {
				continue // the longer forms run in CI
			}
			t.Run(fmt.Sprintf("busy=%d of leader %d, %d bytes", busy, leader, size), func(t *testing.T) {
				stop := make(chan struct{})
				var wg sync.WaitGroup
				for k := range 16 {
					s := openSession(t, c.nodes[busy], 30000).Session
					path := fmt.Sprintf("/busy-%d-%d-%d", busy, size, k)
					if o, err := propose(c.nodes[busy], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
						Body: createBody(path, 0)}); err != nil || o.Code != jute.OK {
						t.Fatal(o, err)
					}
					body := jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, path), make([]byte, size)), -1)
					depth := 1
					if size < 1000 {
						depth = 100
					}
					for range depth {
						wg.Go(func() {
							for {
								select {
								case <-stop:
									return
								default:
								}
								if _, err := propose(c.nodes[busy], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpSetData,
									Body: body}); err != nil {
									return
								}
							}
						})
					}
				}
				// The cost of a request is measured in entries, not in time: how many the
				// leader put before it once it was asked for. A follower may be behind, so
				// the leader's index counts at the start.
				for _, id := range []int{leader, follower} {
					s := innocent[id].Session
					for k := range 5 {
						time.Sleep(20 * time.Millisecond)
						before := c.nodes[leader].fsm.index.Load()
						o, err := propose(c.nodes[id], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
							Body: createBody(fmt.Sprintf("/innocent-%d-%d-%d-%d", busy, size, id, k), 0)})
						must.That(t, err == nil && o.Code == jute.OK, "%v %v", o, err)
						if entries := c.nodes[id].fsm.index.Load() - before; entries > 40 {
							t.Errorf("a create at server %d took %d log entries of others", id, entries)
						}
					}
				}
				close(stop)
				wg.Wait()
			})
		}
	}
}
