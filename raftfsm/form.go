package raftfsm

import (
	"context"
	"fmt"
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

// forming is how this server finds its cluster when it starts.
type forming struct {
	o    *Options
	disk *disk.Disk
	port *peer.Port // nil in a cluster of one

	promises *promises

	said atomic.Pointer[string] // what is waited for; nil: nothing yet

	mu     sync.Mutex
	formed chan struct{} // closed when a formation was accepted
}

// waits tells what this server waits for before it joins.
func (f *forming) waits() string {
	if p := f.said.Load(); p != nil {
		return *p
	}
	return ""
}

// accept takes part in forming a cluster.
func (f *forming) accept(p *peer.Formation) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.disk.Identity()
	switch {
	case id.Cluster == p.Cluster:
		return nil
	case id.Cluster != "":
		return fmt.Errorf("server %d already belongs to cluster %s", f.o.ID, id.Cluster)
	case p.Incarnations[f.o.ID] != id.Incarnation:
		return fmt.Errorf("server %d was meant to be another", f.o.ID)
	case listPeers(p.Peers, p.Observers) != f.list():
		return peersDiffer(f.o.ID, f.list(), listPeers(p.Peers, p.Observers))
	}
	id.Cluster, id.Incarnations, id.Peers, id.Observers = p.Cluster, p.Incarnations, p.Peers, p.Observers
	if err := f.disk.SaveIdentity(id); err != nil {
		return err
	}
	close(f.formed)
	return nil
}

// join finds out which cluster this server belongs to: the one on its disk,
// one that expects it, or a new one, which forms only when every listed
// server says that it is empty. It returns the configuration to begin with,
// if there is one.
func (f *forming) join(ctx context.Context) (*raft.Configuration, error) {
	if len(f.o.Peers) <= 1 {
		return f.joinAlone()
	}
	if f.disk.Identity().Cluster != "" {
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
			return nil, fmt.Errorf("did not join a cluster: %s: %w", f.waits(), ctx.Err())
		case <-f.formed:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// say tells once, and again when it changes, what this server waits for. It has not joined by then.
func (f *forming) say(format string, args ...any) (joined bool, err error) {
	if text := fmt.Sprintf(format, args...); text != f.waits() {
		f.said.Store(&text)
		f.o.Logger.Info(text)
		if f.o.Waiting != nil {
			f.o.Waiting(text)
		}
	}
	return false, nil
}

func (f *forming) joinAlone() (*raft.Configuration, error) {
	id := f.disk.Identity()
	if len(id.Incarnations) > 1 && len(f.o.Peers) == 0 {
		return nil, fmt.Errorf("the data directory belongs to server %d of a cluster: give --peers %s",
			f.o.ID, listPeers(id.Peers, id.Observers))
	}
	if id.Cluster == "" {
		id.Cluster = disk.NewID(f.o.Rand)
		id.Incarnations = map[uint32]string{f.o.ID: id.Incarnation}
		if err := f.disk.SaveIdentity(id); err != nil {
			return nil, err
		}
	}
	return &raft.Configuration{Servers: []raft.Server{{ID: peer.ServerID(f.o.ID), Address: f.o.selfAddr()}}}, nil
}

// peersConfig is the configuration a new cluster begins with: the same at every server, so that it
// does not matter which begins. A server that came later begins without one and learns it from the
// leader.
func (f *forming) peersConfig() *raft.Configuration {
	id := f.disk.Identity()
	if id.Incarnations[f.o.ID] == "" || id.Peers == nil { // a server that was alone has no Peers
		return nil
	}
	c := new(raft.Configuration)
	for _, s := range slices.Sorted(maps.Keys(id.Peers)) {
		server := raft.Server{ID: peer.ServerID(s), Address: raft.ServerAddress(id.Peers[s])}
		switch {
		case slices.Contains(id.Observers, s):
			server.Suffrage = raft.Nonvoter // it need not have been there
		case id.Incarnations[s] == "":
			return nil
		}
		c.Servers = append(c.Servers, server)
	}
	return c
}

// tryJoin asks all peers once. All must have the same --peers before any server forms a cluster:
// lists that differ could give two majorities.
func (f *forming) tryJoin(ctx context.Context) (bool, error) {
	if f.disk.Identity().Cluster != "" { // has accepted a formation by now
		return true, nil
	}
	incarnations := map[uint32]string{f.o.ID: f.disk.Identity().Incarnation}
	var missing []string
	var formed []peer.Status
	for _, a := range f.askAll(ctx, time.Second, peer.Question{}) {
		switch {
		case a.Err != nil && f.o.observes(a.ID): // it may come later
		case a.Err != nil:
			missing = append(missing, fmt.Sprintf("server %d at %s: %v", a.ID, f.o.Peers[a.ID], a.Err))
		case a.Status.Cluster != "":
			formed = append(formed, a.Status)
		case len(a.Status.Peers) > 0 && listPeers(a.Status.Peers, a.Status.Observers) != f.list():
			missing = append(missing,
				peersDiffer(a.ID, listPeers(a.Status.Peers, a.Status.Observers), f.list()).Error())
		default:
			incarnations[a.ID] = a.Status.Incarnation
		}
	}
	st, stale := newest(formed)
	for _, s := range stale {
		missing = append(missing,
			fmt.Sprintf("a server other than %d, which was removed from cluster %s and still runs: stop it",
				s.ID, s.Cluster))
	}
	if st != nil {
		return f.joinFormed(st, formed)
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return false, nil // a peer that did not answer in time may be up: say nothing new of it
	}
	if len(missing) > 0 {
		return f.say("waiting for %s", strings.Join(missing, "; "))
	}
	if f.o.ID != f.o.firstVoter() {
		return false, nil
	}
	p := peer.Formation{Cluster: disk.NewID(f.o.Rand), Incarnations: incarnations, Peers: f.o.Peers,
		Observers: f.o.Observers}
	return f.form(ctx, &p)
}

// askAll asks all other peers, and returns the answers by id.
func (f *forming) askAll(ctx context.Context, limit time.Duration, q peer.Question) (list []peer.Answer) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var others []peer.Place
	for _, id := range slices.Sorted(maps.Keys(f.o.Peers)) {
		if id != f.o.ID {
			others = append(others, peer.Place{ID: id, Addr: f.o.Peers[id]})
		}
	}
	for a := range f.port.AskAll(ctx, others, q) {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b peer.Answer) int { return int(a.ID) - int(b.ID) })
	return list
}

