package raftfsm

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// create creates a node at a server, and tries again if the outcome is unknown.
func (c *trio) create(id int, path string) {
	c.t.Helper()
	again := false
	eventually(c.t, fmt.Sprintf("create %s at %d", path, id), func() bool {
		s := openSession(c.t, c.nodes[id], 30000).Session
		o := served(c.t, c.nodes[id], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
			Body: createBody(path, 0)})
		if o.Unknown { // on a busy machine the server may lose its leader: try again
			again = true
			return false
		}
		must.That(c.t, o.Code == jute.OK || again && o.Code == jute.NodeExists, "create %s at %d: %+v", path, id, o)
		return true
	})
}

func (c *trio) has(id int, path string) (ok bool) {
	c.nodes[id].View(func(s *state.State) { _, ok = s.Tree().Get(path) })
	return ok
}

// A write is on two of three servers. One of them loses its disk, and the other one is stopped. The two
// servers that run now both lack the write, so they must not form a majority. The documented repair brings
// all three back.
func TestR6LostDiskDoesNotVote(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	stop(t, c.nodes[3])
	c.create(1, "/kept")
	stop(t, c.nodes[1])
	stop(t, c.nodes[2])
	must.OK(t, os.RemoveAll(c.opts[2].DataDir))
	// Server 3 missed the write, and server 2 has lost it.
	c.start(3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	o := c.opts[2]
	o.Logger = quietLog(t, 2)
	o.Waiting = func(what string) { // the server does not start: it waits until it is replaced
		if strings.Contains(what, "zlock member replace 2") {
			cancel()
		}
	}
	_, err := Start(ctx, o)
	cancel()
	must.Fails(t, err, "a server with a lost disk joined as if nothing had happened")
	expect.Has(t, err.Error(), "zlock member replace 2", "the refusal does not say what to do: %v", err)
	_, id := c.nodes[3].raft.LeaderWithID()
	must.Equal(t, id, "", "server %s leads without the server that holds the write", id)
	c.start(1)
	eventually(t, "1 and 3 serve", func() bool { return c.seen[1].serving.Load() && c.seen[3].serving.Load() })
	must.That(t, c.has(1, "/kept"), "an acknowledged write is lost")
	bg := context.Background()
	must.OK(t, c.nodes[3].ChangeMember(bg, change.Change{Op: "remove", ID: 2}), "remove")
	if err := c.nodes[1].ChangeMember(bg, change.Change{
		Op: "add", ID: 2, Addr: c.opts[2].Peers[2]}); err != nil {
		t.Fatalf("add: %v", err)
	}
	c.start(2)
	eventually(t, "2 serves again", c.seen[2].serving.Load)
	eventually(t, "2 is promoted", func() bool {
		return c.nodes[1].ChangeMember(bg, change.Change{Op: "promote", ID: 2}) == nil
	})
	eventually(t, "2 has the write", func() bool { return c.has(2, "/kept") })
	c.sameDigest()
}

// If the other servers cut their logs while a server is away, the server gets a snapshot when it is back.
func TestSnapshotReachesAServerThatWasAway(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, func(o *Options) {
		o.TrailingLogs = 1
		o.LogStore = "bolt" // with the segmented log the leader might send the cut entries, not a snapshot
	})
	away := c.leader()%3 + 1
	stop(t, c.nodes[away])
	here := c.mustLead()
	eventually(t, "a leader", func() bool { here = c.leader(); return here != 0 })
	s := openSession(t, c.nodes[here], 30000).Session
	for i := range 200 {
		if o, err := propose(c.nodes[here], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
			Body: createBody(fmt.Sprintf("/n%d", i), 0)}); err != nil || o.Code != jute.OK {
			t.Fatalf("create: %+v %v", o, err)
		}
	}
	for id := 1; id <= 3; id++ {
		if id != away {
			must.OK(t, c.nodes[id].Snapshot())
		}
	}
	c.start(away)
	eventually(t, "it serves", c.seen[away].serving.Load)
	expect.That(t, c.has(away, "/n199"), "it serves without what was acknowledged before it started")
	c.seen[away].mu.Lock()
	resets := c.seen[away].resets
	c.seen[away].mu.Unlock()
	expect.That(t, resets != 0, "no snapshot was installed; the test tests nothing")
	c.sameDigest()
}

func TestG10SessionHeardByAFollowerOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, func(o *Options) {
		brisk(o)
		o.MinSessionTimeout = 3 * time.Second
	})
	lead := c.mustLead()
	follower := lead%3 + 1
	s := openSession(t, c.nodes[follower], 3000).Session
	silent := openSession(t, c.nodes[follower], 3000).Session
	c.seen[follower].hear(s.ID)
	time.Sleep(500 * time.Millisecond)
	stop(t, c.nodes[lead])
	eventually(t, "a new leader", func() bool { l := c.leader(); return l != 0 && l != lead })
	ends := func(id int64) func() bool {
		return func() bool { _, ok := c.seen[follower].endedBy(id); return ok }
	}
	eventually(t, "the silent session ends", ends(silent.ID))
	later := openSession(t, c.nodes[follower], 3000).Session
	eventually(t, "another silent session ends", ends(later.ID))
	if _, ok := c.seen[follower].endedBy(s.ID); ok {
		t.Error("a session heard from all the time has expired")
	}
}

