package raftfsm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Progress is how far a member is, as servers tell each other.
type Progress = peer.Progress

// Progress tells how far each member is: as the leader knows, or where none is
// known, as the members say themselves.
func (n *Node) Progress(ctx context.Context) map[uint32]peer.Progress {
	ctx, cancel := context.WithTimeout(ctx, 3*askTime)
	defer cancel()
	if n.term.Load() == nil {
		asked, done := context.WithTimeout(ctx, 2*askTime)
		st, err := n.askLeader(asked, peer.Question{Progress: true})
		done()
		if err == nil && st.Progress != nil {
			return st.Progress
		}
	}
	return n.survey(ctx)
}

// survey gathers what the links of this server, if it leads, tell of the
// members, and asks those that have none.
func (n *Node) survey(ctx context.Context) map[uint32]peer.Progress {
	own := n.fsm.index.Load()
	linked := map[uint32]peer.Progress{}
	if t := n.term.Load(); t != nil {
		linked = t.links.far()
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := map[uint32]peer.Progress{}
	for _, s := range n.raft.servers() {
		id := peer.ParseID(s.ID)
		p, is := linked[id]
		switch {
		case id == n.id:
			p = peer.Progress{Applied: own, Release: n.o.Release, Start: n.disk.Identity().Start}
			_, p.Waits = n.Serving()
		case !is && n.port != nil:
			wg.Go(func() {
				p := n.askFar(ctx, id, n.addresses.instead(id, string(s.Address)))
				mu.Lock()
				defer mu.Unlock()
				all[id] = p
			})
			continue
		}
		mu.Lock()
		all[id] = p
		mu.Unlock()
	}
	wg.Wait()
	newest := own
	for _, p := range all {
		newest = max(newest, p.Applied)
	}
	for id, p := range all {
		p.Lag = newest - p.Applied
		if p.Bytes = n.disk.LogAfter(p.Applied); p.Lag == 0 {
			p.Bytes = 0
		}
		if n.port != nil {
			p.SnapshotSent, p.SnapshotSize = n.port.Sending(id)
		}
		all[id] = p
	}
	return all
}

// far tells how far each linked server is.
func (ls *linkSet) far() map[uint32]peer.Progress {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	m := map[uint32]peer.Progress{}
	for _, l := range ls.links {
		l.mu.Lock()
		if !l.heard.IsZero() {
			m[l.from] = peer.Progress{Applied: l.applied, Heard: time.Since(l.heard).Milliseconds(), Release: l.release, Start: l.start}
		}
		l.mu.Unlock()
	}
	return m
}

// askFar asks a server how far it is.
func (n *Node) askFar(ctx context.Context, id uint32, addr string) peer.Progress {
	st, err := n.port.Ask(ctx, id, addr, peer.Question{})
	if err != nil {
		return peer.Progress{Heard: -1, Waits: err.Error()}
	}
	return progressOf(&st)
}

// progressOf is a server's own word.
func progressOf(st *peer.Status) peer.Progress {
	p := peer.Progress{Release: st.Release, Start: st.Now.Start, Waits: st.Waits}
	if st.Up {
		p.Applied = st.Now.Index
	}
	return p
}

// Probe looks whether a server could be the member id at an address, from where
// the leader is and from where the others are. It is not an error that the
// server does not run.
func (n *Node) Probe(ctx context.Context, id uint32, addr string) (peer.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*askTime)
	defer cancel()
	return n.probe(ctx, peer.Place{ID: id, Addr: addr}, true)
}

func (n *Node) probe(ctx context.Context, place peer.Place, forward bool) (peer.Progress, error) {
	switch {
	case n.port == nil:
		return peer.Progress{}, errAlone
	case !state.IsServerID(place.ID):
		return peer.Progress{}, errServerID(place.ID)
	case n.term.Load() == nil && !forward:
		return peer.Progress{}, errNotLeading
	case n.term.Load() == nil:
		st, err := n.askLeader(ctx, peer.Question{Probe: &place})
		if err == nil && st.Progress == nil {
			err = fmt.Errorf("server %d, which leads, runs a release that does not know this: upgrade it", st.ID)
		}
		return st.Progress[place.ID], err
	}
	servers := n.raft.servers()
	for _, s := range servers {
		if id := peer.ParseID(s.ID); string(s.Address) == place.Addr && id != place.ID {
			return peer.Progress{}, fmt.Errorf("server %d is at %s", id, place.Addr)
		}
	}
	asked, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	st, err := n.port.Ask(asked, place.ID, place.Addr, peer.Question{})
	switch {
	case errors.Is(err, peer.ErrRefused):
		return peer.Progress{}, fmt.Errorf("server %d cannot be what answers at %s: %s", place.ID, place.Addr, refusal(err))
	case err != nil:
		return peer.Progress{Heard: -1, Waits: err.Error()}, nil
	}
	p := progressOf(&st)
	p.At, p.Peers = st.Peers[place.ID], st.Peers
	p.Known = st.Cluster == n.disk.Identity().Cluster && st.Incarnation == n.incarnationOf(place.ID)
	if st.Cluster == "" && !namesOne(st.Peers, servers) {
		return p, fmt.Errorf("server %d was started with --peers %s, where no member is: it would not find this cluster. Start it with a list of the members and itself", place.ID, listPeers(st.Peers, st.Observers))
	}
	if err := n.tooOld(place.ID, &st); err != nil {
		return p, err
	}
	var problem error
	n.addresses.reachedBy(ctx, servers, place, func(id uint32, err error) {
		problem = fmt.Errorf("server %d does not reach server %d at %s, as every member must: %w", id, place.ID, place.Addr, err)
	})
	return p, problem
}

// tooOld says why a server of an earlier release cannot be a member: the log may
// hold whatever all members understand, and who does not would stop at it.
func (n *Node) tooOld(id uint32, st *peer.Status) error {
	t := n.term.Load()
	if t == nil {
		return errNotLeading
	}
	said := t.links.leastVersion()
	if said < peer.VersionFound || st.Version >= said { // those before do not tell theirs
		return nil
	}
	return fmt.Errorf("server %d runs an older release, which does not understand what is in this cluster's log: it would stop. Start it with the release that the members run", id)
}

// refusal is what the other side said, without our own words around it.
func refusal(err error) string {
	_, said, ok := strings.Cut(err.Error(), peer.ErrRefused.Error()+": ")
	if !ok {
		return err.Error()
	}
	return said
}

// namesOne reports whether a list of --peers has one of the members.
func namesOne(peers map[uint32]string, servers []raft.Server) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return peers[peer.ParseID(s.ID)] != "" })
}
