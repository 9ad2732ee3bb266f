package raftfsm

import (
	"maps"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
)

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

// incarnationOf returns the incarnation of a member's data directory. It returns "" if the server is not a
// member or may come back with a new directory.
func (n *Node) incarnationOf(id uint32) string {
	incarnation, _ := n.knownAs(id)
	return incarnation
}

// knownAs returns the result of incarnationOf, and the index of the log entry at which it was true. A server
// that has just started knows the members in its snapshot, or those with which the cluster formed.
func (n *Node) knownAs(id uint32) (incarnation string, asOf uint64) {
	own := n.disk.Identity()
	incarnation, asOf = own.Incarnations[id], own.Expected
	if n.up.Load() {
		n.View(func(s *state.State) {
			if m, ok := s.Member(id); ok {
				incarnation = m.Incarnation
			}
			asOf = max(asOf, n.fsm.Index())
		})
	}
	return incarnation, asOf
}

// confirm compares this server's disk with the log position that a caller remembers of this server. If the
// directory was replaced by an old copy, this server ends before the caller can count its vote.
func (n *Node) confirm(g *peer.Greeting) error {
	if g.Known == nil || g.KnownAs != n.disk.Identity().Incarnation || !n.up.Load() {
		return nil
	}
	now, end := n.shown()
	why := now.Behind(*g.Known, end)
	if why == "" {
		return nil
	}
	err := form.OldCopy(n.id, g.From, why)
	n.die(err)
	return err
}

// gone() reports whether the other servers removed this server while it was away. This server's own log does
// not show that.
func (n *Node) gone() bool {
	at := n.removed.Load()
	if at == 0 {
		return false
	}
	_, config := n.raft.Configuration()
	return at > config
}
