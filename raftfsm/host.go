package raftfsm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// host is the Node as its peer port knows it.
type host struct{ n *Node }

// Greeting implements peer.Host.
func (h host) Greeting(to uint32) peer.Greeting {
	id := h.n.disk.Identity()
	g := peer.Greeting{Cluster: id.Cluster, Incarnation: id.Incarnation, Expected: id.Expected}
	g.Shown, g.End = h.n.shown()
	if g.KnownAs = h.n.incarnationOf(to); g.KnownAs != "" {
		known := h.n.promises.of(g.KnownAs)
		g.Known = &known
	}
	return g
}

// Answer implements peer.Host.
func (h host) Answer(ctx context.Context, q *peer.Question) (told peer.Told, err error) {
	switch {
	case q.Form != nil:
		err = h.n.forming.accept(q.Form)
	case q.Member != nil:
		err = h.n.changeMember(ctx, *q.Member, false)
	case q.Reach != nil:
		_, err = h.n.port.Ask(ctx, q.Reach.ID, q.Reach.Addr, peer.Question{})
	case q.Probe != nil:
		told.Probed, err = h.n.probe(ctx, *q.Probe, false)
	case (q.Progress || q.Tickets) && h.n.term.Load() == nil:
		err = errNotLeading
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
	st.Known = h.n.promises.of(asker.Incarnation)
	return st
}

// SnapshotSent implements peer.Host.
func (h host) SnapshotSent() { h.n.o.Measures.SnapshotSent.Note(1) }

// Stored implements peer.Host.
func (h host) Stored(id uint32, term, index uint64) {
	h.n.stored.of(id).note(state.Position{Index: index, Term: term})
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

// status returns what this server says of itself to others.
func (n *Node) status() peer.Status {
	id := n.disk.Identity()
	st := peer.Status{ID: n.id, Cluster: id.Cluster, Incarnation: id.Incarnation,
		Incarnations: maps.Clone(id.Incarnations), AsOf: id.Expected, Peers: n.o.Peers, Formed: id.Peers,
		Members: map[uint32]string{}, Version: peer.Version, Release: n.o.Release,
		Observers: n.o.Observers, FormedObservers: id.Observers}
	if st.Up = n.up.Load(); !st.Up {
		st.Waits = n.forming.waits()
		return st
	}
	var serves bool
	if serves, st.Waits = n.Serving(); !serves && st.Waits == "" {
		st.Waits = "it begins"
	}
	if st.Incarnations == nil {
		st.Incarnations = map[uint32]string{}
	}
	n.View(func(s *state.State) {
		for _, m := range s.Members() {
			st.Incarnations[m.ID] = m.Incarnation
		}
		st.AsOf = max(st.AsOf, n.fsm.index.Load())
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

// Admit implements peer.Host.
func (h host) Admit(p peer.Purpose, g *peer.Greeting) error {
	n := h.n
	id := n.disk.Identity()
	switch {
	case !g.Understands():
		return fmt.Errorf("server %d runs a release of zlockd that this server %d cannot work with "+
			"(versions %d to %d between servers there, %d to %d here); upgrade one server after the other, "+
			"through releases that know both",
			g.From, n.id, g.Oldest, g.Version, peer.Oldest, peer.Version)
	case g.To != n.id && g.To != 0:
		return fmt.Errorf("this is server %d, not %d; check the --peers lists", n.id, g.To)
	case g.From == n.id && g.Incarnation != id.Incarnation && !(p == peer.Ask && id.Cluster == "" &&
		g.Cluster != ""):
		// The leader may ask the server that is to take its own place.
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
	// This server may not have read the log up to the entry that gave the caller its directory, and
	// the caller may be the leader that brings that entry.
	newer := g.Expected > asOf
	was := n.promises.of(g.Incarnation)
	behind := g.Shown.Behind(was, g.End)
	if behind == "" && (g.Incarnation == known || newer) {
		n.promises.note(g.Incarnation, g.Shown)
		n.addresses.heard(g)
	}
	switch {
	case p == peer.Ask:
		return nil
	case g.Cluster == "" || id.Cluster == "":
		return errors.New(peer.NotFormed)
	case !n.up.Load():
		return errors.New(peer.Starting)
	case g.From != n.id && // raft asks itself too, and what is applied may be older than this directory
		known != "" && known != g.Incarnation && !newer:
		return fmt.Errorf("server %d runs on a data directory that is not the one this cluster knows it by: "+
			"if it was replaced, stop the process that still runs on the old directory", g.From)
	case behind != "":
		return oldCopy(g.From, n.id, behind)
	}
	return nil
}

// confirm compares what this server has on its disk with what a caller knows of it. A server that
// was put back to an old copy of its directory ends before it can vote with a server that knows
// better.
func (n *Node) confirm(g *peer.Greeting) error {
	if g.Known == nil || g.KnownAs != n.disk.Identity().Incarnation || !n.up.Load() {
		return nil
	}
	now, end := n.shown()
	why := now.Behind(*g.Known, end)
	if why == "" {
		return nil
	}
	err := oldCopy(n.id, g.From, why)
	n.die(err)
	return err
}

// promises are what other servers have shown this one of their data directories, and so promised:
// so this server notices when one of those is put back to an old copy. They are kept on disk;
// promises lost in a crash only make this server more trusting.
type promises struct {
	disk  *disk.Disk
	log   *slog.Logger
	dirty signal.Signal // that there is something to save

	mu   sync.Mutex
	seen map[string]peer.Shown // by incarnation; only of those that were members
}

func loadPromises(d *disk.Disk, log *slog.Logger) (*promises, error) {
	p := &promises{disk: d, log: log, dirty: signal.New(), seen: map[string]peer.Shown{}}
	b, err := d.LoadSeen()
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &p.seen)
	}
	if err != nil {
		return nil, fmt.Errorf("what is known of other servers cannot be read (the file may be removed): %w", err)
	}
	return p, nil
}

// note remembers what a member has shown.
func (p *promises) note(incarnation string, now peer.Shown) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.seen[incarnation]
	is := was
	is.Raise(now)
	p.seen[incarnation] = is
	// The index alone changes all the time; it is saved with the rest.
	if is.Start != was.Start || is.Term != was.Term {
		p.dirty.Send()
	}
}

// of returns what a server has shown.
func (p *promises) of(incarnation string) peer.Shown {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[incarnation]
}

// keep writes the promises to disk until ctx ends.
func (p *promises) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.dirty:
		}
		p.mu.Lock()
		seen := maps.Clone(p.seen)
		p.mu.Unlock()
		b, err := json.MarshalIndent(seen, "", "  ")
		if err == nil {
			err = p.disk.SaveSeen(append(b, '\n'))
		}
		if err != nil {
			p.log.Warn("what is known of other servers was not saved", "err", err)
		}
	}
}

