package raftfsm

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
)

// leaderWatch measures how long this server has no leader, and tells Node.follow of each new leader.
type leaderWatch struct {
	n    *Node
	news signal.Signal // sent when raft knows another leader, or no longer knows one

	mu     sync.Mutex
	leader uint32    // the leader known now; 0: none
	lost   time.Time // when this server lost its leader; zero: it has one
}

// broken() notes that the connection to the leader broke. If it turns out that the leader still leads, the
// broken connection does not count as time without a leader.
func (w *leaderWatch) broken() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost.IsZero() {
		w.lost = time.Now()
	}
}

// held() notes that this server has a connection to the leader `id`.
func (w *leaderWatch) held(id uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leader == id {
		w.lost = time.Time{}
	}
}

// set() notes which leader raft knows.
func (w *leaderWatch) set(id uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.lost.IsZero() {
		w.lost = now
	}
	switch before := w.leader; {
	case id == before:
		if id != 0 {
			w.lost = time.Time{}
		}
		return
	case id != 0:
		if before != 0 { // otherwise the election was counted when the previous leader was lost
			w.n.o.Measures.Elections.Note(1)
		}
		w.n.o.Measures.ElectionTime.Took(now.Sub(w.lost))
		if id == w.n.id { // package leading logs that this server leads
			w.n.o.Measures.LeaderUnavailable.Took(now.Sub(w.lost))
		} else {
			w.n.log.Info("another server leads", "leader", id, "after",
				now.Sub(w.lost).Round(time.Millisecond))
		}
		w.lost = time.Time{}
	default:
		w.n.o.Measures.Elections.Note(1)
		w.n.log.Info("no leader is known", "before", before)
	}
	w.leader = id
}

// leaderLook is how often this server asks raft for the leader. It asks even without a notice from raft.
const leaderLook = 250 * time.Millisecond

// watchLeader keeps leaderWatch up to date. It does not run in a cluster of one server, which has no
// elections.
func (n *Node) watchLeader() {
	news := make(chan raft.Observation, 16)
	obs := raft.NewObserver(news, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	n.raft.RegisterObserver(obs)
	defer n.raft.DeregisterObserver(obs)
	for {
		select {
		case <-n.ctx.Done():
			return
		case o := <-news:
			n.known.set(peer.ParseID(o.Data.(raft.LeaderObservation).LeaderID))
			n.known.news.Send()
			signal.Signal(n.elections.News).Send()
		case <-time.After(n.raft.Beat(leaderLook)): // look even without an observation, because one may be dropped
			if len(news) == 0 {
				id, _ := n.raft.Known()
				n.known.set(id)
			}
		}
	}
}
