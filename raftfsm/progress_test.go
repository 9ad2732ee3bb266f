package raftfsm

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/serving"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Each server reports the progress of all members, and distinguishes a server that is down from a server
// that lags behind.
func TestProgressOfMembers(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, func(o *Options) { o.Release = fmt.Sprintf("9.%d", o.ID) })
	for i := range 20 {
		c.create(c.mustLead(), fmt.Sprintf("/n%d", i))
	}
	for id := 1; id <= 3; id++ {
		eventually(t, "all are level", func() bool {
			all := c.nodes[id].all(t)
			for of := uint32(1); of <= 3; of++ {
				if p := all[of]; p.Applied < 20 || p.Lag != 0 || p.Heard == nil || p.Version != fmt.Sprintf("9.%d", of) ||
					p.Starts != 1 || p.Waits != "" || p.LagBytes == nil || *p.LagBytes != 0 {
					return false
				}
			}
			return len(all) == 3
		})
	}
	gone := uint32(c.mustLead()%3 + 1)
	stop(t, c.nodes[gone])
	c.create(c.mustLead(), "/more")
	eventually(t, "it is not heard", func() bool {
		p := c.nodes[c.mustLead()].all(t)[gone]
		return p.Heard == nil && strings.Contains(p.Waits, "refused")
	})
	p := c.nodes[c.mustLead()].all(t)[gone]
	expect.That(t, p.Lag != 0, "a server that is down does not lag behind")
	if expect.That(t, p.LagBytes != nil, "it is not known how many bytes a server that is down lacks") {
		expect.That(t, *p.LagBytes > 0, "a server that is down lacks %d bytes", *p.LagBytes)
	}
	// Without the other two servers the last one has no leader. It still reports the members' progress.
	last := uint32(c.mustLead())
	for id := uint32(1); id <= 3; id++ {
		if id != last && id != gone {
			stop(t, c.nodes[id])
		}
	}
	eventually(t, "nobody leads", func() bool { id, _ := c.nodes[last].raft.Known(); return id == 0 })
	for id, p := range c.nodes[last].all(t) {
		expect.Equal(t, id == last, p.Heard != nil, "without a leader, server %d: %+v", id, p)
	}
}

// A probe reports whether an address has a server with another id, no server, or a server that can be added.
func TestProbeFindsWhoWouldBeAdded(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	other := newTrio(t, false, nil)
	fourth := map[uint32]string{1: c.opts[1].Peers[1], 4: freeAddr(t)}
	n := startWaiting(t, Options{ID: 4, Peers: fourth})
	stray := startWaiting(t, Options{ID: 4, Peers: map[uint32]string{4: freeAddr(t), 9: freeAddr(t)}})
	for _, asked := range []int{c.mustLead(), c.mustLead()%3 + 1} {
		for _, test := range []struct {
			what string
			id   uint32
			addr string
			want string // a part of the error, or of what the server waits for
			fail bool
		}{
			{"another id", 5, fourth[4], "this is server 4, not 5", true},
			{"a member's address", 5, c.opts[2].Peers[2], "server 2 is at ", true},
			{"another cluster", 2, other.opts[2].Peers[2], "belongs to cluster", true},
			{"one that looks elsewhere", 4, stray, "which name no member", true},
			{"nobody", 4, freeAddr(t), "refused", false},
			{"who waits to be added", 4, n, "zlock member add 4", false},
		} {
			eventually(t, test.what, func() bool {
				p, err := c.nodes[asked].Probe(t.Context(), test.id, test.addr)
				text := ""
				switch {
				case p != nil:
					text = p.Waits
				case err != nil:
					text = err.Error()
				}
				return test.fail == (err != nil) && strings.Contains(text, test.want)
			})
		}
	}
}

// all() returns the members as a server reports them.
func (n *Node) all(t *testing.T) map[uint32]status.Member {
	list, _ := n.Members(t.Context())
	return list.Members
}

