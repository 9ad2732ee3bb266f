package elect

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// In a starting cluster the first voter in line stands as soon as a majority runs. The others wait for their
// turn.
func TestWatchInAStartingCluster(t *testing.T) {
	const at = time.Nanosecond // at once, without a wait
	runs := func(w *world, id uint32, after time.Duration) {
		w.others[id].status.Up = false
		time.AfterFunc(after, func() { w.others[id].set(func() { w.others[id].status.Up = true }) })
	}
	for _, c := range []struct {
		what              string
		self              uint32
		voters, nonvoters []uint32
		prepare           func(w *world)
		want              time.Duration
	}{
		{"all run", 2, []uint32{2, 3, 4}, []uint32{1}, func(*world) {}, at},
		{"another has a lower id", 2, []uint32{1, 2, 3}, nil, func(*world) {}, turnStep + turnTie},
		{"another has a longer log", 1, []uint32{1, 2, 3}, nil, func(w *world) {
			w.others[2].status.LastIndex = 7
		}, turnStep},
		{"one without a vote begins", 2, []uint32{2, 3}, []uint32{1}, func(w *world) {
			w.others[1].status.Up = false
		}, at},
		{"a majority runs", 1, []uint32{1, 2, 3}, nil, func(w *world) { w.others[2].status.Up = false }, at},
		{"a member leads", 1, []uint32{1, 2, 3}, nil, func(w *world) { w.others[3].status.Leader = 3 }, 0},
		{"a member begins", 1, []uint32{1, 2}, nil, func(w *world) { w.others[2].status.Up = false }, 0},
		{"a member runs after a while", 1, []uint32{1, 2}, nil, func(w *world) { runs(w, 2, heartbeat/2) },
			heartbeat / 2},
		{"a member does not answer", 1, []uint32{1, 2}, nil, func(w *world) { w.net.Cut("h2", "h1") }, 0},
		{"it has no vote", 2, []uint32{1}, []uint32{2}, func(*world) {}, 0},
	} {
		inWorld(t, c.what, c.self, c.voters, c.nonvoters, func(w *world) {
			c.prepare(w)
			go w.e.Watch(w.ctx)
			w.until(c.want)
		})
	}
	inWorld(t, "a lone member", 1, []uint32{1}, nil, func(w *world) {
		go w.e.Watch(w.ctx)
		if time.Sleep(look); w.e.Raft.State() != raft.Leader {
			w.t.Error("it does not lead")
		}
	})
	inWorld(t, "a member runs late", 1, []uint32{1, 2}, nil, func(w *world) {
		const late = 2 * heartbeat
		runs(w, 2, late)
		go w.e.Watch(w.ctx)
		got := w.stands(20 * heartbeat)
		expect.That(t, got >= late && got <= late+voteTime+2*look,
			"it stands after %v, want %v to %v", got, late, late+voteTime+2*look)
	})
}

// If a majority hears nothing from the leader, a follower stands for election. Before that it waits, so that
// a server with a better claim can stand.
func TestWatchReplacesASilentLeader(t *testing.T) {
	const silence = heartbeat * 5 / 4
	for _, c := range []struct {
		what    string
		self    uint32
		prepare func(w *world, o *other)
		want    time.Duration
	}{
		{"the other hears nothing", 1, func(_ *world, o *other) { o.hearsNothing() }, silence},
		{"the other hears the leader", 1, func(*world, *other) {}, 0},
		{"the other hears nothing after a while", 1, func(_ *world, o *other) {
			time.AfterFunc(3*heartbeat, func() { o.hearsNothing() })
		}, 3 * heartbeat},
		{"the other stands first, and does not stand", 2, func(_ *world, o *other) { o.hearsNothing() },
			silence + turnStep + turnTie},
		{"the other stands first, on a slow disk", 2, func(_ *world, o *other) {
			o.hearsNothing()
			o.set(func() { o.status.Stands = true })
		}, silence + deferTime},
		{"the other has a longer log", 1, func(_ *world, o *other) {
			o.hearsNothing()
			o.set(func() { o.status.LastIndex = 7 })
		}, 0},
		{"there is another leader in between", 2, func(w *world, o *other) {
			o.hearsNothing()
			time.AfterFunc(silence+turnStep, func() { w.leads(1, 6) })
		}, 0},
		{"the other does not answer", 1, func(w *world, _ *other) { w.net.Cut("h2", "h1") }, 0},
		{"the other's answer is slow", 1, func(_ *world, o *other) {
			o.hearsNothing()
			o.set(func() { o.slow = heartbeat / 2 })
		}, silence + heartbeat/2},
		{"the leader goes on", 1, func(w *world, o *other) {
			o.hearsNothing()
			for at := heartbeat; at < 20*heartbeat; at += heartbeat {
				time.AfterFunc(at, func() { w.leads(3, 5) })
			}
		}, 0},
	} {
		inWorld(t, c.what, c.self, []uint32{1, 2, 3}, nil, func(w *world) {
			o := w.others[3-c.self]
			w.leads(3, 5)
			c.prepare(w, o)
			go w.e.Watch(w.ctx)
			w.until(c.want)
		})
	}
}

