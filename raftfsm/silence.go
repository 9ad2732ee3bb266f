package raftfsm

import (
	"time"

	"github.com/hashicorp/raft"
)

// A leader whose host vanishes leaves no broken connection behind. raft's own
// timers notice it between one and a half and five heartbeat timeouts after its last
// word, and the follower that notices it first is refused by the others, who
// still believe in their leader. So a follower that has heard nothing for a
// while asks the others whether they have, and stands when a majority has not:
// the leader has then lost its lease, whether it lives or not.

// silenceLimit is how long a leader may say nothing.
func (s *succession) silenceLimit() time.Duration { return s.heartbeat * 5 / 4 }

// watchSilence stands for election when the leader says nothing to anybody.
func (s *succession) watchSilence() {
	every := s.heartbeat / 10
	last, from := time.Now(), time.Now()
	for s.pause(every) {
		now := time.Now()
		if now.Sub(last) > every+s.heartbeat/4 {
			// This process stood still, not the leader: what it said waits unread.
			from = now.Add(s.heartbeat)
		}
		last = now
		if now.Before(from) || s.raft.State() != raft.Follower || s.raft.silence() < s.silenceLimit() {
			continue
		}
		s.succeedSilent()
		last = time.Now()
	}
}

// succeedSilent stands if a majority of the voters, this server among them,
// hears of no leader.
func (s *succession) succeedSilent() {
	leader, _ := s.raft.leader()
	m := s.raft.moment()
	if s.turn(m, leader, func(v *survey) bool { return v.silent > v.voters/2 }) && s.raft.silence() >= s.silenceLimit() {
		s.standAt(m, "nobody hears of the leader; standing for election", leader)
		s.pause(succeedResult)
	}
}
