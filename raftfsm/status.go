package raftfsm

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Status is what an operator would ask a server about its part in the cluster.
type Status struct {
	ID       uint32
	Cluster  string
	Serving  bool
	Reason   string // why not serving
	ReadOnly bool   // those who ask for it may read though there is no leader
	Full     string // why this server refuses what needs more room when it leads; empty: it does not
	Role     string // standalone, leader, follower, or empty while neither
	Leader   uint32 // 0: none known
	Term     uint64
	Commit   uint64 // index of the last log entry that is known here to be committed
	Applied  uint64 // index of the last log entry applied here
	Last     uint64 // index of the last log entry stored here
	Zxid     int64
	Digest   state.Digest // the newest remembered

	Snapshot SnapshotInfo

	Members []MemberStatus

	Leads        time.Duration // how long this server has led; 0: it does not
	Elections    int64         // won by this server
	Pending      int           // requests of this server not yet applied
	LogBehind    int64         // requests since the last snapshot
	Syncs        int64
	SyncTime     time.Duration
	SyncMax      time.Duration
	PeerInsecure bool
	Removed      bool // this server is no member any more
}

// MemberStatus is one server of the cluster.
type MemberStatus struct {
	state.Member
	Voter   bool
	Applied uint64 // by its own word to the leader; 0 if not known here
}

// Status gathers the status of this server. It looks at no file and at no
// session: health checks ask for it.
func (n *Node) Status() Status {
	st := Status{ID: n.id, Cluster: n.disk.Identity().Cluster, PeerInsecure: n.o.PeerInsecure && n.port != nil,
		Term: n.raft.CurrentTerm(), Commit: min(n.raft.CommitIndex(), n.disk.Durable()), Applied: n.fsm.index.Load(), Last: n.raft.LastIndex(), Zxid: n.Zxid(),
		Elections: n.elections.Load(), Pending: n.fsm.stream.len(), LogBehind: n.fsm.counted.requests.Load()}
	if info := n.fsm.snapshot.Load(); info != nil {
		st.Snapshot = *info
	}
	st.Serving, st.Reason = n.Serving()
	st.ReadOnly = n.serving.reads()
	st.Leader, _ = n.raft.leader()
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
	case t != nil && t.number == st.Term && n.raft.leads(): // it may just have heard of a newer term
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
	servers := n.raft.servers()
	st.Removed = n.raft.lacks(n.id) || len(servers) > 0 && n.removed.Load() && st.Leader == 0
	n.View(func(s *state.State) {
		st.Digest, _ = s.LastDigest()
		for _, srv := range servers {
			id := peer.ParseID(srv.ID)
			m, _ := s.Member(id)
			m.ID, m.PeerAddr = id, string(srv.Address)
			st.Members = append(st.Members, MemberStatus{m, srv.Suffrage == raft.Voter, progress[id]})
		}
	})
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
