package raftfsm

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/status"
)

// Status gathers the status of this server. It looks at no file and at no
// session: health checks ask for it.
func (n *Node) Status() status.Node {
	st := status.Node{ID: n.id, Cluster: n.disk.Identity().Cluster,
		PeerInsecure: n.o.PeerInsecure && n.port != nil, Term: n.raft.CurrentTerm(),
		Commit: min(n.raft.CommitIndex(), n.disk.Durable()), Applied: n.fsm.index.Load(),
		Last: n.raft.LastIndex(), Zxid: n.Zxid(),
		Elections: n.won.Load(), Pending: n.fsm.stream.len(), LogBehind: n.fsm.counted.requests.Load()}
	if info := n.fsm.snapshot.Load(); info != nil {
		st.Snapshot = *info
	}
	st.Serving, st.Reason = n.Serving()
	st.ReadOnly = n.serving.reads()
	st.Leader, _ = n.raft.Known()
	st.Syncs, st.SyncTime, st.SyncMax = n.disk.Syncs()
	var progress map[uint32]uint64
	t := n.term.Load()
	if t != nil {
		progress = t.links.progress()
		progress[n.id] = st.Applied
		st.Leads = time.Since(t.began)
	}
	switch {
	case n.port == nil && t != nil:
		st.Role = "standalone"
	case t != nil && t.number == st.Term && n.raft.Leads(): // it may just have heard of a newer term
		st.Role = "leader"
	case st.Leader != 0 && n.raft.State() == raft.Follower:
		st.Role = "follower"
	}
	if t != nil {
		st.Full = t.lowest() // whichever server's disk it is
	}
	if st.Full == "" {
		st.Full = n.noRoom()
	}
	st.Members = n.members()
	for i := range st.Members {
		m := &st.Members[i]
		m.Applied = progress[m.ID]
	}
	st.Removed = n.raft.lacks(n.id) || len(st.Members) > 0 && n.removed.Load() && st.Leader == 0
	return st
}

// Deadlines tells the time left to each session, by the leader's clock; nil on
// followers.
func (n *Node) Deadlines() map[int64]time.Duration {
	if t := n.term.Load(); t != nil {
		return t.tracker.deadlines()
	}
	return nil
}

// DiskBytes tells how much snapshots and the log take on disk, by looking at
// every file.
func (n *Node) DiskBytes() (snapshots, log int64) { return n.disk.Sizes() }