// hearsNothing makes a server answer that it hears of no leader.
func (o *other) hearsNothing() {
	o.set(func() { o.status.Leader, o.status.Silent = 0, 10*heartbeat.Milliseconds() })
}

// If a cluster has no leader, a server stands for election. While it gets no vote, it stands again and again,
// after growing pauses.
func TestWatchFillsAVacancy(t *testing.T) {
	for _, c := range []struct {
		what    string
		self    uint32
		prepare func(w *world, o *other)
		want    time.Duration
	}{
		{"no other knows a leader", 1, func(*world, *other) {}, voteTime},
		{"the other has the lower id", 2, func(*world, *other) {}, voteTime + turnStep + turnTie},
		{"the others know a leader", 1, func(w *world, _ *other) {
			w.others[2].status.Leader, w.others[3].status.Leader = 3, 3
		}, 0},
		{"another leads", 1, func(w *world, _ *other) { w.others[3].status.Leader = 3 }, 0},
		{"the others begin", 1, func(w *world, _ *other) {
			w.others[2].status.Up, w.others[3].status.Up = false, false
		}, 0},
	} {
		inWorld(t, c.what, c.self, []uint32{1, 2, 3}, nil, func(w *world) {
			c.prepare(w, w.others[3-c.self])
			time.Sleep(heartbeat) // after this time the cluster no longer counts as starting
			go w.e.Watch(w.ctx)
			w.until(c.want)
		})
	}
	inWorld(t, "no vote is given", 1, []uint32{1, 2, 3}, nil, func(w *world) {
		go w.e.Watch(w.ctx)
		terms := func(within time.Duration) uint64 {
			was := w.e.Raft.CurrentTerm()
			time.Sleep(within)
			return w.e.Raft.CurrentTerm() - was
		}
		n := terms(2 * heartbeat)
		expect.That(t, n >= 5 && n <= 8, "%d terms begin within two heartbeats, want 5 to 8", n)
		terms(10 * heartbeat)
		n = terms(10 * heartbeat) // by now the pauses have grown
		expect.That(t, n >= 6 && n <= 14, "%d terms begin within the next ten heartbeats, want 6 to 14", n)
		for _, o := range w.others {
			o.set(func() { o.votes = true })
		}
		terms(5 * heartbeat)
		expect.Equal(t, terms(10*heartbeat), 0, "terms that begin after its election")
		expect.Equal(t, w.e.Raft.State(), raft.Leader, "its state once the others vote")
	})
}

// If the leader's process is gone, the first server in line stands for election at once. Some time later the
// next one stands, unless another server leads by then.
func TestSucceed(t *testing.T) {
	for _, c := range []struct {
		what    string
		self    uint32
		prepare func(w *world, o *other)
		want    time.Duration // 0: at once; negative: the server does not stand
	}{
		{"it is the first", 1, func(*world, *other) {}, 0},
		{"it is the second", 2, func(*world, *other) {}, turnStep + turnTie},
		{"the other is connected to the leader", 1, func(_ *world, o *other) { o.status.Linked = 3 }, -1},
		{"the other's process is gone", 1, func(_ *world, o *other) { o.port.Close() }, -1},
		{"the other leads before its turn", 2, func(w *world, _ *other) {
			time.AfterFunc(turnStep, func() { w.leads(1, 6) })
		}, -1},
		{"the other stands", 2, func(_ *world, o *other) { o.status.Stands = true }, deferTime},
		{"its context ends", 2, func(w *world, o *other) {
			o.status.Stands = true
			ctx, cancel := context.WithTimeout(w.ctx, turnStep)
			w.ctx = ctx
			time.AfterFunc(heartbeat, cancel)
		}, -1},
	} {
		inWorld(t, c.what, c.self, []uint32{1, 2, 3}, nil, func(w *world) {
			w.leads(3, 5)
			c.prepare(w, w.others[3-c.self])
			began := time.Now()
			w.e.Succeed(w.ctx, 3)
			took, stands := time.Since(began), w.stands(1) > 0
			expect.Equal(t, stands, c.want >= 0, "it stands")
			if stands {
				expect.That(t, took >= c.want && took <= c.want+60*time.Millisecond,
					"it stands after %v, want %v to 60 ms more", took, c.want)
			}
		})
	}
}

