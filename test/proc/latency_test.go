package proc

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

var handoffs = flag.Int("handoffs", 300, "how often a write and a hand-over are timed")

func open(t *testing.T, s *cluster.Server) *wire.Conn {
	t.Helper()
	c := must.Get(s.Open())(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func median(list []time.Duration) time.Duration {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}

// TestWriteThroughFollowerIsNudged times writes through the leader and through
// a follower in turn, and how long after the leader has told a watching client
// of the change the follower answers its own. A follower that heard of a
// commit only by the next heartbeat would be slower by orders of magnitude.
func TestWriteThroughFollowerIsNudged(t *testing.T) {
	c := cluster.Three(t)
	lead := c.WaitLeader()
	follower := c.Others(lead)[0]
	direct, through, watcher := open(t, lead), open(t, follower), open(t, lead)
	for _, path := range []string{"/direct", "/through"} {
		must.Get(direct.Create(path, nil, jute.FlagPersistent))(t)
	}
	must.OK(t, through.Sync("/"))
	must.OK(t, watcher.AddWatch("/through", 0))
	told := make(chan time.Time, 1)
	go func() {
		for {
			if _, err := watcher.Next(); err != nil {
				return
			}
			told <- time.Now()
		}
	}()
	timed := func(c *wire.Conn, path string) (took time.Duration, answered time.Time) {
		began := time.Now()
		must.Get(c.SetData(path, []byte("x"), -1))(t)
		answered = time.Now()
		return answered.Sub(began), answered
	}
	var atLeader, atFollower, behind []time.Duration
	for range *handoffs {
		took, _ := timed(direct, "/direct")
		atLeader = append(atLeader, took)
		took, answered := timed(through, "/through")
		atFollower = append(atFollower, took)
		behind = append(behind, max(0, answered.Sub(<-told)))
	}
	report(t, "write through the leader  ", atLeader)
	report(t, "write through a follower  ", atFollower)
	report(t, "answered after the leader's own event", behind)
	if l, f := median(atLeader), median(atFollower); f > 3*l {
		t.Errorf("a write through a follower takes %v, through the leader %v", f, l)
	}
}

// TestHandOverBetweenServers times how long after a session of one server
// begins to delete its lock the waiting session of another server hears of it,
// for every pair of servers.
func TestHandOverBetweenServers(t *testing.T) {
	c := cluster.Three(t)
	var clients []*wire.Conn
	for _, s := range c.Servers {
		clients = append(clients, open(t, s))
	}
	var took []time.Duration
	for i := range *handoffs {
		holder, waiter := clients[i%3], clients[(i+1+i/3%2)%3]
		must.Get(holder.Create("/held", nil, jute.FlagEphemeral))(t)
		must.OK(t, waiter.Sync("/held"))
		must.Get(waiter.Exists("/held", true))(t)
		heard := make(chan error, 1)
		var at time.Time
		go func() {
			f, err := waiter.Next()
			at = time.Now()
			if err == nil && (f.Event == nil || f.Event.Type != jute.EventDeleted) {
				t.Errorf("an event was expected, not %+v", f)
			}
			heard <- err
		}()
		began := time.Now()
		must.OK(t, holder.Delete("/held", -1))
		must.OK(t, <-heard)
		took = append(took, at.Sub(began))
		must.OK(t, holder.Sync("/"))
	}
	report(t, "a deleted lock is heard of on another server after", took)
}
