package raftfsm

import (
	"context"
	"maps"
	"net"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// host implements the interface of the peer port for a Node.
type host struct{ n *Node }

// Greeting implements peer.Host.
func (h host) Greeting(to uint32) peer.Greeting {
	id := h.n.disk.Identity()
	g := peer.Greeting{Cluster: id.Cluster, Incarnation: id.Incarnation, Expected: id.Expected}
	g.Shown, g.End = h.n.shown()
	if g.KnownAs = h.n.incarnationOf(to); g.KnownAs != "" {
		known := h.n.promises.Of(g.KnownAs)
		g.Known = &known
	}
	return g
}

// Answer implements peer.Host.
func (h host) Answer(ctx context.Context, q *peer.Question) (told peer.Told, err error) {
	switch {
	case q.Form != nil:
		err = h.n.forming.Accept(q.Form)
	case q.Member != nil:
		err = h.n.changeMember(ctx, *q.Member, false)
	case q.Reach != nil:
		_, err = h.n.port.Ask(ctx, q.Reach.ID, q.Reach.Addr, peer.Question{})
	case q.Probe != nil:
		told.Probed, err = h.n.probe(ctx, *q.Probe, false)
	case (q.Progress || q.Tickets) && h.n.leader.Term() == nil:
		err = leading.ErrNotLeading
	case q.Tickets:
		err = h.n.AllowTickets(ctx)
	case q.Progress:
		told.All = h.n.survey(ctx)
	}
	return told, err
}

// Status implements peer.Host.
func (h host) Status(asker *peer.Greeting) peer.Status {
	st := h.n.status()
	st.Now, _ = h.n.shown()
	st.Known = h.n.promises.Of(asker.Incarnation)
	return st
}

// SnapshotSent implements peer.Host.
func (h host) SnapshotSent() { h.n.o.Measures.SnapshotSent.Note(1) }

// Stored implements peer.Host.
func (h host) Stored(id uint32, term, index uint64) {
	h.n.leader.Stored.Note(id, state.Position{Index: index, Term: term})
}

// Replicates implements peer.Host.
func (h host) Replicates(term uint64, id uint32, addr string) bool {
	return h.n.up.Load() && h.n.raft.Leads() && h.n.raft.CurrentTerm() == term &&
		slices.ContainsFunc(h.n.raft.Servers(),
			func(s raft.Server) bool { return peer.ParseID(s.ID) == id && string(s.Address) == addr })
}

// HasApplied implements peer.Host.
func (h host) HasApplied(term, index uint64) bool {
	return h.n.up.Load() && h.n.raft.CurrentTerm() == term && h.n.disk.HasApplied(index)
}

// Term implements peer.Host.
func (h host) Term() uint64 {
	if !h.n.up.Load() {
		return 0
	}
	return h.n.raft.CurrentTerm()
}

// AddrOf implements peer.Host.
func (h host) AddrOf(id uint32) string { return h.n.addresses.of(id) }

// Instead implements peer.Host.
func (h host) Instead(id uint32, addr string) string { return h.n.addresses.instead(id, addr) }

// ServeLink implements peer.Host.
func (h host) ServeLink(c net.Conn, from *peer.Greeting) { h.n.leader.ServeLink(h.n.ctx, c, from) }

// status returns the status that this server reports to others.
func (n *Node) status() peer.Status {
	id := n.disk.Identity()
	st := peer.Status{ID: n.id, Cluster: id.Cluster, Incarnation: id.Incarnation,
		Incarnations: maps.Clone(id.Incarnations), AsOf: id.Expected, Peers: n.o.Peers, Formed: id.Peers,
		Members: map[uint32]string{}, Version: peer.Version, Release: n.o.Release,
		Observers: n.o.Observers, FormedObservers: id.Observers}
	if st.Up = n.up.Load(); !st.Up {
		st.Waits = n.forming.Waits()
		return st
	}
	var serves bool
	if serves, st.Waits = n.Serving(); !serves && st.Waits == "" {
		st.Waits = "it is starting"
	}
	if st.Incarnations == nil {
		st.Incarnations = map[uint32]string{}
	}
	n.View(func(s *state.State) {
		for _, m := range s.Members() {
			st.Incarnations[m.ID] = m.Incarnation
		}
		st.AsOf = max(st.AsOf, n.fsm.Index())
	})
	var servers []raft.Server
	if servers, st.Config = n.raft.Configuration(); st.Config == disk.UnknownConfig {
		st.Config = 0
	}
	for _, s := range servers {
		st.Members[peer.ParseID(s.ID)] = string(s.Address)
	}
	st.Leader, _ = n.raft.Known()
	st.Linked = n.linked.Load()
	st.Silent = n.raft.Silence().Milliseconds()
	st.Stands = n.raft.State() == raft.Candidate
	st.LastTerm, st.LastIndex = n.raft.LastEntry()
	return st
}

// shown() returns the log position that this server has reported to others, and the index of its last log
// entry.
func (n *Node) shown() (now peer.Shown, end uint64) {
	id := n.disk.Identity()
	now = peer.Shown{Start: id.Start, Life: id.Life}
	if n.up.Load() {
		now.Term, now.Index = n.raft.CurrentTerm(), n.fsm.Index()
		return now, min(n.raft.LastIndex(), n.disk.Durable())
	}
	now.Term, end, _ = n.disk.Promised()
	return now, end
}