// A survey asks all voters except the leader, which is believed dead. Some answers can decide whether this
// server stands. The survey waits longer for those than for the others.
func TestSurvey(t *testing.T) {
	inWorld(t, "", 2, []uint32{1, 2, 3, 4}, []uint32{5}, func(w *world) {
		survey := func() (s Survey, took time.Duration) {
			began := time.Now()
			s = w.e.survey(w.ctx, 4, Silent)
			return s, time.Since(began)
		}
		mute := func(o *Opinion) bool { return o.Mute }
		s, took := survey()
		expect.That(t, s.Voter, "all answer: this server is not a voter")
		expect.Equal(t, s.Voters, 4, "all answer: voters")
		if expect.Equal(t, len(s.Opinions), 2, "all answer: opinions") {
			expect.Equal(t, s.count(mute), 0, "all answer: missing answers")
			expect.That(t, took <= askFirst, "all answer: it takes %v, want at most %v", took, askFirst)
		}
		w.others[1].set(func() { w.others[1].slow = heartbeat / 2 })
		s, took = survey()
		expect.Equal(t, s.count(mute), 0, "an answer that may decide is slow: missing answers")
		expect.That(t, took >= heartbeat/2,
			"an answer that may decide is slow: the survey takes %v, want at least %v", took, heartbeat/2)
		w.others[1].set(func() { w.others[1].slow = time.Hour })
		s, took = survey()
		expect.Equal(t, s.count(mute), 1, "an answer that may decide does not come: missing answers")
		expect.That(t, took >= heartbeat && took <= heartbeat*5/4,
			"an answer that may decide does not come: the survey takes %v, want %v to %v",
			took, heartbeat, heartbeat*5/4)
		expect.Equal(t, s.count(func(o *Opinion) bool { return o.Mute && o.Lower && !o.Gone }), 1,
			"an answer that may decide does not come: servers with a lower id that may live")
		began := time.Now()
		s = w.e.survey(w.ctx, 4, Dead) // even without the missing answer the server may stand
		took = time.Since(began)
		expect.Equal(t, s.count(mute), 1, "an answer that cannot decide does not come: missing answers")
		expect.That(t, took >= askFirst && took <= 2*askFirst+askAgain,
			"an answer that cannot decide does not come: the survey takes %v, want %v to %v",
			took, askFirst, 2*askFirst+askAgain)
		time.AfterFunc(heartbeat/4, func() { w.leads(3, 7) })
		_, took = survey()
		expect.That(t, took >= heartbeat/4 && took <= heartbeat/2,
			"another server leads: the survey takes %v, want %v to %v", took, heartbeat/4, heartbeat/2)
	})
	inWorld(t, "without a vote", 2, []uint32{1, 3}, []uint32{2}, func(w *world) {
		s := w.e.survey(w.ctx, 3, Dead)
		expect.That(t, !s.Voter, "a server without a vote counts as a voter")
		expect.Equal(t, s.Voters, 2, "voters")
		expect.Equal(t, len(s.Opinions), 1, "opinions")
	})
}

