package raftfsm

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// Members lists the members and their progress, as the leader reports it. If no leader answers, it returns an
// error, and a list that it makes from this server's own knowledge and the members' answers.
func (n *Node) Members(ctx context.Context) (*status.Members, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*askTime)
	defer cancel()
	list := &status.Members{ID: n.id, Cluster: n.disk.Identity().Cluster}
	if n.leader.Term() != nil {
		list.Leader, list.Members = n.id, n.survey(ctx)
		return list, nil
	}
	asked, done := context.WithTimeout(ctx, 2*askTime)
	st, err := n.askLeader(asked, peer.Question{Progress: true})
	done()
	if err != nil {
		list.Leader, _ = n.raft.Known()
		list.Members = n.survey(ctx)
		return list, err
	}
	list.Leader, list.Members = st.ID, st.All
	return list, nil
}

// survey collects the progress of all members. It asks every other member. If this server leads and has a
// link to a member, the progress known from the link takes precedence over the member's answer.
func (n *Node) survey(ctx context.Context) map[uint32]status.Member {
	own := n.fsm.Index()
	linked := map[uint32]status.Progress{}
	if t := n.leader.Term(); t != nil {
		linked = t.Far()
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	all := map[uint32]status.Member{}
	var others []peer.Place
	for _, m := range n.members() {
		if m.ID == n.id {
			m.Progress = status.Progress{Applied: own, Heard: status.Ago(0), Version: n.o.Release,
				Starts: n.disk.Identity().Start}
			_, m.Waits = n.Serving()
		} else {
			others = append(others, peer.Place{ID: m.ID, Addr: n.addresses.instead(m.ID, m.Peer)})
		}
		all[m.ID] = m
	}
	if n.port != nil {
		for a := range n.port.AskAll(ctx, others, peer.Question{}) {
			m, said := all[a.ID], progressOf(&a.Status)
			if a.Err != nil {
				said = status.Progress{Waits: a.Err.Error()}
			}
			if p, is := linked[a.ID]; is && (p.Reached() || said.Heard == nil) {
				p.Waits = said.Waits // only the member's answer says why it does not serve yet
				said = p
			}
			m.Progress = said
			all[a.ID] = m
		}
	}
	newest := own
	for _, m := range all {
		newest = max(newest, m.Applied)
	}
	for id, m := range all {
		leading.Lag(n.disk, &m.Progress, newest)
		if n.port != nil {
			m.SnapshotSent, m.SnapshotSize = n.port.Sending(id)
		}
		all[id] = m
	}
	return all
}

// members lists the servers of raft's newest configuration, sorted by id.
func (n *Node) members() (list []status.Member) {
	servers := n.raft.Servers()
	n.View(func(s *state.State) {
		for _, srv := range servers {
			m, _ := s.Member(peer.ParseID(srv.ID))
			list = append(list, status.Member{ID: peer.ParseID(srv.ID), Peer: string(srv.Address),
				Client: m.ClientAddr, Voter: srv.Suffrage == raft.Voter})
		}
	})
	slices.SortFunc(list, func(a, b status.Member) int { return int(a.ID) - int(b.ID) })
	return list
}

// progressOf returns the progress that a server reports in its status.
func progressOf(st *peer.Status) status.Progress {
	p := status.Progress{Heard: status.Ago(0), Version: st.Release, Starts: st.Now.Start, Waits: st.Waits}
	if st.Up {
		p.Applied = st.Now.Index
	}
	return p
}

// Status returns the status of this server. It reads neither files nor sessions, because health checks call
// it often.
func (n *Node) Status() status.Node {
	st := status.Node{ID: n.id, Cluster: n.disk.Identity().Cluster,
		PeerInsecure: n.o.PeerInsecure && n.port != nil, Term: n.raft.CurrentTerm(),
		Commit: min(n.raft.CommitIndex(), n.disk.Durable()), Applied: n.fsm.Index(),
		Last: n.raft.LastIndex(), Zxid: n.Zxid(),
		Elections: n.leader.Won(), Pending: n.fsm.Stream.Len()}
	st.LogBehind, _ = n.fsm.Counted()
	if info := n.fsm.Newest(); info != nil {
		st.Snapshot = *info
	}
	st.Serving, st.Reason = n.Serving()
	st.ReadOnly = n.serving.Reads()
	st.Leader, _ = n.raft.Known()
	st.Syncs, st.SyncTime, st.SyncMax = n.disk.Syncs()
	var progress map[uint32]uint64
	t := n.leader.Term()
	if t != nil {
		progress = t.Progress()
		progress[n.id] = st.Applied
		st.Leads = time.Since(t.Began())
	}
	switch {
	case n.port == nil && t != nil:
		st.Role = "standalone"
	// The terms differ if raft has just learned of a newer one.
	case t != nil && t.Number() == st.Term && n.raft.Leads():
		st.Role = "leader"
	case st.Leader != 0 && n.raft.State() == raft.Follower:
		st.Role = "follower"
	}
	if t != nil {
		st.Full = t.Lowest() // the full disk may be another server's
	}
	if t != nil {
		st.LayoutWaits = t.LayoutWaits()
	}
	if st.Full == "" {
		st.Full = n.upkeep.Full()
	}
	st.Members = n.members()
	for i := range st.Members {
		m := &st.Members[i]
		m.Applied = progress[m.ID]
	}
	st.Removed = n.raft.Lacks(n.id) || len(st.Members) > 0 && n.gone() && st.Leader == 0
	return st
}

// Deadlines returns the time left to each session by the leader's clock. A follower returns nil.
func (n *Node) Deadlines() map[int64]time.Duration {
	if t := n.leader.Term(); t != nil {
		return t.Deadlines().All()
	}
	return nil
}

// TimeLeft returns the time left to a session by the leader's clock. A follower does not know it.
func (n *Node) TimeLeft(session int64) (left time.Duration, known bool) {
	if t := n.leader.Term(); t != nil {
		return t.Deadlines().Left(session)
	}
	return 0, false
}

// DiskBytes returns how many bytes snapshots and the log take on disk. It looks at every file.
func (n *Node) DiskBytes() (snapshots, log int64) { return n.disk.Sizes() }
