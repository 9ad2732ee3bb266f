package raftfsm

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A term that is over is the server's no longer, and the next one begins with every session there is.
func TestR12TermLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	a := newAsker(t, n)
	var tm *term
	leads := func() bool { tm = n.term.Load(); return tm != nil && n.fsm.tracker.Load() == tm.tracker }
	eventually(t, "it leads", leads)
	won := n.won.Load()
	expect.Equal(t, tm.number, n.raft.CurrentTerm(),
		"term %d, %d terms: tm.number", tm.number, won)
	expect.That(t, won > 0, "term %d, %d terms: want won > 0", tm.number, won)
	expect.That(t, tm.tracker.deadlines()[a.s.Session.ID] > 0, "a session has no deadline")
	n.leadership.Note(false) // as raft would
	eventually(t, "it leads no more", func() bool { return n.term.Load() == nil })
	eventually(t, "its deadlines are gone", func() bool { return n.fsm.tracker.Load() == nil })
	expect.That(t, tm.ctx.Err() != nil, "the term goes on")
	expect.That(t, !tm.links.add(&inLink{}), "it takes links")
	tm.nudger.setFollowers([]raft.Server{{ID: "2"}})
	expect.Equal(t, len(tm.nudger.followers), 0, "followers that are nudged")
	n.leadership.Note(true)
	former := tm
	eventually(t, "it leads again", leads)
	expect.That(t, tm != former, "%d terms: want tm != former", n.won.Load())
	expect.That(t, n.won.Load() > won, "%d terms: want n.won.Load() > won", n.won.Load())
	expect.That(t, tm.tracker.deadlines()[a.s.Session.ID] > 0, "a session has no deadline in the next term")
	must.Equal(t, a.create("/again"), jute.OK)
}

// A wait of a create is as long as an entry takes, of late.
func TestEntriesAreTimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := passing(t)
		h.took = 0
		for _, c := range []struct{ takes, took time.Duration }{
			{8 * time.Millisecond, 8 * time.Millisecond}, {16 * time.Millisecond, 9 * time.Millisecond},
			{time.Millisecond, 8 * time.Millisecond},
		} {
			time.Sleep(time.Second)
			h.proposed()
			time.Sleep(c.takes)
			h.t.n.fsm.passedOn.Store(true)
			h.applied()
			expect.Equal(t, h.took, c.took)
			expect.That(t, h.due, "a hand-off is due: %v: want h.due", h.due)
			expect.That(t, !h.t.n.fsm.passedOn.Load(),
				"a hand-off is due: %v: want !h.t.n.fsm.passedOn.Load()", h.due)
		}
		h.applied()
		expect.That(t, !h.due, "a hand-off is due")
	})
}

// Followers of a leader are those of the newest configuration, at their newest addresses.
func TestFollowersThatAreNudged(t *testing.T) {
	t.Parallel()
	tm := &term{n: &Node{id: 1, fsm: newFSM(1, "c", new(watcher), nil)}, number: 5}
	g := newNudger(tm)
	server := func(id int, addr string) raft.Server {
		return raft.Server{ID: raft.ServerID(fmt.Sprint(id)), Address: raft.ServerAddress(addr)}
	}
	g.setFollowers([]raft.Server{server(1, "a"), server(2, "b"), server(3, "c")})
	must.Equal(t, len(g.followers), 2, "followers")
	two, three := g.followers["2"], g.followers["3"]
	g.setFollowers([]raft.Server{server(1, "a"), server(2, "b"), server(3, "moved"), server(4, "d")})
	if expect.Equal(t, len(g.followers), 3,
		"a follower that stays is another: len(g.followers)") {
		expect.Equal(t, g.followers["2"], two, "a follower that stays is another")
	}
	expect.That(t, g.followers["3"] != three,
		"a follower that has moved is the same: want g.followers[\"3\"] != three")
	expect.Equal(t, g.followers["3"].addr, "moved",
		"a follower that has moved is the same")
	_, open := <-three.ch
	expect.That(t, !open, "a follower at its former address is nudged")
	g.setFollowers([]raft.Server{server(1, "a"), server(4, "d")})
	if expect.Equal(t, len(g.followers), 1, "followers %v: len(g.followers)", g.followers) {
		expect.That(t, g.followers["4"] != nil,
			"followers %v: want g.followers[\"4\"] != nil", g.followers)
	}
	g.close()
	expect.Equal(t, len(g.followers), 0, "followers of a term that is over")
	g.setFollowers([]raft.Server{server(2, "b")})
	expect.Equal(t, len(g.followers), 0, "followers of a term that is over")
	tm.n.wg.Wait() // the goroutines of all have ended
}