// startWaiting starts a server that waits for others, and returns its address.
func startWaiting(t *testing.T, o Options) string {
	t.Helper()
	o.Logger = quietLog(t, o.ID)
	d := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(d)
		if n, err := Start(ctx, o); err == nil {
			stop(t, n)
		}
	}()
	t.Cleanup(func() { cancel(); <-d })
	return o.Peers[o.ID]
}

// A leader hands over to the server that the request names.
func TestLeadNamesTheLeader(t *testing.T) {
	t.Parallel()
	c := newTrio(t, false, nil)
	for range 3 {
		lead := c.mustLead()
		next := uint32(lead%3 + 1)
		eventually(t, "it leads", func() bool { // tried again: on a busy machine the leader may refuse
			return c.nodes[(lead+1)%3+1].Lead(t.Context(), next) == nil && c.leader() == int(next) &&
				c.seen[int(next)].serving.Load()
		})
		eventually(t, "all know", func() bool {
			for id := 1; id <= 3; id++ {
				if l, _ := c.nodes[id].raft.Known(); l != next || id != int(next) && c.nodes[id].linked.Load() != next {
					return false
				}
			}
			return true
		})
	}
	err := c.nodes[1].Lead(t.Context(), 9)
	must.Fails(t, err)
	expect.Has(t, err.Error(), "is not a member")
	must.OK(t, c.nodes[c.mustLead()].ChangeMember(t.Context(), change.Change{
		Op: "add", ID: 4, Addr: "127.0.0.1:9"}))
	err = c.nodes[c.mustLead()].Lead(t.Context(), 4)
	must.Fails(t, err)
	expect.Has(t, err.Error(), "has no vote")
	err = c.nodes[c.mustLead()].ChangeMember(t.Context(), change.Change{Op: "add", ID: 5, Addr: "127.0.0.1:9"})
	must.Fails(t, err)
	expect.Has(t, err.Error(), "server 4 is at 127.0.0.1:9")
}

// onLine is a log handler that calls do() at each line with the message `msg`.
type onLine struct {
	slog.Handler
	msg string
	do  func()
}

func (h onLine) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.msg {
		h.do()
	}
	return h.Handler.Handle(ctx, r)
}

func (h onLine) WithAttrs(a []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(a)
	return h
}

// A change of members succeeds even if it comes at the moment at which a term begins.
func TestMembersMayChangeAsSoonAsATermBegins(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	changed := make(chan error, 1)
	var c *trio
	c = newTrio(t, false, func(o *Options) {
		id := int(o.ID)
		o.Logger = slog.New(onLine{quietLog(t, o.ID).Handler(), "this server leads", func() {
			if ready.CompareAndSwap(true, false) {
				changed <- c.nodes[id].ChangeMember(t.Context(), change.Change{
					Op: "add", ID: 4, Addr: "127.0.0.1:9"})
			}
		}})
	})
	lead := c.mustLead()
	ready.Store(true)
	eventually(t, "another leads",
		func() bool { return c.nodes[lead].Lead(t.Context(), uint32(lead%3+1)) == nil })
	expect.OK(t, <-changed)
}

// A probe reports an address that only some members reach, because the next leader may not reach it.
func TestProbeAsksTheOthersWhetherTheyReachIt(t *testing.T) {
	t.Parallel()
	net := newCutNet()
	c := newTrio(t, false, func(o *Options) { net.tune(o) })
	lead := c.mustLead()
	blind := uint32(lead%3 + 1)
	peers := map[uint32]string{1: c.opts[1].Peers[1], 4: freeAddr(t)}
	net.mu.Lock()
	net.ids[peers[4]] = 4
	net.mu.Unlock()
	startWaiting(t, Options{ID: 4, Peers: peers})
	eventually(t, "it could be added", func() bool {
		p, err := c.nodes[lead].Probe(t.Context(), 4, peers[4])
		return err == nil && p.Heard != nil
	})
	net.set(blind, 4, syscall.ECONNREFUSED)
	want := fmt.Sprintf("server %d does not reach server 4 at %s, as every member must", blind, peers[4])
	eventually(t, "one member does not reach it", func() bool { // tried again: a member may answer too late
		_, err := c.nodes[lead].Probe(t.Context(), 4, peers[4])
		return err != nil && strings.Contains(err.Error(), want)
	})
}

