// Package form finds the cluster of a server that starts: the one on its disk, one that expects it, or a new
// one. It also remembers the progress that other servers have shown. So a server detects a data directory
// that was replaced by an old copy.
package form

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Options configure a Forming.
type Options struct {
	List     List
	Listen   string // the address on which the peer port listens
	Disk     *disk.Disk
	Promises *Promises
	Rand     io.Reader
	Log      *slog.Logger
	Waiting  func(what string) // is told what the server waits for; may be nil
}

// Forming finds the cluster of a server that starts.
type Forming struct {
	o    Options
	port *peer.Port // nil in a cluster of one server

	said atomic.Pointer[string] // what the server waits for; nil: it has not waited yet

	mu     sync.Mutex
	formed chan struct{} // closed when a formation was accepted
}

// New returns a Forming that has not asked any server yet.
func New(o Options) *Forming { return &Forming{o: o, formed: make(chan struct{})} }

// Use sets the peer port. It is called before the port serves.
func (f *Forming) Use(port *peer.Port) { f.port = port }

// Waits returns what this server waits for before it joins.
func (f *Forming) Waits() string {
	if p := f.said.Load(); p != nil {
		return *p
	}
	return ""
}

// Accept accepts another server's proposal to form a cluster.
func (f *Forming) Accept(p *peer.Formation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.o.Disk.Identity()
	switch {
	case id.Cluster == p.Cluster:
		return nil
	case id.Cluster != "":
		return fmt.Errorf("server %d already belongs to cluster %s", f.o.List.ID, id.Cluster)
	case p.Incarnations[f.o.List.ID] != id.Incarnation:
		return fmt.Errorf("server %d has another data directory now than the proposal to form the cluster names",
			f.o.List.ID)
	case listed(p.Peers, p.Observers) != f.o.List.String():
		return peersDiffer(f.o.List.ID, f.o.List.String(), listed(p.Peers, p.Observers))
	}
	id.Cluster, id.Incarnations, id.Peers, id.Observers = p.Cluster, p.Incarnations, p.Peers, p.Observers
	if err := f.o.Disk.SaveIdentity(id); err != nil {
		return err
	}
	close(f.formed)
	return nil
}

