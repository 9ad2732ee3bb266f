package raftfsm

import (
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
)

// Status is what an operator would ask a server about its part in the cluster.
type Status struct {
	ID      uint32
	Cluster string
	Serving bool
	Reason  string // why not serving
	Full    string // why this server refuses what needs more room when it leads; empty: it does not
	Role    string // standalone, leader, follower, or empty while neither
	Leader  uint32 // 0: none known
	Term    uint64
	Applied uint64 // index of the last log entry applied here
	Last    uint64 // index of the last log entry stored here
	Zxid    int64
	Digest  Digest // the newest remembered

	Members []MemberStatus

	Elections    int64
	Pending      int   // requests of this server not yet applied
	LogBehind    int64 // requests since the last snapshot
	Syncs        int64
	SyncTime     time.Duration
	SyncMax      time.Duration
	DataBytes    int64 // of snapshots
	LogBytes     int64
	SnapshotZxid int64
	PeerInsecure bool

	// Left is the time left to each session, by the leader's clock; nil on
	// followers.
	Left map[int64]time.Duration
}

// MemberStatus is one server of the cluster.
type MemberStatus struct {
	Member
	Voter   bool
	Applied uint64 // by its own word to the leader; 0 if not known here
}

// Status gathers the status of this server. It is not cheap.
func (n *Node) Status() Status {
	st := Status{ID: n.id, Cluster: n.whoAmI().Cluster, PeerInsecure: n.o.PeerInsecure && n.port != nil,
		Term: n.raft.CurrentTerm(), Applied: n.fsm.index.Load(), Last: n.raft.LastIndex(), Zxid: n.Zxid(),
		Elections: n.elections.Load(), Pending: n.fsm.stream.len(), LogBehind: n.fsm.counted.requests.Load()}
	st.Serving, st.Reason = n.Serving()
	_, leader := n.raft.LeaderWithID()
	st.Leader = parseID(leader)
	st.Syncs, st.SyncTime, st.SyncMax = n.guard.syncs.Summary()
	var progress map[uint32]uint64
	t := n.term.Load()
	if t != nil {
		progress = t.links.progress()
		progress[n.id] = st.Applied
		st.Left = t.tracker.deadlines()
	}
	switch {
	case n.port == nil && t != nil:
		st.Role = "standalone"
	case t != nil:
		st.Role = "leader"
	case st.Leader != 0 && n.raft.State() == raft.Follower:
		st.Role = "follower"
	}
	st.Full = n.noRoom()
	servers := n.servers()
	n.View(func(s *State) {
		st.Digest, _ = s.digests.last()
		for _, srv := range servers {
			id := parseID(srv.ID)
			m := s.members[id]
			m.ID, m.PeerAddr = id, string(srv.Address)
			st.Members = append(st.Members, MemberStatus{m, srv.Suffrage == raft.Voter, progress[id]})
		}
	})
	if n.dir != nil {
		st.DataBytes = dirSize(n.dir.sub("snapshots"))
		st.LogBytes = dirSize(n.dir.sub("raft"))
	}
	return st
}

// dirSize adds up the files below a directory.
func dirSize(dir string) (size int64) {
	filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil
	})
	return size
}
