package raftfsm

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// succession is how this server stands for election sooner than raft would by
// itself: in a starting cluster, when the leader's process is gone, and when a
// majority hears nothing of the leader. raft's own timers remain behind it; a
// mistake here costs an election, never a guarantee.
type succession struct {
	raft      *consensus
	port      *peer.Port // nil in a cluster of one
	status    func() peer.Status
	heartbeat time.Duration
	log       *slog.Logger
	ctx       context.Context // ends when the Node closes
}

// stand stands for election now.
func (s *succession) stand() {
	if err := s.raft.stand(); err != nil {
		s.log.Debug("could not stand for election", "err", err)
	}
}

// standFirst spares a starting cluster the heartbeat timeout: nobody leads yet,
// so nobody need be waited for. The voter with the lowest id stands as soon as
// all have started; a lone one at once. If anything is different, the timeout
// decides as usual.
func (s *succession) standFirst() {
	for end := time.Now().Add(s.heartbeat); time.Now().Before(end) && s.ctx.Err() == nil; {
		if s.raft.State() != raft.Follower {
			return
		}
		if !s.isFirstVoter() {
			return
		}
		switch all, leader := s.othersUp(); {
		case leader:
			return
		case all:
			s.stand()
			return
		}
		s.pause(10 * time.Millisecond)
	}
}

// isFirstVoter reports whether this server has the lowest id of the voters.
func (s *succession) isFirstVoter() bool {
	first := uint32(0)
	for _, srv := range s.raft.servers() {
		if id := peer.ParseID(srv.ID); srv.Suffrage == raft.Voter && (first == 0 || id < first) {
			first = id
		}
	}
	return first == s.raft.id
}

