package raftfsm

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/serving"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The table names kinds of callers. For each, it has the server's reason to refuse the caller, and whether
// the server notes the position in the log that the caller shows.
func TestR6CallersThatAServerLetsIn(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	n := ended(t, Options{Peers: map[uint32]string{1: addr}, PeerListen: addr})
	id := n.disk.Identity()
	id.Incarnations = maps.Clone(id.Incarnations)
	id.Incarnations[2] = "b" // known only from here: the state names no directory of server 2
	must.OK(t, n.disk.SaveIdentity(id))
	own, index := id.Incarnation, n.fsm.Index()
	id.Incarnations[3] = "old"
	for _, c := range []struct {
		name string
		tune func(g *peer.Greeting)
		p    peer.Purpose
		want string // why the server refuses the caller; empty: it admits the caller
		note bool   // whether the server notes the caller's log position
	}{
		{"a member", func(*peer.Greeting) {}, peer.Raft, "", true},
		{"a member over a link", func(*peer.Greeting) {}, peer.Link, "", true},
		{"a caller of any server", func(g *peer.Greeting) { g.To = 0 }, peer.Raft, "", true},
		{"a caller of another server", func(g *peer.Greeting) { g.To = 3 }, peer.Ask, "this is server 1, not 3",
			false},
		{"another with this id", func(g *peer.Greeting) { g.From = 1 }, peer.Ask, "two servers run with --id 1",
			false},
		{"itself", func(g *peer.Greeting) { g.From, g.Incarnation = 1, own }, peer.Raft, "", true},
		{"a member of another cluster", func(g *peer.Greeting) { g.Cluster = "other" }, peer.Ask,
			"belongs to cluster " + id.Cluster + ", the caller to other", false},
		{"a new server that asks", func(g *peer.Greeting) { g.Cluster, g.Incarnation = "", "new" }, peer.Ask, "",
			false},
		{"a new server for raft", func(g *peer.Greeting) { g.Cluster = "" }, peer.Raft, "not formed yet", true},
		{"a server that no other knows", func(g *peer.Greeting) { g.From, g.Incarnation = 9, "new" }, peer.Raft, "",
			false},
		{"another directory", func(g *peer.Greeting) { g.Incarnation = "former" }, peer.Link,
			"server 2 runs on a data directory other than the one", false},
		{"another directory that asks", func(g *peer.Greeting) { g.Incarnation = "former" }, peer.Ask, "", false},
		{"one expected as of now", func(g *peer.Greeting) { g.Incarnation, g.Expected = "former", index },
			peer.Raft,
			"directory other than the one", false},
		{"one expected later", func(g *peer.Greeting) { g.Incarnation, g.Expected = "next", index+1 }, peer.Raft,
			"", true},
		{"an old copy", func(g *peer.Greeting) { g.From, g.Incarnation = 3, "old" }, peer.Raft, "is an old copy",
			false},
		{"an old copy that asks", func(g *peer.Greeting) { g.From, g.Incarnation = 3, "old" }, peer.Ask, "", false},
		{"one that knows more of another directory", func(g *peer.Greeting) {
			g.Known, g.KnownAs = &peer.Shown{Start: 99}, "another"
		}, peer.Raft, "", true},
		{"one that knows less", func(g *peer.Greeting) { g.Known, g.KnownAs = &peer.Shown{}, own }, peer.Raft, "",
			true},
		{"one that knows more of this one", func(g *peer.Greeting) {
			g.Known, g.KnownAs = &peer.Shown{Start: 99},
				own
		},
			peer.Ask, "the data directory of server 1 is an old copy", false},
	} {
		g := peer.Greeting{From: 2, To: 1, Cluster: id.Cluster, Incarnation: "b", Version: peer.Version,
			Oldest: peer.Oldest, Shown: peer.Shown{Start: 3, Life: "l", Term: 1}}
		c.tune(&g)
		n.promises = must.Get(form.LoadPromises(n.disk, n.log))(t)
		n.promises.Note("old", peer.Shown{Start: 5, Life: "x"})
		err := host{n}.Admit(c.p, &g)
		if c.want == "" {
			expect.OK(t, err, "%s", c.name)
		} else if expect.Fails(t, err, "%s", c.name) {
			expect.Has(t, err.Error(), c.want, "%s", c.name)
		}
		noted := n.promises.Of(g.Incarnation)
		expect.That(t, noted.Start == 3 == c.note, "%s: noted %+v", c.name, noted)
	}
	// Until a server has a cluster and its raft runs, others may only ask it questions.
	n.up.Store(false)
	g := peer.Greeting{From: 2, To: 1, Cluster: id.Cluster, Incarnation: "b", Version: peer.Version,
		Oldest: peer.Oldest}
	expect.OK(t, host{n}.Admit(peer.Ask, &g))
	expect.Fails(t, host{n}.Admit(peer.Raft, &g), "its raft does not run")
	n.up.Store(true)
	d := memoryDisk(t, 1)
	bare := &Node{id: 1, disk: d, promises: must.Get(form.LoadPromises(d, quietLog(t, 1)))(t)}
	bare.addresses = newAddresses(bare)
	// A server that waits for a cluster may take the place of the caller. Such a caller, which leads, may ask it
	// questions. A caller without a cluster is a second server with one id.
	for _, c := range []struct {
		from    uint32
		cluster string
		p       peer.Purpose
		want    string // why the server refuses the caller; empty: it admits the caller
	}{
		{2, "c", peer.Ask, ""},
		{1, "c", peer.Ask, ""},
		{1, "", peer.Ask, "two servers run with --id 1"},
		{1, "c", peer.Raft, "two servers run with --id 1"},
		{1, "c", peer.Link, "two servers run with --id 1"},
	} {
		g.From, g.Cluster = c.from, c.cluster
		err := host{bare}.Admit(c.p, &g)
		if c.want == "" {
			expect.OK(t, err, "%+v", c)
		} else if expect.Fails(t, err, "%+v", c) {
			expect.Has(t, err.Error(), c.want, "%+v", c)
		}
	}
	g.From, g.Cluster = 2, "c"
	err := host{bare}.Admit(peer.Link, &g)
	must.Fails(t, err)
	expect.Has(t, err.Error(), "not formed yet")
}

