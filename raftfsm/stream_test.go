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

// Some clients send as many requests as their server takes. No other client waits for them, neither at the
// same server nor at another one, whichever server leads.
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
				continue // a short run leaves out the other combinations
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
				// The test does not measure time. It counts the entries of other servers that the leader puts
				// before the request. A follower may lag behind, so the count starts at the leader's last
				// entry.
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
						// The index may be read late, because other goroutines run. This must not happen
						// often.
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