// An entry is told of once, and a newer one takes the place of one that still waits.
func TestNudgesTellTheNewest(t *testing.T) {
	t.Parallel()
	tm := &term{n: &Node{id: 1, fsm: newFSM(1, "c", new(watcher), nil)}, number: 5}
	g := newNudger(tm)
	leads := true
	g.leads = func() bool { return leads }
	f := &nudged{ch: make(chan state.Position, 1)}
	g.followers["2"] = f
	at := func(index uint64) {
		tm.n.fsm.index.Store(index)
		tm.n.fsm.term.Store(5)
	}
	waits := func(want uint64) {
		t.Helper()
		select {
		case got := <-f.ch:
			expect.Equal(t, got, state.Position{Index: want, Term: 5})
		default:
			expect.Equal(t, 0, want, "told of nothing")
		}
	}
	at(7)
	g.tell()
	waits(7)
	expect.That(t, !g.all, "all are told again")
	g.all = true
	g.tell()
	waits(0) // it was told
	expect.That(t, g.all, "who is to be told is forgotten without an entry")
	at(8)
	g.tell()
	at(9)
	g.asked[2] = true
	g.tell()
	expect.Equal(t, len(g.asked), 0, "servers that asked")
	waits(9)
	waits(0)
	at(10)
	g.tellRest()
	waits(10)
	g.tellRest()
	waits(0)
	at(11)
	leads = false
	g.tellRest()
	waits(0)
	leads = true
	g.closed = true
	g.tellRest()
	waits(0)
	g.closed = false
	g.tellRest()
	waits(11)
}

// How far another server is, by its newest word in the newest term.
func TestNewestWordOfAFollowerCounts(t *testing.T) {
	t.Parallel()
	var s stored
	b := s.of(2)
	expect.Equal(t, s.of(2), b, "servers are not told apart: s.of(2)")
	expect.That(t, s.of(3) != b, "servers are not told apart: want s.of(3) != b")
	for _, c := range []struct{ now, is state.Position }{
		{state.Position{Index: 5, Term: 2}, state.Position{Index: 5, Term: 2}},
		{state.Position{Index: 4, Term: 2}, state.Position{Index: 5, Term: 2}},
		{state.Position{Index: 9, Term: 1}, state.Position{Index: 5, Term: 2}},
		{state.Position{Index: 6, Term: 2}, state.Position{Index: 6, Term: 2}},
		{state.Position{Index: 1, Term: 3}, state.Position{Index: 1, Term: 3}},
	} {
		b.note(c.now)
		expect.Equal(t, b.at, c.is)
		expect.Equal(t, len(b.grown), 1, "news")
		expect.That(t, b.has(c.is), "it has up to %+v: want b.has(c.is)", c.is)
		expect.That(t, !b.has(state.Position{Index: c.is.Index + 1, Term: c.is.Term}),
			"it has up to %+v", c.is)
		expect.That(t, !b.has(state.Position{Index: c.is.Index, Term: c.is.Term - 1}),
			"it has up to %+v", c.is)
		expect.That(t, b.has(state.Position{Index: c.is.Index - 1, Term: c.is.Term}),
			"it has up to %+v", c.is)
		<-b.grown
	}
}