// TestWhatAServerSaysOfItself checks the greeting of a server and its answer to a question, also before its
// raft runs.
func TestWhatAServerSaysOfItself(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	n, _ := start(t, Options{Peers: map[uint32]string{1: addr}, Release: "9.1"})
	newAsker(t, n)
	eventually(t, "the members are published", func() bool { return n.fsm.Published() })
	id := n.disk.Identity()
	id.Incarnations = maps.Clone(id.Incarnations)
	id.Incarnations[2], id.Expected = "b", 3
	must.OK(t, n.disk.SaveIdentity(id))
	n.promises.Note("b", peer.Shown{Start: 4, Life: "l", Term: 1, Index: 9})

	g := host{n}.Greeting(2)
	expect.Equal(t, fmt.Sprint(g.Cluster, g.Incarnation, g.Expected, g.KnownAs), fmt.Sprint(id.Cluster,
		id.Incarnation, 3, "b"))
	must.That(t, g.Known != nil, "it does not say what it knows")
	expect.Equal(t, *g.Known, peer.Shown{Start: 4, Life: "l", Term: 1, Index: 9})
	expect.Equal(t, g.Start, 1, "start in the greeting")
	expect.Equal(t, g.Life, id.Life, "life in the greeting")
	expect.Equal(t, g.Term, n.raft.CurrentTerm(), "term in the greeting")
	expect.That(t, g.Index > 0, "the greeting shows no applied entry")
	expect.That(t, g.End >= g.Index, "the log in the greeting ends at %d, before the applied entry %d", g.End,
		g.Index)
	g = host{n}.Greeting(7)
	expect.That(t, g.Known == nil, "the greeting shows what it knows of an unknown server: %+v", g.Known)
	expect.Equal(t, g.KnownAs, "", "the directory of an unknown server")

	st := host{n}.Status(&peer.Greeting{Incarnation: "b"})
	expect.Equal(t, st.Known, peer.Shown{Start: 4, Life: "l", Term: 1, Index: 9})
	expect.Equal(t, st.Now.Start, 1, "start in the status")
	expect.That(t, st.Now.Index > 0, "the status shows no applied entry")
	expect.Equal(t, fmt.Sprint(st.ID, st.Cluster, st.Incarnation, st.Release, st.Version), fmt.Sprint(1,
		id.Cluster,
		id.Incarnation, "9.1", peer.Version))
	expect.Equal(t, fmt.Sprint(st.Incarnations), fmt.Sprint(map[uint32]string{1: id.Incarnation, 2: "b"}))
	expect.That(t, maps.Equal(st.Members, map[uint32]string{1: addr}), "members %v", st.Members)
	expect.That(t, st.Up, "raft runs, and the status does not say so")
	expect.Equal(t, st.Leader, 1, "st.Leader")
	expect.Equal(t, st.Linked, 0, "st.Linked")
	expect.Equal(t, st.Silent, 0, "st.Silent")
	expect.That(t, !st.Stands, "a leader stands for election")
	expect.Equal(t, st.Waits, "", "st.Waits")
	expect.Equal(t, st.LastTerm, n.raft.CurrentTerm(), "st.LastTerm")
	expect.That(t, st.LastIndex >= st.Now.Index, "the log ends at %d, before the applied entry %d", st.LastIndex,
		st.Now.Index)
	expect.That(t, st.AsOf >= st.Now.Index, "the members are as of entry %d, before the applied entry %d",
		st.AsOf,
		st.Now.Index)
	expect.That(t, st.Config > 0, "the status has no configuration")
	expect.That(t, st.Config <= st.LastIndex, "the configuration is entry %d, after the end %d of the log",
		st.Config,
		st.LastIndex)
	n.linked.Store(5)
	expect.Equal(t, n.status().Linked, 5)
	n.linked.Store(0)
	n.Abort()
	expect.Equal(t, n.status().Waits, "this server is stopping")
	n.serving = serving.New(serving.Options{})
	expect.Equal(t, n.status().Waits, "it is starting")
	n.up.Store(false)
	n.forming = form.New(form.Options{List: form.List{ID: 1, Peers: map[uint32]string{1: addr, 2: "none:1"}},
		Disk: memoryDisk(t, 1), Log: n.log})
	n.forming.Use(n.port)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Fails(t, expect.Err(n.forming.Join(gone)), "it has joined")
	st = n.status()
	expect.Has(t, st.Waits, "waiting for server 2 at none:1")
	expect.That(t, !st.Up, "raft does not run yet, and the status says that it does")
	expect.Equal(t, st.LastIndex, 0, "last entry before raft runs")
	expect.Equal(t, len(st.Members), 0, "members before raft runs")
	shown, end := n.shown()
	expect.Equal(t, shown.Start, 1, "start before raft runs")
	expect.Equal(t, shown.Life, id.Life, "life before raft runs")
	expect.That(t, shown.Term > 0, "before raft runs the server shows no term")
	expect.Equal(t, shown.Index, 0, "applied entry before raft runs")
	expect.That(t, end > 0, "before raft runs the server shows no end of its log")
	expect.Equal(t, host{n}.Term(), 0, "the term before raft runs")
	n.up.Store(true)
	expect.Equal(t, host{n}.Term(), n.raft.CurrentTerm())
}

