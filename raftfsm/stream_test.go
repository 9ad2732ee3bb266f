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

// Some clients send as many requests as their server takes. The clients of another server do not wait for
// them, nor do the other clients of the same server, whichever server leads.
func TestClientsOfOneServerDoNotStarveOthers(t *testing.T) {
	c := newTrio(t, false, nil)
	leader := c.mustLead()
	follower := leader%3 + 1
	innocent := map[int]state.Outcome{}
	for _, id := range []int{leader, follower} {
		innocent[id] = openSession(t, c.nodes[id], 300_000)
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
					s := openSession(t, c.nodes[busy], 300_000).Session
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
				// A wait is measured not by time, but by how many entries of other servers the leader puts before the
				// request. Since a follower may lag behind, the count starts at the leader's last entry.
				for _, id := range []int{leader, follower} {
					s := innocent[id].Session
					for k, slow := 0, 0; k < 5; {
						time.Sleep(20 * time.Millisecond)
						before := c.nodes[leader].fsm.Index()
						o, err := propose(c.nodes[id], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
							Body: createBody(fmt.Sprintf("/innocent-%d-%d-%d-%d-%d", busy, size, id, k, slow), 0)})
						must.OK(t, err)
						must.Equal(t, o.Code, jute.OK, "o.Code")
						entries := c.nodes[id].fsm.Index() - before
						if entries <= 40 {
							k++
							continue
						}
						// Other goroutines may run for long between the request and the reading of the index, but not each
						// time.
						must.That(t, slow < 5, "a create at server %d took %d log entries of others", id, entries)
						slow++
					}
				}
				close(stop)
				wg.Wait()
			})
		}
	}
}