// othersUp reports whether all other members run, and whether any of them
// knows a leader.
func (s *succession) othersUp() (all, leader bool) {
	all = true
	for _, srv := range s.raft.servers() {
		id := peer.ParseID(srv.ID)
		if id == s.raft.id {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
		st, err := s.port.Ask(ctx, id, string(srv.Address), peer.Question{})
		cancel()
		if err != nil || !st.Up {
			return false, leader
		}
		leader = leader || st.Leader != 0
	}
	return all, leader
}

const (
	succeedAsk    = 50 * time.Millisecond  // a server that takes longer to answer is not waited for, if it makes no difference
	succeedStep   = 100 * time.Millisecond // more than a vote takes, so that not all stand at once
	succeedTie    = 40 * time.Millisecond  // between servers that cannot tell who is first
	succeedAgain  = 20 * time.Millisecond  // before the others are asked again
	succeedResult = 100 * time.Millisecond // by then a vote is decided
	succeedDefer  = 500 * time.Millisecond // to those who stand first, and whose disk may be slow
)

// succeed finds a successor for a leader that is dead, sooner than heartbeats
// fail: the voter with the longest log, which cannot lose, stands first; of
// equals the one with the lowest id. It is called again for as long as this server
// knows no other leader; should an election come to nothing, see fill.
func (s *succession) succeed(dead uint32) {
	m := moment{term: s.raft.CurrentTerm()}
	if !s.turn(m, dead, func(v *survey) bool { return !v.mayLive() && (v.linked == 0 || !v.leaderLives()) }) {
		s.pause(succeedAgain) // the others may not know it yet
		return
	}
	s.standAt(m, "the leader's process is gone; standing for election", dead)
}

// turn waits until it is this server's turn to stand, after those that stand
// first. It reports false when, by what the others answer, nobody may stand, or
// when something has happened since m.
func (s *succession) turn(m moment, but uint32, may func(*survey) bool) bool {
	waited := false
	for end := time.Now().Add(succeedDefer); ; {
		v := s.survey(but, may)
		switch {
		case !v.voter || !may(&v) || v.hopeless():
			return false
		case !waited && v.wait > 0:
			waited = true
			if !s.idle(v.wait, m, but) {
				return false
			}
		case v.standing > 0 && time.Now().Before(end):
			if !s.idle(succeedAgain, m, but) {
				return false
			}
		default:
			return true
		}
	}
}

// idle waits for d, and reports whether nothing happened meanwhile: the moment is
// still m, and no leader but one is known.
func (s *succession) idle(d time.Duration, m moment, but uint32) bool {
	const step = 5 * time.Millisecond
	for ; d > 0; d -= step {
		if !s.pause(min(d, step)) || !s.raft.isStill(m) || !s.raft.nobodyLeadsBut(but) {
			return false
		}
	}
	return true
}

// standAt stands if nothing has happened since m, once raft has done what it is
// busy with. That may be a vote for another server, on its way to a slow disk: to
// stand right behind it would depose the server that it has just elected.
func (s *succession) standAt(m moment, why string, but uint32) {
	if !s.raft.drained(s.ctx, s.heartbeat) || !s.raft.isStill(m) || !s.raft.nobodyLeadsBut(but) {
		return
	}
	if s.raft.State() == raft.Candidate && !s.raft.withdraw(m) {
		return
	}
	if s.raft.State() == raft.Follower {
		s.log.Info(why, "leader", but)
		s.stand()
	}
}

// pause waits, and reports whether the Node goes on.
func (s *succession) pause(d time.Duration) bool {
	select {
	case <-s.ctx.Done():
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
	linked int           // of them have a connection to the leader that stands
	mute   int           // of them did not answer
	vacant int           // of them know no leader, this server included
	leads  int           // of them lead, by their own word
	votes  int           // that this server may hope for: of those whose log is no longer than its own

	standing int // of those who stand first do so already
}

// hopeless reports that others know more, and that without their votes nobody
// can be elected. To stand would only be in their way.
func (v *survey) hopeless() bool { return v.votes <= v.voters/2 }

// leaderLives reports whether the leader has the connections it needs to lead:
// it is then only this server that cannot reach it. Connections to a process
// that ends break at once.
func (v *survey) leaderLives() bool { return v.linked+1 > v.voters/2 }

// mayLive reports whether the leader lives if those who did not answer can reach
// it: they may be busy, or far away. Without one of their votes nobody can be
// elected then, so nothing is lost by asking them again.
func (v *survey) mayLive() bool { return v.mute > 0 && v.linked+v.mute+1 > v.voters/2 }

// survey asks all voters but the server dead. Those with a longer log stand
// first, as far as can be seen. The last entries may be on their way to the
// disk, so two servers can each think that the other stands first; then the
// ids decide. On a busy machine answers take long: they are waited for, but no
// longer than it takes to know enough, or another leader.
func (s *succession) survey(dead uint32, enough func(*survey) bool) (v survey) {
	ctx, cancel := context.WithTimeout(s.ctx, s.heartbeat)
	defer cancel()
	own := s.status()
	servers := s.raft.servers()
	answers := make(chan opinion, len(servers))
	asked := 0
	for _, srv := range servers {
		if srv.Suffrage != raft.Voter {
			continue
		}
		v.voters++
		switch id := peer.ParseID(srv.ID); id {
		case dead:
		case s.raft.id:
			v.voter = true
			v.silent++
			v.vacant++
			v.votes++
		default:
			asked++
			if id < s.raft.id {
				v.wait += succeedTie
			}
			go func() {
				st, err := s.port.Ask(ctx, id, string(srv.Address), peer.Question{})
				if st.ID = id; err != nil {
					answers <- opinion{mute: true, gone: errors.Is(err, syscall.ECONNREFUSED)}
					return
				}
				answers <- s.opinionOf(&st, &own, dead)
			}()
		}
	}
	asks := time.NewTimer(succeedAsk)
	defer asks.Stop()
	look := time.NewTicker(succeedAgain)
	defer look.Stop()
	for late := false; asked > 0; {
		select {
		case a := <-answers:
			v.hear(a)
			asked--
			continue
		case <-asks.C:
			late = true
		case <-look.C:
		}
		so := v
		for range asked {
			so.hear(opinion{mute: true})
		}
		if late && enough(&so) || !s.raft.nobodyLeadsBut(dead) {
			return so
		}
	}
	return v
}

// opinion is what a survey learns from one voter's answer, or from its silence. A
// voter that did not answer may still vote.
type opinion struct {
	before bool // it stands first
	silent bool // it hears of no leader either
	vacant bool // it knows of none
	leads  bool
	longer bool // its log is longer, so that it does not vote for us
	linked bool // its connection to the leader stands
	stands bool // it stands for election now
	mute   bool // it did not answer, so that the leader may be its leader
	gone   bool // because there is no process
}

func (s *succession) opinionOf(st, own *peer.Status, dead uint32) opinion {
	if !st.Up {
		return opinion{}
	}
	same := *st
	same.ID = own.ID
	return opinion{before: standsBefore(st, own), longer: standsBefore(&same, own), linked: dead != 0 && st.Linked == dead, stands: st.Stands,
		silent: st.Silent >= s.heartbeat.Milliseconds(), vacant: st.Leader == 0, leads: st.Leader == st.ID}
}

func (v *survey) hear(a opinion) {
	if a.before {
		v.wait += succeedStep
		if a.stands {
			v.standing++
		}
	}
	if a.silent {
		v.silent++
	}
	if a.vacant {
		v.vacant++
	}
	if a.leads {
		v.leads++
	}
	if !a.longer && !a.gone {
		v.votes++
	}
	if a.linked {
		v.linked++
	}
	if a.mute {
		v.mute++
	}
}

// standsBefore compares two servers as raft compares them in a vote.
func standsBefore(a, b *peer.Status) bool {
	if a.LastTerm != b.LastTerm {
		return a.LastTerm > b.LastTerm
	}
	if a.LastIndex != b.LastIndex {
		return a.LastIndex > b.LastIndex
	}
	return a.ID < b.ID
}