// Servers whose releases have no version in common refuse each other. Otherwise they would fail later, at a
// message or an entry that one of them cannot read.
func TestF4ServerOfAnotherReleaseIsRefused(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	for _, c := range []struct {
		oldest, version int
		ok              bool
	}{
		{peer.Oldest, peer.Version, true},
		{peer.Version, peer.Version + 3, true},
		{peer.Version + 1, peer.Version + 3, false},
		{0, peer.Oldest - 1, false},
		{0, 0, false}, // the greeting names no versions
	} {
		g := host{n}.Greeting(n.id)
		g.From, g.To, g.Oldest, g.Version = n.id, n.id, c.oldest, c.version
		err := (host{n}).Admit(peer.Ask, &g)
		expect.Equal(t, err == nil, c.ok, "versions %d to %d are admitted", c.oldest, c.version)
		if err != nil {
			expect.Has(t, err.Error(), "release", "versions %d to %d", c.oldest, c.version)
		}
	}
}

// The status of a server says whether it leads, follows, was removed, runs alone, or has lost its raft.
func TestStatusOfAServer(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, func(o *Options) { o.PeerInsecure = true })
	lead := c.mustLead()
	c.create(lead, "/x")
	follower := c.nodes[lead%3+1]
	for id := 1; id <= 3; id++ {
		n := c.nodes[id]
		eventually(t, "it says what it is", func() bool {
			st, now := n.Status(), c.leader()
			if now == 0 || st.Leader != uint32(now) || n.leader.Term() != nil != (now == id) {
				return false
			}
			want := map[bool]string{true: "leader", false: "follower"}[id == now]
			return st.Role == want && st.Leads > 0 == (id == now) && st.Term == n.raft.CurrentTerm() && st.Serving &&
				st.Reason == "" && st.Elections == n.leader.Won() && len(st.Members) == 3 && st.Commit > 0 &&
				st.Commit <= st.Last && st.Applied > 0 && st.Zxid > 0 && !st.Removed && !st.ReadOnly && st.PeerInsecure &&
				st.Full == "" && st.Syncs > 0 && st.SyncTime > 0 && st.SyncMax > 0 && st.LogBehind > 0
		})
	}
	eventually(t, "the leader knows how far all are", func() bool {
		for _, m := range c.nodes[c.mustLead()].Status().Members {
			if m.Applied == 0 {
				return false
			}
		}
		return true
	})
	_, config := follower.raft.Configuration()
	for removed, want := range map[uint64]bool{0: false, config: false, config + 1: false} {
		follower.removed.Store(removed)
		eventually(t, "it knows a leader", func() bool {
			st := follower.Status()
			return st.Leader != 0 &&
				st.Removed == want
		})
	}
	follower.Abort()
	for removed, want := range map[uint64]bool{0: false, config: false, config + 1: true} {
		follower.removed.Store(removed)
		st := follower.Status()
		expect.Equal(t, st.Removed, want, "others have configuration %d, this one %d; leader %d", removed, config,
			st.Leader)
		expect.Equal(t, st.Role, "")
	}
	expect.Fails(t, expect.Err(follower.Members(t.Context())), "it asks a leader that it does not know")

	alone, _ := start(t, Options{PeerInsecure: true})
	newAsker(t, alone)
	eventually(t, "it leads", func() bool { return alone.Status().Role == "standalone" })
	st := alone.Status()
	expect.That(t, !st.PeerInsecure, "a server alone says that its peers are insecure")
	expect.That(t, st.Snapshot.Time.IsZero(), "a new server has a snapshot of %v", st.Snapshot.Time)
	expect.Equal(t, len(st.Members), 1, "len(st.Members)")
	list := must.Get(alone.Members(t.Context()))(t)
	expect.Equal(t, list.Leader, 1, "list.Leader")
	expect.Equal(t, list.ID, 1, "list.ID")
	expect.Equal(t, list.Cluster, st.Cluster, "list.Cluster")
	expect.Equal(t, len(list.Members), 1, "len(list.Members)")
	m := list.Members[1]
	expect.That(t, m.Applied > 0, "it has applied nothing")
	expect.Equal(t, m.Lag, 0, "entries that it lags behind itself")
	if expect.That(t, m.LagBytes != nil, "it is not known how many bytes it lags behind itself") {
		expect.Equal(t, *m.LagBytes, 0, "bytes that it lags behind itself")
	}
	expect.That(t, m.Starts > 0, "it was never started")
	expect.That(t, m.Voter, "it has no vote")
	_, err := alone.Probe(t.Context(), 2, "127.0.0.1:1")
	expect.Equal(t, err, errAlone)
	alone.Abort()
	expect.Equal(t, alone.Status().Role, "", "a server whose raft has ended")
	no, over := func() bool { return false }, make(chan struct{})
	alone.serving = serving.New(serving.Options{Heartbeat: -time.Hour, ReadOnly: true, Clients: new(watcher),
		Leads: no,
		Gone:  no, Log: alone.log})
	alone.serving.Use(alone.raft, alone.fsm, nil)
	close(over)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	// Watch looks once and returns. The last leader has been gone for long, so clients may only read.
	alone.serving.Watch(gone, over)
	expect.That(t, alone.Status().ReadOnly, "clients read, and it does not say so")
}

