package elect

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// Elections makes this server stand for election when the cluster needs a leader.
type Elections struct {
	Raft      *Raft
	Port      *peer.Port
	Status    func() peer.Status
	Heartbeat time.Duration
	Log       *slog.Logger
	News      chan struct{} // holds a token when the leader that raft knows has changed

	term uint64 // the term when this server started
}

const (
	look     = 50 * time.Millisecond // how often Watch checks whether there is a leader; see lookAgain
	lookSoon = 10 * time.Millisecond // replaces `look` while a cluster may be starting
	// after this time, survey() waits only for answers that could change the decision
	askFirst  = 50 * time.Millisecond
	askAgain  = 20 * time.Millisecond  // pause before the next survey
	voteTime  = 100 * time.Millisecond // a vote takes at most this long
	deferTime = 500 * time.Millisecond // extra time for better candidates, because their disks may be slow
)

// Watch runs until ctx ends. It makes this server stand for election when the leader is silent or no leader
// is known.
//
// When the leader's host vanishes, no connection breaks. Raft's own timers notice the loss one and a half to
// five heartbeat timeouts after the last message. The follower that notices first gets no votes, because the
// other followers still believe in the leader. So a follower that has not heard from the leader for a while
// asks the others whether they have heard from it.
func (e *Elections) Watch(ctx context.Context) {
	last, from := time.Now(), time.Now()
	wait := look
	var vacant vacancy
	e.term = e.Raft.CurrentTerm()
	for ctx.Err() == nil {
		now := time.Now()
		if now.Sub(last) > wait+e.Heartbeat/4 {
			// This process was stopped, not the leader: the messages of the leader have arrived and are not
			// read yet.
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

// lookAgain returns how long Watch may wait before it checks again. If there is a leader, Watch may wait
// until that leader would have been silent for too long. The wait is bounded, so that Watch notices if this
// process was stopped.
func (e *Elections) lookAgain(leader uint32) time.Duration {
	switch {
	case leader == 0 && e.starts():
		return lookSoon
	case leader == 0:
		return look
	}
	return max(look, min(e.silenceLimit()-e.Raft.Silence(), e.Raft.Beat(e.Heartbeat/4)))
}

// silenceLimit is how long a leader may be silent.
func (e *Elections) silenceLimit() time.Duration { return e.Heartbeat * 5 / 4 }

func (e *Elections) replaceSilent(ctx context.Context, leader uint32) {
	m := e.Raft.moment()
	if e.turn(ctx, m, leader, Silent) && e.Raft.Silence() >= e.silenceLimit() {
		e.standAt(ctx, m, leader, Silent)
		pause(ctx, voteTime)
	}
}

// Succeed replaces a dead leader before its heartbeats time out. The voter with the longest log stands first,
// because it cannot lose. Among voters with equal logs, the voter with the lowest id stands first. The caller
// repeats the call while this server knows no other leader. If an election fails, fill() stands again.
func (e *Elections) Succeed(ctx context.Context, dead uint32) {
	m := moment{term: e.Raft.CurrentTerm()}
	if e.turn(ctx, m, dead, Dead) {
		e.standAt(ctx, m, dead, Dead)
	}
}

// turn() waits until better candidates have had their time. It returns false if the other servers' answers
// forbid this server to stand, or if anything has changed since the moment `m`.
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

// idle() waits for d. It returns true if nothing has happened by then: the moment is still m, and this server
// knows no leader other than the server `but`.
func (e *Elections) idle(ctx context.Context, d time.Duration, m moment, but uint32) bool {
	const step = time.Millisecond // check each step whether another server leads
	for ; d > 0; d -= step {
		if !pause(ctx, min(d, step)) || !e.Raft.isStill(m) || !e.Raft.NobodyLeadsBut(but) {
			return false
		}
	}
	return true
}

// standAt waits until raft has finished its work, then stands if nothing has happened since the moment `m`.
// Raft may be storing a vote for another server on a slow disk: if this server stood right after that, it
// would depose the server that this vote has elected.
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

// survey() asks all voters except the server `dead` (0: all voters). Answers take long on a busy machine, so
// survey() waits until it has enough answers or this server knows another leader.
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

// An election may fail. On a busy machine two servers may stand at once and split the votes; or the second
// server deposes the first and then cannot win, because the first server now has the longer log. Raft tries
// again only after one and a half to three heartbeat timeouts, and perhaps fails again. So servers without a
// leader ask each other, as they do when a leader has died.

// vacancy describes a period in which this server knows no leader.
type vacancy struct {
	moment moment
	since  time.Time     // start of the time in which raft was idle and nothing happened; zero: unknown
	took   time.Duration // how long raft was busy before the time `since`
	last   time.Time     // when this server last stood for election
	tries  int           // how many elections failed in quick succession
}

// patience returns how long an election may take. It grows with each failed election. A candidate waits for
// votes, and the voters write their votes to their disks. The time that raft was busy at this server shows
// how slow disks may be.
func (v *vacancy) patience(stands bool) time.Duration {
	d := voteTime
	if stands {
		d = 2 * max(d, v.took)
	}
	return d << min(v.tries, 3)
}

// starts() reports whether the whole cluster may be starting together with this server: this server has not
// seen an election yet.
func (e *Elections) starts() bool {
	return time.Since(e.Raft.Began) < e.Heartbeat && e.Raft.CurrentTerm() == e.term
}

// fill() stands for election if a majority of the voters, including this server, knows no leader and no
// election has been under way for a while. In a starting cluster fill() does not wait, because no election
// has been under way.
func (e *Elections) fill(ctx context.Context, v *vacancy) {
	if v.since.IsZero() || !e.Raft.isStill(v.moment) {
		// Raft may be writing a vote to the disk, and the vote counts only when it is there. So wait until
		// raft has finished, and note how long that took.
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