// oldCopy is the error of a server that runs from an old copy of its data
// directory.
func oldCopy(id, witness uint32, why string) error {
	return fmt.Errorf("the data directory of server %d is an old copy: server %d knows "+
		"that %s; remove the directory, start the server, and give it its place again: zlock member replace %d", id,
		witness, why, id)
}

// shown returns what this server shows of itself, and where its log ends.
func (n *Node) shown() (now peer.Shown, end uint64) {
	id := n.disk.Identity()
	now = peer.Shown{Start: id.Start, Life: id.Life}
	if n.up.Load() {
		now.Term, now.Index = n.raft.CurrentTerm(), n.fsm.index.Load()
		return now, min(n.raft.LastIndex(), n.disk.Durable())
	}
	now.Term, end, _ = n.disk.Promised()
	return now, end
}

// incarnationOf returns the data directory by which a member is known; empty for a server that is
// not a member, or whose next directory is a new one.
func (n *Node) incarnationOf(id uint32) string {
	incarnation, _ := n.knownAs(id)
	return incarnation
}

// knownAs also returns the index of the log entry at which the answer was true. A server
// that has just started knows the others as of its snapshot, or as its cluster
// formed.
func (n *Node) knownAs(id uint32) (incarnation string, asOf uint64) {
	own := n.disk.Identity()
	incarnation, asOf = own.Incarnations[id], own.Expected
	if n.up.Load() {
		n.View(func(s *state.State) {
			if m, ok := s.Member(id); ok {
				incarnation = m.Incarnation
			}
			asOf = max(asOf, n.fsm.index.Load())
		})
	}
	return incarnation, asOf
}