// A probe refuses an impossible id and an address of another server, and finds a server that answers.
func TestServersThatAProbeFinds(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{Peers: map[uint32]string{1: freeAddr(t)}})
	newAsker(t, n)
	for _, c := range []struct {
		id   uint32
		addr string
		want string
	}{{0, "127.0.0.1:9", "server id 0 is not a number from 1 to"}, {2, n.PeerAddr(), "server 1 is at " + n.PeerAddr()}} {
		_, err := n.Probe(t.Context(), c.id, c.addr)
		must.Fails(t, err)
		expect.Has(t, err.Error(), c.want)
	}
	eventually(t, "it finds itself", func() bool { // tried again: a busy machine may answer too late
		found, err := n.Probe(t.Context(), 1, n.PeerAddr())
		return err == nil && found.Known && found.At == n.PeerAddr() && found.Applied > 0 && found.Waits == ""
	})
	found := must.Get(n.Probe(t.Context(), 2, must.Refused(t)))(t)
	expect.That(t, !found.Known, "a server that is down is known")
	expect.Equal(t, found.At, "", "address of a server that is down")
	expect.Has(t, found.Waits, "refused")
}

// A server takes the progress of another server from that server's answer. The applied entry counts only
// while that server's raft runs.
func TestProgressThatAServerSays(t *testing.T) {
	t.Parallel()
	st := peer.Status{Release: "9", Waits: "others", Now: peer.Shown{Start: 3, Index: 7}}
	for _, st.Up = range []bool{false, true} {
		p := progressOf(&st)
		if expect.That(t, p.Heard != nil, "a server that answered was not heard") {
			expect.Equal(t, *p.Heard, 0, "ms since it was heard")
		}
		expect.Equal(t, p.Version, "9", "release")
		expect.Equal(t, p.Waits, "others", "what it waits for")
		expect.Equal(t, p.Starts, 3, "starts")
		expect.Equal(t, p.Applied, map[bool]uint64{true: 7}[st.Up])
	}
}