// Before a port passes on a message from raft, it asks its host about the term, the server and the address.
func TestWhatAPortAsksOfRaft(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	n, _ := start(t, Options{Peers: map[uint32]string{1: addr}})
	newAsker(t, n)
	h, index := host{n}, n.fsm.Index()
	term := func() uint64 { return n.raft.CurrentTerm() }
	expect.That(t, h.Replicates(term(), 1, addr), "it does not lead")
	expect.That(t, !h.Replicates(term()+1, 1, addr), "another term")
	expect.That(t, !h.Replicates(term(), 2, addr), "another server")
	expect.That(t, !h.Replicates(term(), 1, "127.0.0.1:1"), "another address")
	eventually(t, "it has applied what it has applied", func() bool { return h.HasApplied(term(), index) })
	expect.That(t, !h.HasApplied(term()+1, index), "another term")
	expect.That(t, !h.HasApplied(term(), index+1_000_000), "an entry that there is not")
	n.up.Store(false)
	replicates, applied := h.Replicates(term(), 1, addr), h.HasApplied(term(), index)
	n.up.Store(true)
	expect.That(t, !replicates, "it replicates before raft runs")
	expect.That(t, !applied, "it has applied an entry before raft runs")
	n.Abort()
	expect.That(t, !h.Replicates(term(), 1, addr), "a server whose raft has ended leads")
}

// Which directory another server has is in the state. If it is not, a server takes what it noted in its own
// identity when it joined the cluster or helped to form it.
func TestR6DirectoriesThatAServerKnows(t *testing.T) {
	t.Parallel()
	a := applied.New()
	n := &Node{id: 1, fsm: a.FSM, disk: memoryDisk(t, 1)}
	id := n.disk.Identity()
	id.Incarnations, id.Expected = map[uint32]string{1: "formed", 2: "b"}, 5
	must.OK(t, n.disk.SaveIdentity(id))
	a.Entry(applied.OpenStream()) // server 1 opens its stream, with the directory `a`
	applied.At(a.FSM, 4, 1)
	known := func(id uint32) string { in, asOf := n.knownAs(id); return fmt.Sprint(in, " ", asOf) }
	expect.Equal(t, known(1), "formed 5", "before raft runs")
	n.up.Store(true)
	expect.Equal(t, known(1), "a 5")
	expect.Equal(t, known(2), "b 5")
	expect.Equal(t, known(3), " 5")
	applied.At(a.FSM, 9, 1)
	expect.Equal(t, known(1), "a 9")
	expect.Equal(t, n.incarnationOf(2), "b")
	a.Entry(state.Forget(1, 5))
	expect.Equal(t, n.incarnationOf(1), "", "a server that was removed")
}
