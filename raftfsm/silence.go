package raftfsm

import (
	"time"

	"github.com/hashicorp/raft"
)

// A leader whose host vanishes leaves no broken connection behind. raft's own
// timers notice it between one and three heartbeat timeouts after its last
// word, and the follower that notices it first is refused by the others, who
// still believe in their leader. So a follower that has heard nothing for a
// while asks the others whether they have, and stands when a majority has not:
// the leader has then lost its lease, whether it lives or not.

// silenceLimit is how long a leader may say nothing.
func (n *Node) silenceLimit() time.Duration { return n.o.HeartbeatTimeout * 5 / 4 }

// silence is how long this server has heard nothing of a leader; 0 where it
// leads, or never knew one.
func (n *Node) silence() time.Duration {
	if n.raft.State() == raft.Leader {
		return 0
	}
	last := n.raft.LastContact()
	if last.IsZero() {
		return 0
	}
	return time.Since(last)
}

// watchSilence stands for election when the leader says nothing to anybody.
func (n *Node) watchSilence() {
	every := n.o.HeartbeatTimeout / 10
	last, from := time.Now(), time.Now()
	for n.pause(every) {
		now := time.Now()
		if now.Sub(last) > every+n.o.HeartbeatTimeout/4 {
			// This process stood still, not the leader: what it said waits unread.
			from = now.Add(n.o.HeartbeatTimeout)
		}
		last = now
		if now.Before(from) || n.raft.State() != raft.Follower || n.silence() < n.silenceLimit() {
			continue
		}
		n.succeedSilent()
		last = time.Now()
	}
}

// succeedSilent stands if a majority of the voters, this server among them,
// hears of no leader.
func (n *Node) succeedSilent() {
	_, leader := n.raft.LeaderWithID()
	current := n.raft.CurrentTerm()
	v := n.survey(parseID(leader))
	if !v.voter || v.silent <= v.voters/2 || !n.pause(v.wait) {
		return
	}
	if n.raft.State() == raft.Follower && n.raft.CurrentTerm() == current && n.silence() >= n.silenceLimit() {
		n.log.Info("nobody hears of the leader; standing for election", "leader", parseID(leader))
		n.stand()
		n.pause(succeedResult)
	}
}
