package conn

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// If the replica refuses a request, the connection of the request ends. If the connection has already ended,
// the request is not proposed.
func TestRequestsThatAreNotProposed(t *testing.T) {
	s, c := quiet(t, options.Options{})
	c.replica = refusing{still{state.New("test")}}
	expect.That(t, !c.propose(outbox.Pending{Xid: 1, Op: jute.OpSync}, state.Request{}), "it is proposed")
	expect.Equal(t, c.out.Look().State, "dead", "c.out.Look().State")
	expect.Equal(t, c.out.Look().Why, ends.Serving, "c.out.Look().Why")
	c.replica = still{state.New("test")} // this replica panics if a request is proposed
	expect.That(t, !c.propose(outbox.Pending{Xid: 2, Op: jute.OpSync}, state.Request{}),
		"it is proposed, too late")
	expect.Equal(t, c.out.Pending(), 1)
	// If the request for a session is not proposed, the session does not count towards the limit.
	for _, ended := range []bool{false, true} {
		c = connFrom(s, c.from)
		c.replica = refusing{still{state.New("test")}}
		if ended { // the connection ends between the count and the proposal
			c.out.Close(ends.Handshake)
		}
		c.countCreating(1)
		expect.That(t, !c.propose(outbox.Pending{Op: state.OpCreateSession},
			state.Request{Op: state.OpCreateSession}), "it is proposed")
		expect.Equal(t, s.Creating(), 0, "sessions to come")
	}
	c = connFrom(s, c.from)
	c.replica = refusing{still{state.New("test")}}
	expect.That(t, !c.writeOp(1, jute.OpCloseSession, nil),
		"the end of a session: want !c.writeOp(1, jute.OpCloseSession, nil)")
	expect.That(t, c.out.Look().Closing, "the end of a session: want c.out.Look().Closing")
}

// A known outcome is answered. If the outcome is unknown or refused, the connection ends. The address pays
// the real cost in place of the estimate.
func TestOutcomes(t *testing.T) {
	st := state.New("test")
	for _, x := range []struct {
		name   string
		op     jute.OpCode
		out    state.Outcome
		state  string
		why    ends.Reason
		frames int
	}{
		{"done", jute.OpSync, state.Outcome{Reply: []byte("record"), Zxid: 5}, "open", ends.None, 1},
		{"failed", jute.OpSync, state.Outcome{Code: jute.NoNode, Reply: []byte("record"), Zxid: 5},
			"open", ends.None, 1},
		{"unknown", jute.OpSync, state.Outcome{Unknown: true}, "dead", ends.Unknown, 0},
		{"refused", jute.OpSync, state.Outcome{Refused: true}, "dead", ends.Gone, 0},
		{"the end of a session", jute.OpCloseSession, state.Outcome{}, "ending", ends.Session, 1},
		{"a barrier", state.OpBarrier, state.Outcome{}, "open", ends.None, 0},
		{"no session", state.OpAttach, state.Outcome{Code: jute.SessionExpired}, "ending", ends.Gone, 1},
		{"a session that is refused", state.OpAttach, state.Outcome{Refused: true}, "ending",
			ends.Gone, 1},
		{"an unknown session", state.OpCreateSession, state.Outcome{Unknown: true}, "dead",
			ends.Unknown, 0},
	} {
		s, c := quiet(t, options.Options{})
		owe(c.from, 100)
		c.out.Push(outbox.Pending{Xid: 3, Op: x.op, Est: 7})
		x.out.Steps = 50
		c.out.Hush() // keeps the flushers from writing the outbox
		if x.out.Unknown {
			c.Done(&x.out, nil)
		} else {
			c.Done(&x.out, st)
		}
		o := &c.out
		expect.Equal(t, o.Look().State, x.state, "%s: o.state", x.name)
		expect.Equal(t, o.Look().Why, x.why, "%s: o.why", x.name)
		expect.Equal(t, o.Look().Frames, x.frames, "%s: o.frames", x.name)
		expect.Equal(t, o.Pending(), 0, "%s: o.pendingLen()", x.name)
		expect.Equal(t, c.from.Account.Owed(), 100+50-7, "%s: charged", x.name)
		if x.op == jute.OpSync && x.frames == 1 {
			f := must.Get(wire.DecodeFrame(o.Look().Buf[4:]))(t)
			want := map[bool]string{true: "record", false: ""}[x.out.Code == jute.OK]
			expect.Equal(t, f.Xid, 3, "%s: f.Xid", x.name)
			expect.Equal(t, f.Zxid, 5, "%s: f.Zxid", x.name)
			expect.Equal(t, f.Code, x.out.Code, "%s: f.Code", x.name)
			expect.Equal(t, string(f.Body), want, "%s: string(f.Body)", x.name)
		}
		expect.Equal(t, s.Counts.Refused.Load(), map[bool]int64{true: 1}[x.state == "ending" &&
			x.why == ends.Gone],
			"%s: sessions refused", x.name)
	}
}

// An outcome is written as soon as its batch has been applied. An unknown outcome has no batch and is written
// at once.
func TestOutcomesAreWrittenWithTheirBatch(t *testing.T) {
	s, c := quiet(t, options.Options{})
	waiting := func() int {
		n, _ := s.Outboxes.Due()
		return n
	}
	c.out.Push(outbox.Pending{Xid: 1, Op: jute.OpSync})
	c.Done(&state.Outcome{}, state.New("test"))
	expect.Equal(t, waiting(), 1, "waiting")
	expect.That(t, s.batch != 0, "%d connections wait, the batch is of %v", waiting(), s.batch)
	s.Applied()
	expect.Equal(t, waiting(), 0, "waiting")
	expect.Equal(t, s.batch, 0, "batch")
	c = connFrom(s, c.from)
	c.out.Push(outbox.Pending{Xid: 1, Op: jute.OpSync})
	c.Done(&state.Outcome{Unknown: true}, nil)
	expect.Equal(t, waiting(), 0, "waiting")
	expect.Equal(t, s.batch, 0, "batch")
}
