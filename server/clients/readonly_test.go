package clients

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// withoutLeader returns a server that knows no leader, and how to connect to it.
func withoutLeader(t *testing.T, st *state.State) (s *Server, dial func() *wire.Conn) {
	s, _ = quiet(t, options.Options{MaxSessionTimeout: 10 * time.Second})
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() { s.CutOff(); expect.OK(t, <-served) })
	s.UseMeanwhile(still{st})
	s.ReadOnly(true)
	return s, func() *wire.Conn {
		c := must.Get(wire.Dial(ln.Addr().String()))(t)
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// Without a leader a server admits clients that ask for a read-only session, either a new one or one that it
// knows. It does not answer clients whose sessions it cannot know.
func TestSessionsWithoutALeader(t *testing.T) {
	st := state.New("test")
	password := [jute.PasswordSize]byte{1, 2, 3}
	known := st.Sessions().Create(6000, password, 1, "10.0.0.1", 0)
	s, dial := withoutLeader(t, st)
	for _, x := range []struct {
		name     string
		readOnly bool
		session  int64
		password []byte
		zxid     int64
		why      ends.Reason // ends.None: it has a session
	}{
		{"a new session", true, 0, password[:], 0, ends.None},
		{"a session for writes", false, 0, password[:], 0, ends.Serving},
		{"a known session", true, known.ID, password[:], 0, ends.None},
		{"a known session for writes", false, known.ID, password[:], 0, ends.Serving},
		{"another password", true, known.ID, make([]byte, jute.PasswordSize), 0, ends.Serving},
		{"an unknown session", true, known.ID + 1, password[:], 0, ends.Serving},
		{"no password", true, known.ID, nil, 0, ends.Gone},
		{"a client that has seen more", true, 0, password[:], 1, ends.Behind},
	} {
		c := dial()
		hello := wire.NewSession(5000)
		hello.ReadOnly, hello.SessionID, hello.Password, hello.LastZxidSeen = x.readOnly, x.session, x.password, x.zxid
		counted := s.counts.ends[x.why].Load()
		err := c.Connect(hello)
		if x.why != ends.None {
			expect.Fails(t, err, "%s: it is let in", x.name)
			eventually(t, fmt.Sprint("the end of ", x.name),
				func() bool { return s.counts.ends[x.why].Load() == counted+1 })
			continue
		}
		must.OK(t, err, "%s", x.name)
		got := c.Session
		expect.That(t, got.ReadOnly, "%s: %+v: want got.ReadOnly", x.name, got)
		expect.That(t, got.HasReadOnly, "%s: %+v: want got.HasReadOnly", x.name, got)
		expect.Equal(t, got.Timeout, 5000, "%s: got.Timeout", x.name)
		if x.session == 0 {
			expect.That(t, got.ID < 0, "%s: the id %#x may be one of the log", x.name, got.ID)
		} else {
			expect.Equal(t, got.ID, known.ID)
		}
		alive(t, c)
	}
	expect.Equal(t, s.metrics.ClosedNotServing.Load(), 2, "clients that were turned away before their session")
	s.ReadOnly(false)
	eventually(t, "no connection left", func() bool { return len(s.all()) == 0 })
	expect.Fails(t, dial().Connect(wire.NewSession(5000)), "a client of a server that serves no reads either")
	expect.Equal(t, s.metrics.ClosedNotServing.Load(), 3, "clients that were turned away")
}

// A read-only session reads and pings. A request that would change something is refused, and the session
// lives on.
func TestRequestsWithoutALeader(t *testing.T) {
	st := state.New("test")
	password := [jute.PasswordSize]byte{1}
	known := st.Sessions().Create(6000, password, 1, "10.0.0.1", 0)
	_, dial := withoutLeader(t, st)
	for _, id := range []int64{0, known.ID} {
		c := dial()
		hello := wire.NewSession(5000)
		hello.ReadOnly, hello.SessionID, hello.Password = true, id, password[:]
		must.OK(t, c.Connect(hello))
		call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/", true))
		call(t, c, jute.OK, jute.OpPing, nil)
		call(t, c, jute.OK, jute.OpSetWatches, wire.SetWatches(0, []string{"/"}, nil, nil))
		call(t, c, jute.OK, jute.OpWhoAmI, nil)
		call(t, c, jute.NotReadOnly, jute.OpCreate, wire.Create("/a", nil, jute.WorldAnyone, 0))
		call(t, c, jute.NotReadOnly, jute.OpSync, wire.Path("/"))
		call(t, c, jute.NotReadOnly, jute.OpCheck, wire.PathVersion("/", -1))
		call(t, c, jute.NotReadOnly, jute.OpReconfig, nil)
		if id != 0 { // it lives on where there is a leader
			call(t, c, jute.NotReadOnly, jute.OpCloseSession, nil)
			alive(t, c)
			continue
		}
		call(t, c, jute.OK, jute.OpCloseSession, nil)
		must.OK(t, c.Closed())
	}
}

// refusing is a replica that takes no requests.
type refusing struct{ still }

func (refusing) Propose(state.Request, state.Waiter) error { return errors.New("no") }

// A request that cannot be proposed ends its connection, and a request that comes too late is not proposed.
func TestRequestsThatAreNotProposed(t *testing.T) {
	s, c := quiet(t, options.Options{})
	c.replica = refusing{still{state.New("test")}}
	expect.That(t, !c.propose(outbox.Pending{Xid: 1, Op: jute.OpSync}, state.Request{}), "it is proposed")
	expect.Equal(t, c.out.Look().State, "dead", "c.out.Look().State")
	expect.Equal(t, c.out.Look().Why, ends.Serving, "c.out.Look().Why")
	c.replica = still{state.New("test")} // which panics
	expect.That(t, !c.propose(outbox.Pending{Xid: 2, Op: jute.OpSync}, state.Request{}),
		"it is proposed, too late")
	expect.Equal(t, c.out.Pending(), 1)
	c = connFrom(s, c.from)
	c.replica = refusing{still{state.New("test")}}
	expect.That(t, !c.writeOp(1, jute.OpCloseSession, nil),
		"the end of a session: want !c.writeOp(1, jute.OpCloseSession, nil)")
	expect.That(t, c.out.Look().Closing, "the end of a session: want c.out.Look().Closing")
}

// What an outcome does to the connection of its request.
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
		c.out.Hush() // no flusher is to come
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
		expect.Equal(t, s.counts.refused.Load(), map[bool]int64{true: 1}[x.state == "ending" &&
			x.why == ends.Gone],
			"%s: sessions refused", x.name)
	}
}

