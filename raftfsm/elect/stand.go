package elect

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Elections makes this server stand for election.
type Elections struct {
	Raft      *Raft
	Port      *peer.Port
	Status    func() peer.Status
	Heartbeat time.Duration
	Log       *slog.Logger
	News      chan struct{} // holds a token when raft knows another leader, or none any more

	term uint64 // at the start
}

const (
	look      = 50 * time.Millisecond  // how often Watch checks whether there is a leader; see lookAgain
	lookSoon  = 10 * time.Millisecond  // instead, while a cluster may be starting
	askFirst  = 50 * time.Millisecond  // a later answer is awaited only if it makes a difference
	askAgain  = 20 * time.Millisecond  // before the others are asked again
	voteTime  = 100 * time.Millisecond // by then a vote is decided
	deferTime = 500 * time.Millisecond // to servers that stand first, whose disks may be slow
)

// Watch stands for election, until ctx ends, when the leader says nothing or no leader is known.
//
// A leader whose host vanishes leaves no broken connection behind. Raft's own
// timers notice it between one and a half and five heartbeat timeouts after its last
// word, and the follower that notices it first is refused by the others, which
// still believe in their leader. So a follower that has heard nothing for a
// while asks the others whether they have.
func (e *Elections) Watch(ctx context.Context) {
	last, from := time.Now(), time.Now()
	wait := look
	var vacant vacancy
	e.term = e.Raft.CurrentTerm()
	for ctx.Err() == nil {
		now := time.Now()
		if now.Sub(last) > wait+e.Heartbeat/4 {
			// This process stood still, not the leader, whose messages wait unread.
			from = now.Add(e.Heartbeat)
		}
		leader, _ := e.Raft.Known()
		switch {
		case leader == 0:
			e.fill(ctx, &vacant)
		case !now.Before(from) && e.Raft.State() == raft.Follower && e.Raft.Silence() >= e.silenceLimit():
			e.replaceSilent(ctx, leader)
		}
		last, wait = time.Now(), e.lookAgain(leader)
		select {
		case <-ctx.Done():
		case <-e.News:
		case <-time.After(wait):
		}
	}
}

// lookAgain is how long Watch may wait: while there is a leader, until it has been silent for too
// long, but no longer than a standstill of this process must be noticed.
func (e *Elections) lookAgain(leader uint32) time.Duration {
	switch {
	case leader == 0 && e.starts():
		return lookSoon
	case leader == 0:
		return look
	}
	return max(look, min(e.silenceLimit()-e.Raft.Silence(), e.Raft.Beat(e.Heartbeat/4)))
}

// silenceLimit is how long a leader may say nothing.
func (e *Elections) silenceLimit() time.Duration { return e.Heartbeat * 5 / 4 }

func (e *Elections) replaceSilent(ctx context.Context, leader uint32) {
	m := e.Raft.moment()
	if e.turn(ctx, m, leader, Silent) && e.Raft.Silence() >= e.silenceLimit() {
		e.standAt(ctx, m, leader, Silent)
		pause(ctx, voteTime)
	}
}

// voters lists the other voters, and reports whether this server is one.
func (r *Raft) voters() (others []peer.Place, own bool) {
	for _, srv := range r.Servers() {
		switch id := peer.ParseID(srv.ID); {
		case srv.Suffrage != raft.Voter:
		case id == r.ID:
			own = true
		default:
			others = append(others, peer.Place{ID: id, Addr: string(srv.Address)})
		}
	}
	return others, own
}

// Succeed finds a successor for a leader that is dead, sooner than heartbeats fail: the voter with
// the longest log, which cannot lose, stands first; of equals the one with the lowest id. The
// caller repeats it while this server knows no other leader. For an election that comes to nothing
// see fill.
func (e *Elections) Succeed(ctx context.Context, dead uint32) {
	m := moment{term: e.Raft.CurrentTerm()}
	if e.turn(ctx, m, dead, Dead) {
		e.standAt(ctx, m, dead, Dead)
	}
}

// turn waits until the servers that stand first have had their time. It reports false if the others'
// answers forbid this server to stand, or if anything has changed since m.
func (e *Elections) turn(ctx context.Context, m moment, but uint32, why Why) bool {
	var waited time.Duration
	for end := time.Now().Add(deferTime); ; {
		s := e.survey(ctx, but, why)
		wait := askAgain
		switch s.Decide(why, waited, !time.Now().Before(end)) {
		case Yield:
			return false
		case Stand:
			return true
		case WaitTurn:
			wait, waited = s.Turn()-waited, s.Turn()
		case WaitOthers:
		}
		if !e.idle(ctx, wait, m, but) {
			return false
		}
	}
}

