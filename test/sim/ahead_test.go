package sim

import (
	oldrand "math/rand"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/must"
)

// A leader's log may run ahead of its disk; see docs/decisions/0009. In each case here a server loses power
// while its log is ahead, or would be ahead if a rule were missing. Then the two servers with the fewest
// entries continue. Every write that was answered or seen must still be there.
func TestR9LogAheadOfTheDisk(t *testing.T) {
	for name, loss := range map[string]func(*aheadRun){
		"leader":       (*aheadRun).leaderLosesPower,
		"follower":     (*aheadRun).followerLosesPower,
		"formerLeader": (*aheadRun).formerLeaderLosesPower,
		"all":          (*aheadRun).allLosePower,
	} {
		t.Run(name, func(t *testing.T) {
			runs(t, func(t *testing.T, seed uint64) {
				synctest.Test(t, func(t *testing.T) { aheadOfTheDisk(t, seed, loss) })
			})
		})
	}
}

// aheadRun is a cluster of three servers to which a test writes.
type aheadRun struct {
	*nodes
	rng   *rand.Rand
	mu    sync.Mutex
	acked map[string]int
	open  int
}

func aheadOfTheDisk(t *testing.T, seed uint64, loss func(*aheadRun)) {
	oldrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from here
	r := &aheadRun{nodes: newNodes(t, seed, nil), rng: rand.New(rand.NewPCG(seed, 8)), acked: map[string]int{}}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for id := uint32(1); id <= 3; id++ {
		for w := range 2 {
			wg.Go(func() { r.writer(id, w, stop, &r.mu, r.acked, &r.open) })
		}
	}
	losses := 5
	if testing.Short() {
		losses = max(1, 2/rarer)
	}
	for range losses {
		r.awaitServing()
		loss(r)
		r.net.Heal()
		for id := uint32(1); id <= 3; id++ {
			r.disk[id].Go()
			r.net.Thaw(hostName(id))
			r.again(id)
		}
	}
	r.awaitServing()
	close(stop)
	wg.Wait()
	time.Sleep(15 * time.Second)
	r.check(r.acked, r.open)
	if least := 100 * losses; len(r.acked) < least {
		t.Errorf("%d writes answered, want %d at least", len(r.acked), least)
	}
	for id := uint32(1); id <= 3; id++ {
		r.crash(id)
	}
	time.Sleep(time.Minute)
}

// A lone write waits for one disk, the leader's or a follower's, whichever is slower. It does not wait for
// both in sequence.
func TestLoneWriteWaitsForOneDiskOnly(t *testing.T) {
	set := settings{heartbeat: time.Second, latency: time.Millisecond, snapshot: 1 << 30, trailing: 10_240}
	quietWith(t, set, func(t *testing.T, c *cluster) {
		leader, _ := c.mustLead()
		w := c.client("c0", leader, 20*time.Second)
		must.Get(w.Create("/n", nil, 0))(t)
		const sync = 20 * time.Millisecond // the average; a sync takes 10 to 30 ms
		for id := range c.ids() {
			c.disk(id).Slow(sync)
		}
		const writes = 300
		began := time.Now()
		for range writes {
			must.Get(w.SetData("/n", nil, -1))(t)
		}
		mean := time.Since(began) / writes
		// The write waits for the slower of two disks: the leader's and the faster follower's. That takes 22
		// ms on average. One disk after the other would take 37 ms.
		if mean > 30*time.Millisecond {
			t.Errorf("a write took %v where a sync takes %v", mean, sync)
		}
		t.Logf("a write took %v where a sync takes %v", mean, sync)
	})
}

// awaitServing waits until all servers serve.
func (r *aheadRun) awaitServing() {
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		serving := 0
		for id := uint32(1); id <= 3; id++ {
			if ok, _ := r.node(id).Serving(); ok {
				serving++
			}
		}
		if serving == 3 && r.leads() != 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%d of 3 servers serve a minute after the last fault", serving)
		}
	}
}

