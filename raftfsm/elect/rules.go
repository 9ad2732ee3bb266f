package elect

import (
	"errors"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Why is the reason for which a server would stand for election.
type Why int

// The reasons for an election.
const (
	Dead   Why = iota // the leader's process is gone
	Silent            // the leader is silent
	Vacant            // no leader is known
)

// String returns the text of the reason, for the log.
func (w Why) String() string {
	return [...]string{"the leader's process is gone", "a majority hears nothing from the leader",
		"no leader is known"}[w]
}

// Verdict is what a server does next about an election.
type Verdict int

// The verdicts.
const (
	Yield      Verdict = iota // the server does not stand for election
	WaitTurn                  // the server waits at most Survey.Turn for other servers to stand first
	WaitOthers                // a better candidate is standing, so this server waits a little
	Stand
)

const (
	turnStep  = 100 * time.Millisecond // longer than a vote takes, so that the servers do not stand all at once
	turnTie   = 40 * time.Millisecond  // extra wait if it is unclear which of two servers comes first
	turnShort = 5 * time.Millisecond   // wait for an entry that may be on its way to another server's disk
)

// Opinion is what a server learns from one voter's answer, or from its silence. A voter that did not answer
// may still vote.
type Opinion struct {
	Before bool // the voter's turn to stand for election comes before this server's
	Silent bool // the voter has not heard from a leader either
	Vacant bool // the voter knows no leader
	Leads  bool
	Longer bool // the voter's log is longer, so the voter does not vote for this server
	Short  bool // the voter's log is shorter, so this server does not vote for the voter
	Linked bool // the voter has a connection to the leader
	Stands bool // the voter stands for election now
	Mute   bool // the voter did not answer, so it may still follow the leader
	Gone   bool // the voter's process is gone
	Lower  bool // the voter's id is lower than this server's
}

// opinionOf returns a voter's opinion of a leader (0: no leader is known) from the voter's answer; `own` is
// the status of this server. A voter is Silent when it has not heard from a leader for the heartbeat timeout.
func opinionOf(a *peer.Answer, own *peer.Status, leader uint32, heartbeat time.Duration) Opinion {
	o := Opinion{Lower: a.ID < own.ID}
	switch st := a.Status; {
	case a.Err != nil:
		o.Mute, o.Gone = true, errors.Is(a.Err, syscall.ECONNREFUSED)
	case st.Up:
		st.ID = a.ID
		o.Before = StandsBefore(&st, own)
		st.ID = own.ID
		o.Longer, o.Short = StandsBefore(&st, own), StandsBefore(own, &st)
		o.Linked, o.Stands = leader != 0 && st.Linked == leader, st.Stands
		o.Silent, o.Vacant, o.Leads = st.Silent >= heartbeat.Milliseconds(), st.Leader == 0, st.Leader == a.ID
	}
	return o
}

// StandsBefore reports whether server `a` should stand before server `b`: a has the longer log, as raft
// compares logs in a vote, or an equal log and the lower id.
func StandsBefore(a, b *peer.Status) bool {
	if a.LastTerm != b.LastTerm {
		return a.LastTerm > b.LastTerm
	}
	if a.LastIndex != b.LastIndex {
		return a.LastIndex > b.LastIndex
	}
	return a.ID < b.ID
}

// Survey is what a voter learns from the others before it stands.
type Survey struct {
	Voter    bool      // this server may vote
	Voters   int       // how many voters the cluster has, including this server and the leader
	Opinions []Opinion // opinions of the other voters, without the leader
}

func (s *Survey) count(is func(*Opinion) bool) (n int) {
	for i := range s.Opinions {
		if is(&s.Opinions[i]) {
			n++
		}
	}
	return n
}

// majority reports whether n voters and this server form a majority.
func (s *Survey) majority(n int) bool { return s.Voter && n+1 > s.Voters/2 }

// Turn returns how long this server waits for servers with a longer log to stand first. A server's answer
// leaves out the entries that are still on their way to its disk. So two servers may both wait for each
// other, or neither waits. Then their ids decide.
func (s *Survey) Turn() (d time.Duration) {
	for i := range s.Opinions {
		o := &s.Opinions[i]
		if o.Before {
			d += turnStep
		}
		switch {
		case o.Lower && o.Short:
			d += turnShort
		case o.Lower:
			d += turnTie
		}
	}
	return d
}

// May reports whether this server may stand for election at all.
func (s *Survey) May(why Why) bool {
	linked := s.count(func(o *Opinion) bool { return o.Linked })
	mute := s.count(func(o *Opinion) bool { return o.Mute })
	switch why {
	case Dead:
		// If the leader is linked to a majority, it is alive, and only this server cannot reach it: the connections
		// of a process break at once when the process ends. The leader may also be alive if it is linked to servers
		// that did not answer because they are busy or far away. No server can be elected without one of their
		// votes, so this server loses nothing if it asks them again.
		lives := linked > 0 && linked+1 > s.Voters/2
		mayLive := mute > 0 && linked+mute+1 > s.Voters/2
		return !lives && !mayLive
	case Silent:
		// A leader from which a majority does not hear has lost its lease, whether it is alive or not.
		return s.majority(s.count(func(o *Opinion) bool { return o.Silent }))
	case Vacant:
		leads := s.count(func(o *Opinion) bool { return o.Leads })
		return leads == 0 && s.majority(s.count(func(o *Opinion) bool { return o.Vacant }))
	}
	return false
}

// hopeless() reports whether this server needs the vote of a server that has a longer log or is gone. Such a
// candidate cannot win, and would only disturb another server's election.
func (s *Survey) hopeless() bool {
	return !s.majority(s.count(func(o *Opinion) bool { return !o.Longer && !o.Gone }))
}

// Decide returns what a server that wants to stand does next. `waited` is how long the server has already
// waited for better candidates; `over` says that it has waited long enough for them.
func (s *Survey) Decide(why Why, waited time.Duration, over bool) Verdict {
	first := s.count(func(o *Opinion) bool { return o.Before && o.Stands })
	switch {
	case !s.Voter || !s.May(why) || s.hopeless():
		return Yield
	case s.Turn() > waited:
		return WaitTurn
	case first > 0 && !over:
		return WaitOthers
	}
	return Stand
}