// A server stands only if nothing has changed since its decision. If it already stands, it first withdraws,
// and then stands in another term.
func TestStandAt(t *testing.T) {
	inWorld(t, "", 1, []uint32{1, 2, 3}, nil, func(w *world) {
		r := w.e.Raft
		w.leads(3, 5)
		m := r.moment()
		w.leads(3, 5)
		if w.e.standAt(w.ctx, m, 3, Silent); w.stands(1) > 0 {
			t.Error("it stands although it has heard of the leader")
		}
		if w.e.standAt(w.ctx, r.moment(), 2, Silent); w.stands(1) > 0 {
			t.Error("it stands to succeed server 2, although server 3 leads")
		}
		if w.e.standAt(w.ctx, r.moment(), 3, Silent); w.stands(1) == 0 {
			t.Error("it does not stand")
		}
		m = r.moment()
		w.e.standAt(w.ctx, m, 0, Vacant)
		expect.That(t, w.stands(1) != 0, "it stood in term %d, and does not stand again", m.term)
		expect.Equal(t, r.CurrentTerm(), m.term+2, "the term in which it stands again")
		m.term--
		now := r.CurrentTerm()
		expect.That(t, !r.withdraw(m), "it withdraws from a term that is over")
		expect.Equal(t, r.CurrentTerm(), now, "the term, after a withdrawal from a term that is over")
		w.elected()
		expect.That(t, !r.withdraw(r.moment()), "a leader withdraws")
		expect.Equal(t, r.State(), raft.Leader, "its state, after a leader's withdrawal")
	})
}

// A server that forgets its leader enters a new term. In this term it may vote for another server, and it may
// stand later. Forget does not drop a leader of a later term.
func TestForget(t *testing.T) {
	inWorld(t, "", 1, []uint32{1, 2, 3}, nil, func(w *world) {
		r := w.e.Raft
		w.leads(3, 5)
		r.Forget(4)
		expect.Equal(t, r.CurrentTerm(), 5, "the term, after the leader of term 4 was forgotten")
		expect.That(t, !r.NobodyLeadsBut(0), "it forgets the leader of a later term")
		r.Forget(5)
		expect.Equal(t, r.CurrentTerm(), 6, "the term, after its leader was forgotten")
		expect.That(t, r.NobodyLeadsBut(0), "it does not forget its leader")
		expect.Equal(t, r.State(), raft.Follower, "its state, after its leader was forgotten")
		var resp raft.RequestVoteResponse
		id := peer.ServerID(2)
		req := &raft.RequestVoteRequest{Term: 6, LastLogTerm: 5, LastLogIndex: 9, RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(addr(2))}}
		must.OK(t, w.others[2].trans.RequestVote(peer.ServerID(1), r.Self, req, &resp))
		expect.That(t, resp.Granted, "it does not vote")
		time.Sleep(heartbeat) // after this time the cluster no longer counts as starting
		go w.e.Watch(w.ctx)
		w.until(voteTime)
	})
	inWorld(t, "without a vote", 1, []uint32{2, 3}, []uint32{1}, func(w *world) {
		w.leads(3, 5)
		w.e.Raft.Forget(5)
		expect.Equal(t, w.e.Raft.CurrentTerm(), 5, "the term at a server without a vote, which asks for none")
	})
}

// A server that waits for its turn stops waiting when it hears of the leader, when another server leads, or
// when its context ends.
func TestIdle(t *testing.T) {
	inWorld(t, "", 1, []uint32{1, 2, 3}, nil, func(w *world) {
		ended, cancel := context.WithCancel(w.ctx)
		cancel()
		for _, c := range []struct {
			what   string
			ctx    context.Context
			happen func()
			but    uint32
			want   bool
		}{
			{"nothing happens", w.ctx, func() {}, 3, true},
			{"the server ends", ended, func() {}, 3, false},
			{"the leader is heard of", w.ctx, func() { w.leads(3, 5) }, 3, false},
			{"another leads", w.ctx, func() {}, 2, false},
		} {
			w.leads(3, 5)
			m, began := w.e.Raft.moment(), time.Now()
			time.AfterFunc(heartbeat/2, c.happen)
			got := w.e.idle(c.ctx, heartbeat, m, c.but)
			expect.Equal(t, got, c.want, "%s: it waits to the end", c.what)
			expect.Equal(t, time.Since(began) >= heartbeat, c.want, "%s: the whole time has passed", c.what)
			time.Sleep(heartbeat)
		}
	})
}

// A server gives an election more time after each failed election, up to eight times as much. A candidate
// also gives an election more time if disks are slow.
func TestPatienceGrows(t *testing.T) {
	for _, c := range []struct {
		v      vacancy
		stands bool
		want   time.Duration
	}{
		{vacancy{}, false, voteTime}, {vacancy{}, true, 2 * voteTime}, {vacancy{took: time.Second}, true,
			2 * time.Second},
		{vacancy{tries: 2}, false, 4 * voteTime}, {vacancy{tries: 9}, false, 8 * voteTime},
	} {
		expect.Equal(t, c.v.patience(c.stands), c.want, "%+v, stands %v", c.v, c.stands)
	}
}