// If a link breaks right after a message, the message may be lost. So the next link reports all sessions
// again.
func TestG10NewLinkTellsOfAllSessions(t *testing.T) {
	t.Parallel()
	net := newCutNet()
	c := newTrio(t, false, func(o *Options) { brisk(o); net.tune(o) })
	id := c.leader()%3 + 1
	follower := c.seen[id]
	links := func() int {
		follower.mu.Lock()
		defer follower.mu.Unlock()
		return follower.links
	}
	eventually(t, "a link", func() bool { return links() > 0 })
	was := links()
	eventually(t, "another link", func() bool {
		if l := c.leader(); l != 0 && l != id {
			net.set(uint32(l), uint32(id), io.ErrClosedPipe)
			net.set(uint32(l), uint32(id), nil)
		}
		return links() > was
	})
}

func TestG23ServerWithoutALeaderStopsServing(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, brisk)
	lead := c.mustLead()
	left := lead%3 + 1
	for id := 1; id <= 3; id++ {
		if id != left {
			stop(t, c.nodes[id])
		}
	}
	eventually(t, "it stops serving", func() bool { return !c.seen[left].serving.Load() })
	expect.That(t, !c.nodes[left].PingOK(900*time.Millisecond), "pings would still be answered")
	if err := c.nodes[left].Propose(state.Request{Op: jute.OpSync}, &call{
		make(chan state.Outcome, 1)}); err == nil {
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
	t.Parallel()
	c := newTrio(t, false, brisk)
	for range 6 {
		l := c.leader()
		if l == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		consensus.Await(ctx, c.nodes[l].raft.LeadershipTransfer())
		cancel()
	}
	eventually(t, "one leader", func() bool {
		leaders := 0
		for id := 1; id <= 3; id++ {
			if c.nodes[id].leader.Term() != nil {
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
	t.Parallel()
	c := newTrio(t, false, nil)
	o := c.opts[1]
	o.Stores = disk.NewMemoryStores(false)
	o.PeerListen = freeAddr(t)
	o.Logger = quietLog(t, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	expect.Fails(t, expect.Err(Start(ctx, o)), "a second server 1 joined")
}

// BenchmarkPropose measures one server, in memory and on disk, with one client and with many.
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
				if o, err := propose(n, state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
					Body: createBody("/x", 0)}); err != nil || o.Code != 0 {
					b.Fatal(o, err)
				}
				body := jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, "/x"), make([]byte, 100)), -1)
				b.ReportAllocs()
				b.SetParallelism(clients)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					c := &call{make(chan state.Outcome, 1)}
					for pb.Next() {
						if err := n.Propose(state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpSetData, Body: body},
							c); err != nil {
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

// A removed server stops serving and says why. It learns of its removal from its log, or from other servers.
// Once it is added again, it serves.
func TestRemovedServerStopsByItself(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	lead := c.mustLead()
	gone := uint32(lead%3 + 1)
	eventually(t, "it serves", c.seen[gone].serving.Load)
	c.change(lead, "remove", gone)
	eventually(t, "it serves no more", func() bool { return !c.seen[gone].serving.Load() })
	eventually(t, "it says why", func() bool {
		st := c.nodes[gone].Status()
		return st.Removed && strings.HasSuffix(st.Reason, "this server was removed from the cluster") ||
			strings.HasSuffix(st.Reason, "this server was removed from the cluster: stop it")
	})
	c.change(lead, "add", gone)
	eventually(t, "it serves again", c.seen[gone].serving.Load)
}

// A server was removed while it was away, and hears of this from other servers. When it is a member again,
// its status no longer advises the operator to stop it, with or without a leader.
func TestServerAddedAgainIsNotTakenForARemovedOne(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, brisk)
	lead := c.mustLead()
	gone := uint32(lead%3 + 1)
	stop(t, c.nodes[gone])
	c.change(lead, "remove", gone)
	c.start(int(gone))
	eventually(t, "it knows that it was removed", func() bool { return c.nodes[gone].Status().Removed })
	c.change(lead, "add", gone)
	eventually(t, "it serves", c.seen[gone].serving.Load)
	for id, n := range c.nodes {
		if n != nil && uint32(id) != gone {
			n.Abort()
		}
	}
	eventually(t, "it knows no leader", func() bool { return c.nodes[gone].Status().Leader == 0 })
	must.That(t, !c.nodes[gone].Status().Removed, "it takes itself for removed")
}

// change() asks the server `by` to remove a server, or to add it again. It is no error if the server answers
// that the change is already made: then an earlier try has succeeded, although its answer was lost.
func (c *trio) change(by int, op change.Op, id uint32) {
	c.t.Helper()
	eventually(c.t, string(op), func() bool {
		err := c.nodes[by].ChangeMember(context.Background(), change.Change{
			Op: op, ID: id, Addr: c.opts[id].Peers[id]})
		made := map[change.Op]status.Code{change.Remove: status.NotMember, change.Add: status.IsMember}[op]
		return err == nil || status.Of(err) == made
	})
}

// A server is cut off, removed and added again, and has not heard of its removal. It gets a snapshot without
// its stream. So it must open another stream before it serves clients.
func TestServerAddedAgainBehindItsBackServes(t *testing.T) {
	t.Parallel()
	net := newCutNet()
	c := newTrio(t, true, func(o *Options) {
		brisk(o)
		net.tune(o)
		o.TrailingLogs = 1
		o.LogStore = "bolt" // with the segmented log the leader might send the cut entries, not a snapshot
	})
	lead := c.mustLead()
	gone := uint32(lead%3 + 1)
	net.isolate(gone, errAway)
	c.change(lead, "remove", gone)
	eventually(t, "it is forgotten", func() (is bool) {
		c.nodes[lead].View(func(s *state.State) { m, _ := s.Member(gone); is = m.Incarnation == "" })
		return is
	})
	c.change(lead, "add", gone)
	for i := range 20 {
		c.create(lead, fmt.Sprintf("/n%d", i))
	}
	for id, n := range c.nodes {
		if id != 0 && uint32(id) != gone {
			must.OK(t, n.Snapshot())
		}
	}
	net.isolate(gone, nil)
	eventually(t, "it has the snapshot", func() bool { return c.seen[gone].resetCount() > 0 })
	eventually(t, "it serves", c.seen[gone].serving.Load)
	c.create(int(gone), "/served")
}

// A byte of a snapshot rots on the leader's disk. A server that needs this snapshot must not end, and must
// not start from it. The leader writes another snapshot from the state in its memory.
func TestF5RottenSnapshotIsNotPassedOn(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, func(o *Options) {
		o.TrailingLogs = 1
		o.LogStore = "bolt" // with the segmented log the leader might send the cut entries, not a snapshot
	})
	lead := c.mustLead()
	away := lead%3 + 1
	stop(t, c.nodes[away])
	for i := range 50 {
		c.create(lead, fmt.Sprintf("/n%d", i))
	}
	for id, n := range c.nodes {
		if id == 0 || id == away {
			continue
		}
		must.OK(t, n.Snapshot())
		list, err := filepath.Glob(filepath.Join(c.opts[id].DataDir, "snapshots", "*.snap"))
		must.OK(t, err)
		must.That(t, len(list) != 0, "server %d has no snapshot", id)
		newest := list[len(list)-1]
		spoil(t, newest)
	}
	c.start(away)
	eventually(t, "it serves", c.seen[away].serving.Load)
	expect.That(t, c.has(away, "/n49"), "it serves without what it missed")
	expect.That(t, c.seen[away].resetCount() != 0, "it needed no snapshot, so this test shows nothing")
	// Each round restarts the server from its own snapshot. After the snapshot's last entry, the server's log
	// must not hold an entry that the leader lacks.
	for range 5 {
		stop(t, c.nodes[away])
		c.start(away)
		eventually(t, "it serves from its own snapshot", c.seen[away].serving.Load)
	}
	c.sameDigest()
}