// Reads are answered together, so many at a time, and until they have cost so much.
func TestReadsAreAnsweredTogether(t *testing.T) {
	for _, x := range []struct {
		name  string
		n     int
		op    jute.OpCode
		body  wire.Body
		views int
	}{
		{"one", 1, jute.OpExists, wire.PathWatch("/", false), 1},
		{"as many as may", maxRun, jute.OpExists, wire.PathWatch("/", false), 1},
		{"one more", maxRun + 1, jute.OpExists, wire.PathWatch("/", false), 2},
		{"many", 10 * maxRun, jute.OpGetData, wire.PathWatch("/", false), 10},
	} {
		s, c := quiet(t, options.Options{})
		g := &glances{Replica: still{state.New("test")}}
		c.replica = g
		for xid := range int32(x.n) {
			c.reader.in.Put(wire.AppendRequest(nil, xid, x.op, x.body))
		}
		expect.Equal(t, c.frames(), ends.None, "%s", x.name)
		expect.Equal(t, g.n.Load(), int64(x.views), "%s: holds of the lock", x.name)
		expect.Equal(t, c.reader.in.Len(), 0, "%s: bytes that no read took", x.name)
		expect.Equal(t, s.metrics.PacketsReceived.Load(), int64(x.n),
			"%s: s.metrics.PacketsReceived.Load()", x.name)
		expect.Equal(t, c.reads.cost, 0, "%s: c.reads.cost", x.name)
	}
}

// An outcome is written once its batch is applied. An unknown outcome has no batch and is written at once.
func TestOutcomesAreWrittenWithTheirBatch(t *testing.T) {
	s, c := quiet(t, options.Options{})
	waiting := func() int {
		n, _ := s.outboxes.Due()
		return n
	}
	c.out.Push(outbox.Pending{Xid: 1, Op: jute.OpSync})
	c.Done(&state.Outcome{}, state.New("test"))
	expect.That(t, waiting() == 1 && s.batch != 0, "%d connections wait, the batch is of %v", waiting(), s.batch)
	s.Applied()
	expect.That(t, waiting() == 0 && s.batch == 0, "%d connections wait, the batch is of %v", waiting(), s.batch)
	c = connFrom(s, c.from)
	c.out.Push(outbox.Pending{Xid: 1, Op: jute.OpSync})
	c.Done(&state.Outcome{Unknown: true}, nil)
	expect.That(t, waiting() == 0 && s.batch == 0, "%d connections wait, the batch is of %v", waiting(), s.batch)
}
