package raftfsm

import (
	"errors"
	"fmt"

	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Admit implements peer.Host.
func (h host) Admit(p peer.Purpose, g *peer.Greeting) error {
	n := h.n
	id := n.disk.Identity()
	switch {
	case !g.Understands():
		return fmt.Errorf("server %d runs a release of zlockd that this server %d cannot work with "+
			"(protocol versions %d to %d there, %d to %d here); upgrade in steps, one server after the other, "+
			"through a release that can work with both",
			g.From, n.id, g.Oldest, g.Version, peer.Oldest, peer.Version)
	case g.To != n.id && g.To != 0:
		return fmt.Errorf("this is server %d, not %d; check the --peers lists", n.id, g.To)
	case g.From == n.id && g.Incarnation != id.Incarnation && !(p == peer.Ask && id.Cluster == "" &&
		g.Cluster != ""):
		// A caller with this server's id is refused, with one exception: a server of a cluster may ask a new server
		// that has no cluster yet. The caller may be the leader, and the new server may be about to replace it.
		return fmt.Errorf("two servers run with --id %d", n.id)
	case g.Cluster != "" && id.Cluster != "" && g.Cluster != id.Cluster:
		return fmt.Errorf(
			"this server belongs to cluster %s, the caller to %s; check --data-dir and --peers of both",
			id.Cluster, g.Cluster)
	}
	if err := n.confirm(g); err != nil {
		return err
	}
	known, asOf := n.knownAs(g.From)
	// If `newer` is true, this server may not have read the log entry that made the caller's directory a member.
	// The caller may be the leader that is about to send that entry.
	newer := g.Expected > asOf
	was := n.promises.Of(g.Incarnation)
	behind := g.Shown.Behind(was, g.End)
	if behind == "" && (g.Incarnation == known || newer) {
		n.promises.Note(g.Incarnation, g.Shown)
		n.addresses.heard(g)
	}
	switch {
	case p == peer.Ask:
		return nil
	case g.Cluster == "" || id.Cluster == "":
		return errors.New(peer.NotFormed)
	case !n.up.Load():
		return errors.New(peer.Starting)
	case g.From != n.id && // a server may call itself, even if its state still names its former directory
		known != "" && known != g.Incarnation && !newer:
		return fmt.Errorf("server %d runs on a data directory other than the one that this cluster knows: "+
			"if the server was replaced, stop the process that still runs on the old directory", g.From)
	case behind != "":
		return form.OldCopy(g.From, n.id, behind)
	}
	return nil
}

// incarnationOf returns the incarnation of a member's data directory. It returns "" if the server is not a
// member or may come back with a new directory.
func (n *Node) incarnationOf(id uint32) string {
	incarnation, _ := n.knownAs(id)
	return incarnation
}

// knownAs returns what incarnationOf returns, and the index of a log entry at which that was the incarnation.
// A server that has just started knows the members in its snapshot, or those with which the cluster formed.
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

// confirm() compares this server's disk with the log position that a caller remembers of this server. If the
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