// newest returns the server whose word on its cluster counts most, or nil: one
// that has a leader, or else the longest log. Servers that were removed and still
// run are stale and do not count. They may not know of their removal, as nothing
// reaches them any more; the membership of the others tells.
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
		return false // it only begins
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

// list is this server's --peers.
func (f *forming) list() string { return listPeers(f.o.Peers, f.o.Observers) }

// listPeers writes a list as --peers takes it.
func listPeers(peers map[uint32]string, observers []uint32) string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		part := fmt.Sprintf("%d=%s", id, peers[id])
		if slices.Contains(observers, id) {
			part += ":observer"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// form makes all servers, which are all empty, into a cluster. The others go
// first: one that misses the message recognises itself in the list later.
func (f *forming) form(ctx context.Context, p *peer.Formation) (bool, error) {
	for _, a := range f.askAll(ctx, 2*time.Second, peer.Question{Form: p}) {
		if a.Err != nil && !f.o.observes(a.ID) {
			return f.say("forming the cluster: server %d: %v", a.ID, a.Err)
		}
	}
	if err := f.accept(p); err != nil {
		return false, err
	}
	f.o.Logger.Info("new cluster formed", "cluster", p.Cluster, "servers", len(p.Incarnations))
	return true, nil
}

// joinFormed joins a cluster that exists, if it expects this very directory or a new one in its
// place. st is the status that counts most in formed.
func (f *forming) joinFormed(st *peer.Status, formed []peer.Status) (bool, error) {
	id := f.disk.Identity()
	incarnation, known := st.Incarnations[f.o.ID]
	_, member := st.Members[f.o.ID]
	if incarnation == "" {
		// That server may have been started again and not have read its log to the
		// end, where this server opens its stream: a server that has read more counts.
		for i := range formed {
			o := &formed[i]
			if o.Cluster == st.Cluster && o.AsOf > st.AsOf && o.Incarnations[f.o.ID] != "" && !isStale(o, formed) {
				incarnation, known, st = o.Incarnations[f.o.ID], true, o
			}
		}
	}
	switch {
	case known && incarnation == id.Incarnation && st.Formed != nil &&
		listPeers(st.Formed, st.FormedObservers) != f.list():
		return f.say("%v", peersDiffer(f.o.ID, f.list(), listPeers(st.Formed, st.FormedObservers)))
	case known && incarnation == id.Incarnation:
		id.Cluster, id.Incarnations, id.Peers, id.Observers =
			st.Cluster, st.Incarnations, st.Formed, st.FormedObservers
	case incarnation == "" && member && st.Waits != "":
		return f.say("waiting for server %d, which waits: %s", st.ID, st.Waits)
	case incarnation == "" && member:
		id.Cluster, id.Incarnations, id.Expected = st.Cluster, st.Incarnations, st.AsOf
		delete(id.Incarnations, f.o.ID) // so that no configuration is made up from the list
	case incarnation != "":
		return f.say("server %d says: server %d was part of cluster %s with another data directory; "+
			"this one is empty, so the server must not vote. If that directory is lost, on a server that runs: "+
			"zlock member replace %d %s. If server %d runs elsewhere, this one needs another --id",
			st.ID, f.o.ID, st.Cluster, f.o.ID, f.o.Peers[f.o.ID], f.o.ID)
	default:
		return f.say("cluster %s does not know server %d. On a server that runs: zlock member add %d %s",
			st.Cluster, f.o.ID, f.o.ID, f.o.Peers[f.o.ID])
	}
	return true, f.disk.SaveIdentity(id)
}

// checkCopy refuses to start from an old copy of the data directory, which holds less than this
// server has shown others. Servers that cannot be asked now will tell when they call; see confirm.
func (f *forming) checkCopy(ctx context.Context) error {
	id := f.disk.Identity()
	now := peer.Shown{Start: id.Start, Life: id.Life}
	var end uint64
	var err error
	if now.Term, end, err = f.disk.Promised(); err != nil {
		return err
	}
	for _, a := range f.askAll(ctx, 500*time.Millisecond, peer.Question{}) {
		if a.Err != nil {
			continue
		}
		if why := now.Behind(a.Status.Known, end); why != "" {
			return oldCopy(f.o.ID, a.ID, why)
		}
		if a.Status.Incarnation == id.Incarnations[a.ID] {
			f.promises.note(a.Status.Incarnation, a.Status.Now)
		}
	}
	return nil
}

// comparePeers tells where this server's --peers and the members of its
// cluster differ. Membership is changed at run time, so the list may be older
// or newer than the cluster; neither is a reason not to serve.
func (f *forming) comparePeers(servers []raft.Server) {
	members := map[uint32]string{}
	for _, s := range servers {
		members[peer.ParseID(s.ID)] = string(s.Address)
	}
	if len(members) == 0 || f.port == nil {
		return // the leader will tell the members, or this server is one alone
	}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		switch addr, listed := f.o.Peers[id]; {
		case !listed:
			f.o.Logger.Warn("a member is missing in --peers: list it, or remove it by: zlock member remove ID",
				"peer", id, "addr", members[id])
		case addr != members[id] && id == f.o.ID:
			f.o.Logger.Info("this server has another address than the cluster knows; it tells the others",
				"addr", addr, "was", members[id])
		case addr != members[id]:
			f.o.Logger.Warn("--peers has another address than the cluster: start all servers with the same list",
				"peer", id, "listed", addr, "addr", members[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.o.Peers)) {
		if members[id] == "" {
			f.o.Logger.Warn("--peers names a server that is no member: add it by: zlock member add ID HOST:PORT",
				"peer", id, "addr", f.o.Peers[id])
		}
	}
}

// checkReach tells if this server cannot be reached at its address in --peers, when it listens on
// another one.
func (f *forming) checkReach(ctx context.Context) {
	addr := f.o.Peers[f.o.ID]
	if addr == f.o.PeerListen {
		return
	}
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := f.port.Ask(ask, f.o.ID, addr, peer.Question{}); err != nil && ctx.Err() == nil {
		f.o.Logger.Warn("this server does not reach itself at its address in --peers, so the others may not "+
			"either: correct --peer-addr or --peers",
			"addr", addr, "listening", f.o.PeerListen, "err", err)
	}
}
