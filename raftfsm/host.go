package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/form"
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
		// The exception: the leader may question the new server that will take this server's place.
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
	// This server may not have read the log entry that made the caller's directory a member, and the caller
	// may be the leader that is about to send that entry.
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
	case g.From != n.id && // raft also calls this server itself; its state may be older
		known != "" && known != g.Incarnation && !newer:
		return fmt.Errorf("server %d runs on a data directory other than the one that this cluster knows: "+
			"if the server was replaced, stop the process that still runs on the old directory", g.From)
	case behind != "":
		return form.OldCopy(g.From, n.id, behind)
	}
	return nil
}

// ServeLink implements peer.Host.
func (h host) ServeLink(c net.Conn, from *peer.Greeting) { h.n.leader.ServeLink(h.n.ctx, c, from) }
