package raftfsm

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// An election may come to nothing: on a busy machine two servers stand at once
// and split the votes, or the second deposes the first, and then cannot win
// itself because the first has a longer log by then. raft tries again after one and
// a half to three heartbeat timeouts, and it may be the same once more. So those
// who know no leader ask each other, as when a leader has died.

// vacancy is a time in which this server knows no leader.
type vacancy struct {
	moment moment
	since  time.Time     // since when nothing has happened and raft has nothing to do; zero: there is a leader
	took   time.Duration // how long raft was busy before that
	last   time.Time     // when this server stood
	tries  int           // without success, one soon after the other
}

// over notes that there is a leader.
func (v *vacancy) over() { v.since = time.Time{} }

// patience is how long an election may take; longer, the more of them have
// failed. A server that stands waits for votes, which go to the disks of others:
// how long raft was busy here tells how slow disks may be.
func (v *vacancy) patience(stands bool) time.Duration {
	d := succeedResult
	if stands {
		d = 2 * max(d, v.took)
	}
	return d << min(v.tries, 3)
}

// fill stands for election if a majority of the voters, this server among
// them, knows no leader, and no election has been under way for a while.
func (s *succession) fill(v *vacancy) {
	if v.since.IsZero() || !s.raft.isStill(v.moment) {
		// Votes go to the disk, here and there, before they count.
		began := time.Now()
		if s.raft.drained(s.ctx, s.heartbeat) {
			v.moment, v.since, v.took = s.raft.moment(), time.Now(), time.Since(began)
		}
		return
	}
	if time.Since(v.since) < v.patience(s.raft.State() == raft.Candidate) {
		return
	}
	if time.Since(v.last) > 2*s.heartbeat {
		v.tries = 0
	}
	if s.turn(v.moment, 0, func(o *survey) bool { return o.leads == 0 && o.vacant > o.voters/2 }) {
		v.tries++
		v.last = time.Now()
		s.standAt(v.moment, "nobody leads; standing for election", 0)
	}
	v.over()
}

// moment tells whether anything has happened that bears on who leads.
type moment struct {
	term    uint64
	contact time.Time // with a leader, or one who was given a vote; zero: any
}

func (r *consensus) moment() moment { return moment{r.CurrentTerm(), r.LastContact()} }

func (r *consensus) isStill(m moment) bool {
	return r.CurrentTerm() == m.term && (m.contact.IsZero() || r.LastContact().Equal(m.contact))
}

// drained waits until raft's main loop has done what others have asked of it so
// far, and reports whether it has in time. It is asked for a vote in a term that is
// long over, which changes nothing, and comes behind the requests of others.
func (r *consensus) drained(ctx context.Context, limit time.Duration) bool {
	done := make(chan error, 1)
	go func() { // for the transport's patience at most
		var resp raft.RequestVoteResponse
		done <- r.trans.RequestVote(peer.ServerID(r.id), r.self, &raft.RequestVoteRequest{RPCHeader: r.header(), LeadershipTransfer: true}, &resp)
	}()
	select {
	case err := <-done:
		return err == nil
	case <-time.After(limit):
	case <-ctx.Done():
	}
	return false
}

// withdraw ends a candidacy that came to nothing, which raft would only do when
// its timer runs out. A candidate that is asked for a vote in a newer term must
// become a follower, so this server asks itself for one, with an empty log, which
// gets no vote. It reports whether nothing else has happened since m: if raft
// knows a leader by then, or a newer term, it takes no notice.
func (r *consensus) withdraw(m moment) bool {
	h := r.header()
	h.Addr = nil // raft would take it for its own leader, if it leads by then
	var resp raft.RequestVoteResponse
	err := r.trans.RequestVote(peer.ServerID(r.id), r.self, &raft.RequestVoteRequest{RPCHeader: h, Term: m.term + 1}, &resp)
	m.term++
	return err == nil && r.isStill(m)
}
