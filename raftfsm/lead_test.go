package raftfsm

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/leading"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A term leaves nothing behind: its deadlines end with it, and the next term begins with a deadline for each
// session.
func TestR12TermLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	a := newAsker(t, n)
	var tm *leading.Term
	leads := func() bool { tm = n.leader.Term(); return tm != nil && n.fsm.Deadlines() == tm.Deadlines() }
	eventually(t, "it leads", leads)
	won := n.leader.Won()
	expect.Equal(t, tm.Number(), n.raft.CurrentTerm(), "number of the term")
	expect.That(t, won > 0, "a server that leads has won no term")
	expect.That(t, tm.Deadlines().All()[a.s.Session.ID] > 0, "a session has no deadline")
	n.leadership.Note(false) // as raft does when the server loses the leadership
	eventually(t, "it leads no more", func() bool { return n.leader.Term() == nil })
	eventually(t, "its deadlines are gone", func() bool { return n.fsm.Deadlines() == nil })
	expect.That(t, !tm.Heard(a.s.Session.ID), "the term goes on")
	n.leadership.Note(true)
	former := tm
	eventually(t, "it leads again", leads)
	expect.That(t, tm != former, "the former term goes on")
	expect.That(t, n.leader.Won() > won, "terms won: %d, and %d before", n.leader.Won(), won)
	expect.That(t, tm.Deadlines().All()[a.s.Session.ID] > 0, "a session has no deadline in the next term")
	must.Equal(t, a.create("/again"), jute.OK)
}
