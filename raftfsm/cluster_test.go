package raftfsm

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
)

func (c *trio) create(id int, path string) {
	c.t.Helper()
	s := openSession(c.t, c.nodes[id], 30000).Session
	o, err := propose(c.nodes[id], Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody(path, 0)})
	if err != nil || o.Code != jute.OK {
		c.t.Fatalf("create %s at %d: %+v %v", path, id, o, err)
	}
}

func (c *trio) has(id int, path string) (ok bool) {
	c.nodes[id].View(func(s *State) { _, ok = s.Tree().Get(path) })
	return ok
}

func TestR1R4R23TransportSettings(t *testing.T) {
	c := newTrio(t, false, nil)
	trans, ok := c.nodes[1].trans.(mainLoop)
	if !ok {
		t.Fatalf("transport is %T", c.nodes[1].trans)
	}
	inner := reflect.ValueOf(trans.NetworkTransport).Elem()
	if !inner.FieldByName("heartbeatFn").IsNil() {
		t.Error("R1: a heartbeat handler is installed; heartbeats would be answered beside the main loop")
	}
	if got := inner.FieldByName("maxInFlight").Int(); got != 1 {
		t.Errorf("R4: %d RPCs in flight; pipelining is on", got)
	}
	if _, ok := any(trans).(raft.WithPreVote); !ok {
		t.Error("R23: the wrapper hides pre-vote")
	}
	if _, ok := any(trans).(raft.WithClose); !ok {
		t.Error("R23: the wrapper hides Close")
	}
	conf := c.nodes[1].raftConfig()
	if conf.LeaderLeaseTimeout != conf.HeartbeatTimeout || conf.PreVoteDisabled || conf.TrailingLogs < 10240 {
		t.Errorf("raft settings: lease %v heartbeat %v prevote off %v trailing %d", conf.LeaderLeaseTimeout, conf.HeartbeatTimeout, conf.PreVoteDisabled, conf.TrailingLogs)
	}
}

// TestR6LostDiskDoesNotVote lets a write live on two servers, destroys one of
// them and hides the other: the two empty-handed servers must not form a
// majority. The documented repair then brings all three back.
func TestR6LostDiskDoesNotVote(t *testing.T) {
	c := newTrio(t, true, nil)
	stop(t, c.nodes[3])
	c.create(1, "/kept")
	stop(t, c.nodes[1])
	stop(t, c.nodes[2])
	if err := os.RemoveAll(c.opts[2].DataDir); err != nil {
		t.Fatal(err)
	}
	// Server 3 missed the write, server 2 has lost it.
	c.start(3)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	o := c.opts[2]
	o.Logger = quietLog(t, 2)
	_, err := Start(ctx, o)
	cancel()
	if err == nil {
		t.Fatal("a server with a lost disk joined as if nothing had happened")
	}
	if !strings.Contains(err.Error(), "zlock member remove 2") {
		t.Errorf("the refusal does not say what to do: %v", err)
	}
	if _, id := c.nodes[3].raft.LeaderWithID(); id != "" {
		t.Fatalf("server %s leads without the server that holds the write", id)
	}
	c.start(1)
	eventually(t, "1 and 3 serve", func() bool { return c.seen[1].serving.Load() && c.seen[3].serving.Load() })
	if !c.has(1, "/kept") {
		t.Fatal("an acknowledged write is lost")
	}
	bg := context.Background()
	if err := c.nodes[3].ChangeMember(bg, MemberChange{Op: "remove", ID: 2}); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if err := c.nodes[1].ChangeMember(bg, MemberChange{Op: "add", ID: 2, Addr: c.opts[2].Peers[2]}); err != nil {
		t.Fatalf("add: %v", err)
	}
	c.start(2)
	eventually(t, "2 serves again", c.seen[2].serving.Load)
	eventually(t, "2 is promoted", func() bool {
		return c.nodes[1].ChangeMember(bg, MemberChange{Op: "promote", ID: 2}) == nil
	})
	eventually(t, "2 has the write", func() bool { return c.has(2, "/kept") })
	c.sameDigest()
}