// spoil() changes a byte in the middle of a file. It writes into the file itself, not into a copy that would
// replace it, so a server that has the file open reads the wrong byte.
func spoil(t *testing.T, name string) {
	t.Helper()
	f := must.Get(os.OpenFile(name, os.O_RDWR, 0))(t)
	defer f.Close()
	info := must.Get(f.Stat())(t)
	var b [1]byte
	must.Get(f.ReadAt(b[:], info.Size()/2))(t)
	b[0] ^= 1
	must.Get(f.WriteAt(b[:], info.Size()/2))(t)
}

// If only one server's link to the leader is refused, that server does not depose the leader. It does not do
// so even if the other servers, whose links work, are too busy to answer its questions.
func TestRefusingLinkDoesNotDeposeTheLeader(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"the third server answers": false,
		"the third server is busy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net := newCutNet()
			// The trio has long heartbeats. So even on a slow machine a server stands for election only if
			// its link is refused.
			c := newTrio(t, false, net.tune)
			lead := uint32(c.mustLead())
			cut, other := lead%3+1, (lead+1)%3+1
			term := c.nodes[other].raft.CurrentTerm()
			for round := range 5 {
				eventually(t, "the links stand", func() bool {
					return c.nodes[cut].linked.Load() == lead &&
						c.nodes[other].linked.Load() == lead
				})
				if busy {
					net.set(cut, other, errAway)
				}
				before := net.refusals(cut, lead)
				net.set(cut, lead, syscall.ECONNREFUSED)
				eventually(t, "it has tried again and again", func() bool { return net.refusals(cut, lead) >= before+6 })
				net.set(cut, lead, nil)
				net.set(cut, other, nil)
				now := c.nodes[other].raft.CurrentTerm()
				must.Equal(t, now, term, "the term after cut %d", round+1)
				must.Equal(t, uint32(c.mustLead()), lead, "the leader after cut %d", round+1)
			}
			expect.Equal(t, c.nodes[cut].raft.CurrentTerm(), term, "the term at the server that was cut off")
		})
	}
}