// idle waits for d, and reports whether nothing happened until then: the moment is still m, and
// this server knows no other leader than but.
func (e *Elections) idle(ctx context.Context, d time.Duration, m moment, but uint32) bool {
	const step = time.Millisecond // another server may lead by then
	for ; d > 0; d -= step {
		if !pause(ctx, min(d, step)) || !e.Raft.isStill(m) || !e.Raft.NobodyLeadsBut(but) {
			return false
		}
	}
	return true
}

// standAt first lets raft finish its work, then stands if nothing has happened since m. That work
// may be a vote for another server, on its way to a slow disk: standing right after the vote would
// depose the server that it has just elected.
func (e *Elections) standAt(ctx context.Context, m moment, but uint32, why Why) {
	if !e.Raft.drained(ctx, e.Heartbeat) || !e.Raft.isStill(m) || !e.Raft.NobodyLeadsBut(but) {
		return
	}
	if e.Raft.State() == raft.Candidate && !e.Raft.withdraw(m) {
		return
	}
	if e.Raft.State() == raft.Follower {
		e.Log.Info(why.String()+"; standing for election", "leader", but)
		if err := e.Raft.Stand(); err != nil {
			e.Log.Debug("could not stand for election", "err", err)
		}
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// survey asks all voters but the server dead. On a busy machine answers take long: survey waits for
// them until it knows enough, or another leader.
func (e *Elections) survey(ctx context.Context, dead uint32, why Why) (s Survey) {
	ctx, cancel := context.WithTimeout(ctx, e.Heartbeat)
	defer cancel()
	own := e.Status()
	own.ID = e.Raft.ID
	list, votes := e.Raft.voters()
	s.Voter, s.Voters = votes, len(list)
	if votes {
		s.Voters++
	}
	list = slices.DeleteFunc(list, func(p peer.Place) bool { return p.ID == dead })
	missing := map[uint32]bool{}
	for _, p := range list {
		missing[p.ID] = true
	}
	answers := e.Port.AskAll(ctx, list, peer.Question{})
	asks := time.NewTimer(askFirst)
	defer asks.Stop()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for late := false; len(missing) > 0; {
		select {
		case a := <-answers:
			s.Opinions = append(s.Opinions, opinionOf(&a, &own, dead, e.Heartbeat))
			delete(missing, a.ID)
			continue
		case <-asks.C:
			late = true
		case <-again.C:
		}
		so := s
		for id := range missing {
			so.Opinions = append(so.Opinions, Opinion{Mute: true, Lower: id < e.Raft.ID})
		}
		if late && so.May(why) || !e.Raft.NobodyLeadsBut(dead) {
			return so
		}
	}
	return s
}

// An election may come to nothing: on a busy machine two servers stand at once and split the votes,
// or the second deposes the first, and then cannot win itself because the first has a longer log by
// then. Raft tries again after one and a half to three heartbeat timeouts, perhaps with the same
// result. So servers that know no leader ask each other, as when a leader has died.

// vacancy is a time in which this server knows no leader.
type vacancy struct {
	moment moment
	since  time.Time     // since when nothing has happened and raft has nothing to do; zero: look again
	took   time.Duration // how long raft was busy before that
	last   time.Time     // when this server stood
	tries  int           // without success, one soon after the other
}

// patience is how long an election may take; longer, the more of them have
// failed. A server that stands waits for votes, which go to the disks of others:
// how long raft was busy here tells how slow disks may be.
func (v *vacancy) patience(stands bool) time.Duration {
	d := voteTime
	if stands {
		d = 2 * max(d, v.took)
	}
	return d << min(v.tries, 3)
}

// starts reports whether the whole cluster may have been started with this server, which has seen no
// election yet.
func (e *Elections) starts() bool {
	return time.Since(e.Raft.Began) < e.Heartbeat && e.Raft.CurrentTerm() == e.term
}

// fill stands for election if a majority of the voters, this server among
// them, knows no leader, and no election has been under way for a while. In a starting cluster
// there was none.
func (e *Elections) fill(ctx context.Context, v *vacancy) {
	if v.since.IsZero() || !e.Raft.isStill(v.moment) {
		// Votes go to the disk, here and there, before they count.
		began := time.Now()
		if !e.Raft.drained(ctx, e.Heartbeat) {
			return
		}
		v.moment, v.since, v.took = e.Raft.moment(), time.Now(), time.Since(began)
	}
	if !e.starts() && time.Since(v.since) < v.patience(e.Raft.State() == raft.Candidate) {
		return
	}
	if time.Since(v.last) > 2*e.Heartbeat {
		v.tries = 0
	}
	if e.turn(ctx, v.moment, 0, Vacant) {
		v.tries++
		v.last = time.Now()
		e.standAt(ctx, v.moment, 0, Vacant)
	}
	v.since = time.Time{}
}