// leads() returns the server that leads, 0 if none does.
func (r *aheadRun) leads() uint32 {
	for id := uint32(1); id <= 3; id++ {
		if n := r.node(id); n != nil && n.Status().Role == "leader" {
			return id
		}
	}
	return 0
}

// roles() returns the leader, and the two followers in any order.
func (r *aheadRun) roles() (leader, one, other uint32) {
	if leader = r.leads(); leader == 0 {
		leader = 1
	}
	one, other = 1+leader%3, 1+(leader+1)%3
	if r.rng.IntN(2) == 0 {
		one, other = other, one
	}
	return leader, one, other
}

func (r *aheadRun) cut(a, b uint32) {
	r.net.Cut(hostName(a), hostName(b))
	r.net.Cut(hostName(b), hostName(a))
}

func (r *aheadRun) mend(a, b uint32) {
	r.net.Mend(hostName(a), hostName(b))
	r.net.Mend(hostName(b), hostName(a))
}

func (r *aheadRun) wait(atMost time.Duration) {
	time.Sleep(time.Duration(r.rng.Int64N(int64(atMost))))
}

// powerLoss takes the power from a server.
func (r *aheadRun) powerLoss(id uint32) { r.end(id, (*serverDisk).PowerLoss) }

// again() starts the server with this id if it does not run.
func (r *aheadRun) again(id uint32) {
	r.disk[id].Go()
	if r.node(id) == nil {
		r.start(id)
	}
}

// goOn takes the power from the servers in `lose`. Then the servers `one` and `other` run for a while without
// the third server.
func (r *aheadRun) goOn(one, other, without uint32, lose ...uint32) {
	r.net.Freeze(hostName(without))
	for _, id := range lose {
		r.powerLoss(id)
	}
	r.mend(one, other)
	r.again(one)
	r.again(other)
	time.Sleep(6 * time.Second)
}

// The leader has its entries only in memory. One follower has them on disk; the other follower does not have
// them.
func (r *aheadRun) leaderLosesPower() {
	leader, one, other := r.roles()
	r.cut(leader, other)
	r.disk[leader].HangLog()
	r.wait(time.Second)
	r.goOn(leader, other, one, leader)
}

// The leader has the entries on disk. A follower that answered before its sync would have them only in
// memory.
func (r *aheadRun) followerLosesPower() {
	leader, one, other := r.roles()
	r.cut(leader, other)
	r.cut(one, other)
	r.disk[one].HangLog()
	r.wait(time.Second)
	r.goOn(one, other, leader, one)
}

// A former leader has entries only in memory. The new leader has them on disk and asks the former leader
// whether it has them too. The third server never received them.
func (r *aheadRun) formerLeaderLosesPower() {
	leader, one, other := r.roles()
	r.cut(leader, other)
	r.disk[leader].HangLog()
	r.disk[other].HangLog()
	r.wait(300 * time.Millisecond)
	r.cut(leader, one)
	time.Sleep(2500 * time.Millisecond) // wait until `other` has stored its vote for `one`; it has no entries
	r.mend(leader, one)
	r.wait(2 * time.Second)
	r.goOn(leader, other, one, leader, other)
}

// Disks are slow, and servers lose power at random.
func (r *aheadRun) allLosePower() {
	for range 6 {
		id := uint32(1 + r.rng.IntN(3))
		r.disk[id].Slow(time.Duration(1 + r.rng.Int64N(int64(200*time.Millisecond))))
		r.wait(500 * time.Millisecond)
		for k := range uint32(1 + r.rng.IntN(3)) {
			r.powerLoss(1 + (id+k)%3)
			if r.rng.IntN(2) == 0 {
				r.wait(100 * time.Millisecond)
			}
		}
		for id := uint32(1); id <= 3; id++ {
			r.again(id)
			r.disk[id].Slow(500 * time.Microsecond)
		}
		r.wait(3 * time.Second)
	}
}
