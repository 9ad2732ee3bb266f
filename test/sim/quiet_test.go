package sim

import (
	oldrand "math/rand"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/test/wire"
)

// quiet runs a test on a cluster to which nothing happens but what the test
// does.
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

// client opens a session on a server, which may be between two leaders.
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

// attach goes on with a client's session on another server.
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

// mustLead waits for a leader and returns it and the two others.
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

// ping keeps a client's session alive until stop is closed.
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
