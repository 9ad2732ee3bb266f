package raftfsm

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// After a term, none of its data count. The next term begins with every existing session.
func TestR12TermLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	a := newAsker(t, n)
	var tm *leading.Term
	leads := func() bool { tm = n.leader.Term(); return tm != nil && n.fsm.Deadlines() == tm.Deadlines() }
	eventually(t, "it leads", leads)
	won := n.leader.Won()
	expect.Equal(t, tm.Number(), n.raft.CurrentTerm(),
		"term %d, %d terms: tm.Number()", tm.Number(), won)
	expect.That(t, won > 0, "term %d, %d terms: want won > 0", tm.Number(), won)
	expect.That(t, tm.Deadlines().All()[a.s.Session.ID] > 0, "a session has no deadline")
	n.leadership.Note(false) // as raft would
	eventually(t, "it leads no more", func() bool { return n.leader.Term() == nil })
	eventually(t, "its deadlines are gone", func() bool { return n.fsm.Deadlines() == nil })
	expect.That(t, !tm.Heard(a.s.Session.ID), "the term goes on")
	n.leadership.Note(true)
	former := tm
	eventually(t, "it leads again", leads)
	expect.That(t, tm != former, "%d terms: want tm != former", n.leader.Won())
	expect.That(t, n.leader.Won() > won, "%d terms: want n.leader.Won() > won", n.leader.Won())
	expect.That(t, tm.Deadlines().All()[a.s.Session.ID] > 0, "a session has no deadline in the next term")
	must.Equal(t, a.create("/again"), jute.OK)
}