// TestSnapshotReachesAServerThatWasAway makes the others cut their logs while
// one server is down.
func TestSnapshotReachesAServerThatWasAway(t *testing.T) {
	c := newTrio(t, true, func(o *Options) {
		o.TrailingLogs = 1
		o.LogStore = "bolt" // the segmented log goes on serving what it has not deleted yet
	})
	away := c.leader()%3 + 1
	stop(t, c.nodes[away])
	here := c.leader()
	eventually(t, "a leader", func() bool { here = c.leader(); return here != 0 })
	s := openSession(t, c.nodes[here], 30000).Session
	for i := range 200 {
		if o, err := propose(c.nodes[here], Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody(fmt.Sprintf("/n%d", i), 0)}); err != nil || o.Code != jute.OK {
			t.Fatalf("create: %+v %v", o, err)
		}
	}
	for id := 1; id <= 3; id++ {
		if id != away {
			if err := c.nodes[id].Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.start(away)
	eventually(t, "it serves", c.seen[away].serving.Load)
	if !c.has(away, "/n199") {
		t.Error("it serves without what was acknowledged before it started")
	}
	c.seen[away].mu.Lock()
	resets := c.seen[away].resets
	c.seen[away].mu.Unlock()
	if resets == 0 {
		t.Error("no snapshot was installed; the test tests nothing")
	}
	c.sameDigest()
}

func TestG10SessionHeardByAFollowerOutlivesTheLeader(t *testing.T) {
	c := newTrio(t, false, func(o *Options) { o.MinSessionTimeout = time.Second })
	lead := c.leader()
	follower := lead%3 + 1
	s := openSession(t, c.nodes[follower], 1000).Session
	silent := openSession(t, c.nodes[follower], 1000).Session
	c.seen[follower].hear(s.ID)
	time.Sleep(500 * time.Millisecond)
	stop(t, c.nodes[lead])
	eventually(t, "a new leader", func() bool { l := c.leader(); return l != 0 && l != lead })
	eventually(t, "the silent session ends", func() bool { _, ok := c.seen[follower].endedBy(silent.ID); return ok })
	time.Sleep(1500 * time.Millisecond)
	if _, ok := c.seen[follower].endedBy(s.ID); ok {
		t.Error("a session heard from all the time has expired")
	}
}

func TestG23ServerWithoutALeaderStopsServing(t *testing.T) {
	c := newTrio(t, false, nil)
	lead := c.leader()
	left := lead%3 + 1
	for id := 1; id <= 3; id++ {
		if id != left {
			stop(t, c.nodes[id])
		}
	}
	began := time.Now()
	eventually(t, "it stops serving", func() bool { return !c.seen[left].serving.Load() })
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
	if c.nodes[left].PingOK(900 * time.Millisecond) {
		t.Error("pings would still be answered")
	}
	if err := c.nodes[left].Propose(Request{Op: jute.OpSync}, &call{make(chan Outcome, 1)}); err == nil {
		t.Error("a request was taken in")
	}
	for id := 1; id <= 3; id++ {
		if id != left {
			c.start(id)
		}
	}
	for id := 1; id <= 3; id++ {
		eventually(t, "all serve again", c.seen[id].serving.Load)
	}
}

func TestR12FlappingLeadershipLeavesOneTermRunning(t *testing.T) {
	c := newTrio(t, false, nil)
	for range 6 {
		l := c.leader()
		if l == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		await(ctx, c.nodes[l].raft.LeadershipTransfer())
		cancel()
	}
	eventually(t, "one leader", func() bool {
		leaders := 0
		for id := 1; id <= 3; id++ {
			if c.nodes[id].term.Load() != nil {
				leaders++
			}
		}
		return leaders == 1
	})
	for id := 1; id <= 3; id++ {
		eventually(t, "it serves", c.seen[id].serving.Load)
		c.create(id, fmt.Sprintf("/after%d", id))
	}
	c.sameDigest()
}

func TestTwoServersCannotHaveOneID(t *testing.T) {
	c := newTrio(t, false, nil)
	o := c.opts[1]
	o.Stores = NewMemoryStores(false)
	o.PeerListen = freeAddr(t)
	o.Logger = quietLog(t, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := Start(ctx, o); err == nil {
		t.Error("a second server 1 joined")
	}
}

// BenchmarkPropose measures one server, in memory and on disk, with a lone
// client and with many.
func BenchmarkPropose(b *testing.B) {
	for _, disk := range []bool{false, true} {
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("disk=%v/clients=%d", disk, clients), func(b *testing.B) {
				o := Options{}
				if disk {
					o.DataDir = b.TempDir()
				}
				n, w := start(b, o)
				eventually(b, "serving", w.serving.Load)
				s := openSession(b, n, 60000).Session
				if o, err := propose(n, Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody("/x", 0)}); err != nil || o.Code != 0 {
					b.Fatal(o, err)
				}
				body := jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, "/x"), make([]byte, 100)), -1)
				b.ReportAllocs()
				b.SetParallelism(clients)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					c := &call{make(chan Outcome, 1)}
					for pb.Next() {
						if err := n.Propose(Request{Session: s.ID, Gen: s.Gen, Op: jute.OpSetData, Body: body}, c); err != nil {
							b.Error(err)
							return
						}
						<-c.ch
					}
				})
			})
		}
	}
}
