package sim

import (
	oldrand "math/rand"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A server that comes back is sent what it lacks at once, however long it was away:
// nobody waits for the next of a leader's tries, which come ever less often.
func TestG22ServerThatComesBackIsServedAtOnce(t *testing.T) {
	runs(t, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			oldrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from here
			r := &aheadRun{nodes: newNodes(t, seed, nil), rng: rand.New(rand.NewPCG(seed, 9)), acked: map[string]int{}}
			r.awaitServing()
			_, back, writes := r.roles()
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() { r.writer(writes, 0, stop, &r.mu, r.acked, &r.open) })
			for _, away := range []time.Duration{5 * time.Second, time.Minute} {
				for try := range 2 {
					r.crash(back)
					time.Sleep(away + time.Duration(try)*away/7)
					r.start(back)
					began := time.Now()
					for {
						if ok, why := r.node(back).Serving(); ok {
							break
						} else if time.Since(began) > time.Minute {
							t.Fatalf("after %v away it does not serve: %s", away, why)
						}
						time.Sleep(10 * time.Millisecond)
					}
					if took := time.Since(began); took > 1500*time.Millisecond {
						t.Errorf("after %v away it served %v after it was started", away, took)
					} else {
						t.Logf("after %v away it served %v after it was started", away, took)
					}
				}
			}
			close(stop)
			wg.Wait()
			for id := uint32(1); id <= 3; id++ {
				r.crash(id)
			}
			time.Sleep(time.Minute)
		})
	})
}
