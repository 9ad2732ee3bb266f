package sim

import (
	"context"
	oldrand "math/rand"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/test/wire"
)

// fourth is the server that joins and leaves.
const fourth = 4

// members() adds a fourth server to the cluster and removes it again, repeatedly, until `stop` is closed. At
// the end the cluster has the members that it began with.
func (c *cluster) members(stop <-chan struct{}, apart, stay func() time.Duration) (rounds int) {
	pause := func(d time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	for pause(apart()) {
		if c.change(change.Change{Op: "add", ID: fourth, Addr: peerAddrOf(fourth)}) != nil {
			continue
		}
		c.newDisk(fourth)
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			c.start(fourth)
		}()
		for tries := 0; tries < 30 && c.change(change.Change{Op: "promote", ID: fourth}) != nil &&
			pause(time.Second); tries++ {
		}
		pause(stay())
		c.removeFourth(stop)
		c.crash(fourth)
		<-joined
		c.crash(fourth) // in case it has joined in the last moment
		rounds++
	}
	return rounds
}

// removeFourth tries to remove the fourth server until it is no longer a member. Once `stop` is closed,
// removeFourth() must succeed soon.
func (c *cluster) removeFourth(stop <-chan struct{}) {
	for left := 30; left > 0; {
		err := c.change(change.Change{Op: "remove", ID: fourth})
		if err == nil || strings.Contains(err.Error(), "is not a member") {
			return
		}
		time.Sleep(time.Second)
		select {
		case <-stop:
			left--
		default:
		}
	}
	c.t.Error("R21: the fourth server could not be removed after the last fault")
}

// change() asks some server for a change of membership.
func (c *cluster) change(m change.Change) error {
	err := context.DeadlineExceeded
	for id := range c.ids() {
		i := c.server(id)
		if i == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		refused := i.Node().ChangeMember(ctx, m)
		cancel()
		if refused == nil {
			return nil
		}
		if strings.Contains(refused.Error(), "is not a member") || strings.Contains(refused.Error(),
			"is a member already") {
			return refused
		}
		err = refused
	}
	return err
}

// quiet() runs a test on a cluster without random faults and clients.
func quiet(t *testing.T, f func(t *testing.T, c *cluster)) {
	quietWith(t, settings{heartbeat: time.Second, latency: time.Millisecond, snapshot: 1 << 30,
		trailing: 10_240}, f)
}

func quietWith(t *testing.T, set settings, f func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		oldrand.Seed(1) //nolint:staticcheck // raft draws its timeouts from here
		c := newCluster(t, 1, set)
		defer c.shutDown()
		defer c.net.Heal()
		f(t, c)
	})
}

// client() opens a session on a server. It tries again while the server has no leader.
func (c *cluster) client(host string, id uint32, timeout time.Duration) *wire.Conn {
	c.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		nc, err := c.dialTo(host, id)
		if err == nil {
			w := wire.New(nc)
			w.Timeout = 30 * time.Second
			if err = w.Connect(wire.NewSession(int32(timeout.Milliseconds()))); err == nil {
				return w
			}
			nc.Close()
		}
		if time.Now().After(end) {
			c.t.Fatal(err)
		}
	}
}

// attach() continues a client's session on another server.
func (c *cluster) attach(host string, id uint32, old *wire.Conn) (*wire.Conn, error) {
	nc, err := c.dialTo(host, id)
	if err != nil {
		return nil, err
	}
	w := wire.New(nc)
	w.Timeout, w.Zxid = 30*time.Second, old.Zxid
	if err := w.Connect(wire.Attach(old.Session, old.Zxid)); err != nil {
		nc.Close()
		return nil, err
	}
	return w, nil
}

// mustLead waits for a leader. It returns the leader and the two followers.
func (c *cluster) mustLead() (leader uint32, followers []uint32) {
	c.t.Helper()
	for range 100 {
		if leader = c.leader(); leader != 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if leader == 0 {
		c.t.Fatal("nobody leads")
	}
	for id := range c.ids() {
		if id != leader {
			followers = append(followers, id)
		}
	}
	return leader, followers
}

// ping() keeps a client's session alive until `stop` is closed.
func ping(w *wire.Conn, every time.Duration, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(every):
		}
		if w.Ping() != nil {
			return
		}
	}
}

// A server that returns gets its missing entries at once, however long it was away. It need not wait until a
// pause of the leader is over, although the leader pauses for longer after each failure.
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
