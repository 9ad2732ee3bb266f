package raftfsm

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// selfAddr is the address raft knows this server by.
func (n *Node) selfAddr() raft.ServerAddress {
	if addr := n.o.Peers[n.id]; addr != "" {
		return raft.ServerAddress(addr)
	}
	return "local"
}

// stand lets this server stand for election now. It tells itself what a leader
// that hands over tells its successor.
func (n *Node) stand() {
	var resp raft.TimeoutNowResponse
	if err := n.trans.TimeoutNow(serverID(n.id), n.selfAddr(), &raft.TimeoutNowRequest{RPCHeader: n.rpcHeader()}, &resp); err != nil {
		n.log.Debug("could not stand for election", "err", err)
	}
}

// standFirst spares a starting cluster the heartbeat timeout: nobody leads yet,
// so nobody need be waited for. The voter with the lowest id stands as soon as
// all have started; a lone one at once. If anything is different, the timeout
// decides as usual.
func (n *Node) standFirst() {
	for end := time.Now().Add(n.o.HeartbeatTimeout); time.Now().Before(end) && n.ctx.Err() == nil; {
		if n.raft.State() != raft.Follower {
			return
		}
		if !n.isFirstVoter() {
			return
		}
		switch all, leader := n.othersUp(); {
		case leader:
			return
		case all:
			n.stand()
			return
		}
		n.pause(10 * time.Millisecond)
	}
}

// isFirstVoter reports whether this server has the lowest id of the voters.
func (n *Node) isFirstVoter() bool {
	first := uint32(0)
	for _, s := range n.servers() {
		if id := parseID(s.ID); s.Suffrage == raft.Voter && (first == 0 || id < first) {
			first = id
		}
	}
	return first == n.id
}

// othersUp reports whether all other members run, and whether any of them
// knows a leader.
func (n *Node) othersUp() (all, leader bool) {
	all = true
	for _, s := range n.servers() {
		id := parseID(s.ID)
		if id == n.id {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, 200*time.Millisecond)
		st, err := n.ask(ctx, id, string(s.Address), question{})
		cancel()
		if err != nil || !st.Up {
			return false, leader
		}
		leader = leader || st.Leader != 0
	}
	return all, leader
}

const (
	succeedAsk    = 50 * time.Millisecond  // a server that takes longer to answer is not waited for
	succeedStep   = 100 * time.Millisecond // more than a vote takes on a busy machine, so that not all stand at once
	succeedTie    = 40 * time.Millisecond  // between servers that cannot tell who is first
	succeedResult = 100 * time.Millisecond // by then a vote is decided
)

// succeed finds a successor for a leader that is dead, sooner than heartbeats
// fail: the voter with the longest log, which cannot lose, stands first; of
// equals the one with the lowest id. Should that come to nothing, those left ask
// each other again, a few times; then the heartbeat timeout decides as usual.
func (n *Node) succeed(dead uint32) {
	for end := time.Now().Add(n.o.HeartbeatTimeout); time.Now().Before(end); {
		current := n.raft.CurrentTerm()
		v := n.survey(dead)
		if !v.voter || !n.pause(v.wait) || !n.nobodyLeadsBut(dead) {
			return
		}
		// In a new term somebody has asked for votes, and may be about to win.
		if n.raft.State() == raft.Follower && n.raft.CurrentTerm() == current {
			n.log.Info("the leader's process is gone; standing for election", "leader", dead)
			n.stand()
		}
		for range succeedResult / (5 * time.Millisecond) {
			if !n.pause(5*time.Millisecond) || !n.nobodyLeadsBut(dead) {
				return
			}
		}
	}
}

// pause waits, and reports whether the Node goes on.
func (n *Node) pause(d time.Duration) bool {
	select {
	case <-n.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// survey is what a voter learns from the others before it stands.
type survey struct {
	voter  bool          // this server may vote
	wait   time.Duration // how long it lets others stand first
	voters int           // of the cluster
	silent int           // of them hear of no leader, this server included
}

// survey asks all voters but the server dead. Those with a longer log stand
// first, as far as can be seen. The last entries may be on their way to the
// disk, so two servers can each think that the other stands first; then the
// ids decide.
func (n *Node) survey(dead uint32) (v survey) {
	ctx, cancel := context.WithTimeout(n.ctx, succeedAsk)
	defer cancel()
	own := n.status()
	type answer struct{ before, silent bool }
	answers := make(chan answer)
	asked := 0
	for _, s := range n.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		v.voters++
		switch id := parseID(s.ID); id {
		case dead:
		case n.id:
			v.voter = true
			v.silent++
		default:
			asked++
			if id < n.id {
				v.wait += succeedTie
			}
			go func() {
				st, err := n.ask(ctx, id, string(s.Address), question{})
				up := err == nil && st.Up
				answers <- answer{up && st.standsBefore(&own), up && st.Silent >= n.o.HeartbeatTimeout.Milliseconds()}
			}()
		}
	}
	for range asked {
		a := <-answers
		if a.before {
			v.wait += succeedStep
		}
		if a.silent {
			v.silent++
		}
	}
	return v
}

// standsBefore compares two servers as raft compares them in a vote.
func (s *peerStatus) standsBefore(o *peerStatus) bool {
	if s.LastTerm != o.LastTerm {
		return s.LastTerm > o.LastTerm
	}
	if s.LastIndex != o.LastIndex {
		return s.LastIndex > o.LastIndex
	}
	return s.ID < o.ID
}
