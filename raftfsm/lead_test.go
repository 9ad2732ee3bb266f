package raftfsm

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A term that is over is the server's no longer, and the next one begins with every session there is.
func TestR12TermLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	a := newAsker(t, n)
	var tm *term
	leads := func() bool { tm = n.term.Load(); return tm != nil && n.fsm.Deadlines() == tm.tracker }
	eventually(t, "it leads", leads)
	won := n.won.Load()
	expect.Equal(t, tm.number, n.raft.CurrentTerm(),
		"term %d, %d terms: tm.number", tm.number, won)
	expect.That(t, won > 0, "term %d, %d terms: want won > 0", tm.number, won)
	expect.That(t, tm.tracker.All()[a.s.Session.ID] > 0, "a session has no deadline")
	n.leadership.Note(false) // as raft would
	eventually(t, "it leads no more", func() bool { return n.term.Load() == nil })
	eventually(t, "its deadlines are gone", func() bool { return n.fsm.Deadlines() == nil })
	expect.That(t, tm.ctx.Err() != nil, "the term goes on")
	expect.That(t, !tm.links.Add(&followers.Link{}), "it takes links")
	n.leadership.Note(true)
	former := tm
	eventually(t, "it leads again", leads)
	expect.That(t, tm != former, "%d terms: want tm != former", n.won.Load())
	expect.That(t, n.won.Load() > won, "%d terms: want n.won.Load() > won", n.won.Load())
	expect.That(t, tm.tracker.All()[a.s.Session.ID] > 0, "a session has no deadline in the next term")
	must.Equal(t, a.create("/again"), jute.OK)
}

// A wait of a create is as long as an entry takes, of late.
func TestEntriesAreTimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := passing(t)
		h.took = 0
		a := &applied.State{FSM: h.t.n.fsm, Last: h.t.n.fsm.Index()}
		a.Entry(applied.NewSession())
		client := a.Sessions()[0]
		do := func(op jute.OpCode, body []byte) {
			a.Entry(state.Request{Session: client.ID, Gen: client.Gen, Op: op, Body: body})
		}
		for _, path := range []string{"/lock", "/lock/1", "/lock/2", "/lock/3", "/lock/4"} {
			do(jute.OpCreate, createBody(path, 0))
		}
		for i, c := range []struct{ takes, took time.Duration }{
			{8 * time.Millisecond, 8 * time.Millisecond}, {16 * time.Millisecond, 9 * time.Millisecond},
			{time.Millisecond, 8 * time.Millisecond},
		} {
			time.Sleep(time.Second)
			h.proposed()
			time.Sleep(c.takes)
			do(jute.OpDelete, jute.AppendInt(jute.AppendString(nil, fmt.Sprint("/lock/", i+1)), -1))
			h.applied()
			expect.Equal(t, h.took, c.took)
			expect.That(t, h.due, "a hand-off is due: %v: want h.due", h.due)
			expect.That(t, !a.PassedOn(), "the same hand-off is due again")
		}
		h.applied()
		expect.That(t, !h.due, "a hand-off is due")
	})
}