// Join finds out which cluster this server belongs to: the one on its disk, one that expects it, or a new
// one, which forms only when every listed server says that it is empty. If this server must begin the
// cluster's log, Join returns the configuration to begin with.
func (f *Forming) Join(ctx context.Context) (*raft.Configuration, error) {
	if len(f.o.List.Peers) <= 1 {
		return f.joinAlone()
	}
	if f.o.Disk.Identity().Cluster != "" {
		return f.peersConfig(), f.checkCopy(ctx)
	}
	for {
		done, err := f.tryJoin(ctx)
		if err != nil {
			return nil, err
		}
		if done {
			return f.peersConfig(), nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("did not join a cluster: %s: %w", f.Waits(), ctx.Err())
		case <-f.formed:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// say() reports what this server waits for, and does so again only when the text changes. It returns false,
// because the server has not joined.
func (f *Forming) say(format string, args ...any) (joined bool, err error) {
	if text := fmt.Sprintf(format, args...); text != f.Waits() {
		f.said.Store(&text)
		f.o.Log.Info(text)
		if f.o.Waiting != nil {
			f.o.Waiting(text)
		}
	}
	return false, nil
}

func (f *Forming) joinAlone() (*raft.Configuration, error) {
	id := f.o.Disk.Identity()
	if len(id.Incarnations) > 1 && len(f.o.List.Peers) == 0 {
		return nil, fmt.Errorf("the data directory belongs to server %d of a cluster: give --peers %s",
			f.o.List.ID, listed(id.Peers, id.Observers))
	}
	if id.Cluster == "" {
		id.Cluster = disk.NewID(f.o.Rand)
		id.Incarnations = map[uint32]string{f.o.List.ID: id.Incarnation}
		if err := f.o.Disk.SaveIdentity(id); err != nil {
			return nil, err
		}
	}
	self := raft.Server{ID: peer.ServerID(f.o.List.ID), Address: f.o.List.Self()}
	return &raft.Configuration{Servers: []raft.Server{self}}, nil
}

// peersConfig returns the configuration of a new cluster. Every server makes the same configuration, so any
// server may begin. A server that joins later begins without a configuration, and learns it from the leader.
func (f *Forming) peersConfig() *raft.Configuration {
	id := f.o.Disk.Identity()
	if id.Incarnations[f.o.List.ID] == "" || id.Peers == nil { // a server that ran alone has no Peers
		return nil
	}
	c := new(raft.Configuration)
	for _, s := range slices.Sorted(maps.Keys(id.Peers)) {
		server := raft.Server{ID: peer.ServerID(s), Address: raft.ServerAddress(id.Peers[s])}
		switch {
		case slices.Contains(id.Observers, s):
			server.Suffrage = raft.Nonvoter // an observer has no vote, so its incarnation may be missing
		case id.Incarnations[s] == "":
			return nil
		}
		c.Servers = append(c.Servers, server)
	}
	return c
}

// tryJoin asks all peers once. All peers must have the same --peers before a server forms a cluster, because
// different lists could give two majorities.
func (f *Forming) tryJoin(ctx context.Context) (bool, error) {
	if f.o.Disk.Identity().Cluster != "" { // this server has accepted a formation in the meantime
		return true, nil
	}
	incarnations := map[uint32]string{f.o.List.ID: f.o.Disk.Identity().Incarnation}
	var missing []string
	var formed []peer.Status
	for _, a := range f.askAll(ctx, time.Second, peer.Question{}) {
		switch {
		case a.Err != nil && f.o.List.Observes(a.ID): // an observer may start later, so do not wait for it
		case a.Err != nil:
			missing = append(missing, fmt.Sprintf("server %d at %s: %v", a.ID, f.o.List.Peers[a.ID], a.Err))
		case a.Status.Cluster != "":
			formed = append(formed, a.Status)
		case len(a.Status.Peers) > 0 && listed(a.Status.Peers, a.Status.Observers) != f.o.List.String():
			missing = append(missing,
				peersDiffer(a.ID, listed(a.Status.Peers, a.Status.Observers), f.o.List.String()).Error())
		default:
			incarnations[a.ID] = a.Status.Incarnation
		}
	}
	st, stale := newest(formed)
	for _, s := range stale {
		missing = append(missing,
			fmt.Sprintf("server %d to be stopped: cluster %s has removed it, but it still runs",
				s.ID, s.Cluster))
	}
	if st != nil {
		return f.joinFormed(st, formed)
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return false, nil // a peer that did not answer in time may be up, so do not report it as missing
	}
	if len(missing) > 0 {
		return f.say("waiting for %s", strings.Join(missing, "; "))
	}
	if f.o.List.ID != f.o.List.FirstVoter() {
		return false, nil
	}
	p := peer.Formation{Cluster: disk.NewID(f.o.Rand), Incarnations: incarnations, Peers: f.o.List.Peers,
		Observers: f.o.List.Observers}
	return f.form(ctx, &p)
}

// askAll asks all other peers, and returns the answers sorted by id.
func (f *Forming) askAll(ctx context.Context, limit time.Duration, q peer.Question) (list []peer.Answer) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var others []peer.Place
	for _, id := range slices.Sorted(maps.Keys(f.o.List.Peers)) {
		if id != f.o.List.ID {
			others = append(others, peer.Place{ID: id, Addr: f.o.List.Peers[id]})
		}
	}
	for a := range f.port.AskAll(ctx, others, q) {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b peer.Answer) int { return int(a.ID) - int(b.ID) })
	return list
}

// newest() returns in `best` the server with the best knowledge of its cluster: a server that has a leader
// or, if no server has one, the server with the longest log. `best` is nil if all servers are stale. A stale
// server was removed but still runs. It may not know of its removal, because no message reaches it any
// longer, but the other servers' lists of members show the removal.
func newest(formed []peer.Status) (best *peer.Status, stale []peer.Status) {
	for i := range formed {
		st := &formed[i]
		if isStale(st, formed) {
			stale = append(stale, *st)
			continue
		}
		if best == nil || st.Leader != 0 && best.Leader == 0 ||
			(st.Leader != 0) == (best.Leader != 0) && elect.StandsBefore(st, best) {
			best = st
		}
	}
	return best, stale
}

func isStale(st *peer.Status, formed []peer.Status) bool {
	if !st.Up {
		return false // its raft does not run yet, so it reports no members
	}
	outside := func(o *peer.Status) bool { return o.Up && len(o.Members) > 0 && o.Members[st.ID] == "" }
	if outside(st) {
		return true
	}
	return slices.ContainsFunc(formed, func(o peer.Status) bool {
		newer := o.Config > st.Config || o.LastTerm > st.LastTerm ||
			o.LastTerm == st.LastTerm && o.LastIndex > st.LastIndex
		return o.Cluster == st.Cluster && newer && outside(&o)
	})
}

func peersDiffer(id uint32, theirs, ours string) error {
	return fmt.Errorf(
		"server %d was started with other --peers: %s instead of %s; start all servers with the same list",
		id, theirs, ours)
}

// form() makes a cluster of all listed servers, after all of them have said that they are empty. It first
// sends the formation to the other servers. A server that misses that message joins later, because the
// members' list contains it.
func (f *Forming) form(ctx context.Context, p *peer.Formation) (bool, error) {
	for _, a := range f.askAll(ctx, 2*time.Second, peer.Question{Form: p}) {
		if a.Err != nil && !f.o.List.Observes(a.ID) {
			return f.say("forming the cluster: server %d: %v", a.ID, a.Err)
		}
	}
	if err := f.Accept(p); err != nil {
		return false, err
	}
	f.o.Log.Info("new cluster formed", "cluster", p.Cluster, "servers", len(p.Incarnations))
	return true, nil
}

// joinFormed joins an existing cluster if the cluster expects this server's directory, or a new directory in
// its place. `st` is the status, among those in `formed`, of the server that knows most.
func (f *Forming) joinFormed(st *peer.Status, formed []peer.Status) (bool, error) {
	id := f.o.Disk.Identity()
	incarnation, known := st.Incarnations[f.o.List.ID]
	_, member := st.Members[f.o.List.ID]
	if incarnation == "" {
		// The server with the best knowledge may have restarted, and may not have replayed its log as far as the
		// entry in which this server opened its stream. So use the answer of a server that has replayed more.
		for i := range formed {
			o := &formed[i]
			theirs := o.Incarnations[f.o.List.ID]
			if o.Cluster == st.Cluster && o.AsOf > st.AsOf && theirs != "" && !isStale(o, formed) {
				incarnation, known, st = theirs, true, o
			}
		}
	}
	switch {
	case known && incarnation == id.Incarnation && st.Formed != nil &&
		listed(st.Formed, st.FormedObservers) != f.o.List.String():
		return f.say("%v", peersDiffer(f.o.List.ID, f.o.List.String(), listed(st.Formed, st.FormedObservers)))
	case known && incarnation == id.Incarnation:
		id.Cluster, id.Incarnations, id.Peers, id.Observers =
			st.Cluster, st.Incarnations, st.Formed, st.FormedObservers
	case incarnation == "" && member && st.Waits != "":
		return f.say("waiting for server %d, which waits: %s", st.ID, st.Waits)
	case incarnation == "" && member:
		id.Cluster, id.Incarnations, id.Expected = st.Cluster, st.Incarnations, st.AsOf
		delete(id.Incarnations, f.o.List.ID) // so that peersConfig makes no configuration from the list
	case incarnation != "":
		return f.say("server %d says: server %d was part of cluster %s with another data directory; "+
			"this directory is empty, so the server must not vote. If the other directory is lost, run on "+
			"another server: "+
			"zlock member replace %d %s. If server %d runs elsewhere, this server needs another --id",
			st.ID, f.o.List.ID, st.Cluster, f.o.List.ID, f.o.List.Peers[f.o.List.ID], f.o.List.ID)
	default:
		return f.say("cluster %s does not know server %d. Run on another server: zlock member add %d %s",
			st.Cluster, f.o.List.ID, f.o.List.ID, f.o.List.Peers[f.o.List.ID])
	}
	return true, f.o.Disk.SaveIdentity(id)
}

// CheckReach logs a warning if this server cannot be reached at its address in --peers. It checks that only
// if the server listens on another address.
func (f *Forming) CheckReach(ctx context.Context) {
	addr := f.o.List.Peers[f.o.List.ID]
	if addr == f.o.Listen {
		return
	}
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := f.port.Ask(ask, f.o.List.ID, addr, peer.Question{}); err != nil && ctx.Err() == nil {
		f.o.Log.Warn("this server does not reach itself at its address in --peers, so the others may not "+
			"reach it either: correct --peer-addr or --peers",
			"addr", addr, "listening", f.o.Listen, "err", err)
	}
}
