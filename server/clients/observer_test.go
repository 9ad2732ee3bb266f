package clients

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

func TestSessionMovedClosesOlderGenerationsOnly(t *testing.T) {
	r := newRig(t, options.Options{})
	a, b := r.client(), r.client()
	// This is the generation that the connection has, so its session has not moved.
	r.srv.SessionMoved(a.Session.ID, 1)
	r.srv.SessionMoved(b.Session.ID, 2)
	r.srv.SessionMoved(4711, 9)
	r.srv.Applied()
	must.OK(t, b.Closed())
	alive(t, a)
	// The requests that the old connection had under way are refused, not answered.
	r.valve.close()
	must.OK(t, a.SendXid(1, jute.OpCreate, wire.Create("/late", nil, jute.WorldAnyone, 0)))
	eventually(t, "held", func() bool { return r.valve.waiting() == 1 })
	c := r.dial()
	must.OK(t, c.WriteRaw(wire.AppendConnectRequest(nil, wire.Attach(a.Session, 0))))
	eventually(t, "both held", func() bool { return r.valve.waiting() == 2 })
	r.valve.mu.Lock()
	slices.Reverse(r.valve.held) // as if the create had come through another server
	r.valve.mu.Unlock()
	r.valve.open()
	must.Get(c.ReadFrame())(t)
	must.OK(t, a.Closed())
	call(t, c, jute.NoNode, jute.OpExists, wire.PathWatch("/late", false))
}

func TestExpiredSessionIsClosedBehindItsEvents(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	create(t, a, "/e", "", jute.FlagEphemeral)
	call(t, a, jute.OK, jute.OpExists, wire.PathWatch("/e", true))
	end := make(chan struct{})
	must.OK(t, r.node.Propose(state.Request{Op: state.OpExpire, Session: a.Session.ID, Gen: 1},
		waiter(func(*state.Outcome) { close(end) })))
	<-end
	wantKinds(t, a, "NodeDeleted /e")
	must.OK(t, a.Closed())
	ended := r.srv.conns.Observed.EndedSince(-1)
	if expect.Equal(t, len(ended), 1, "ended %+v: len(ended)", ended) {
		expect.Equal(t, ended[0].Session, a.Session.ID, "ended %+v: ended[0].Session", ended)
		expect.Equal(t, ended[0].Cause, state.EndExpired, "ended %+v: ended[0].Cause", ended)
		expect.Equal(t, ended[0].Addr, "127.0.0.1", "ended %+v: ended[0].Addr", ended)
		expect.That(t, strings.HasPrefix(ended[0].Reason(), "client silent for "),
			"ended %+v: want strings.HasPrefix(ended[0].Reason(), \"client silent for \")", ended)
	}
	expect.Equal(t, r.dial().Connect(wire.Attach(a.Session, 0)), wire.ErrRefused, "attach")
}

type waiter func(*state.Outcome)

func (w waiter) Done(o *state.Outcome, _ *state.State) { w(o) }

// A session may be ended by a request that did not come over its own connection. Then its connection is
// closed.
func TestSessionClosedElsewhereClosesItsConnection(t *testing.T) {
	r := newRig(t, options.Options{})
	a := r.client()
	end := make(chan struct{})
	must.OK(t, r.node.Propose(state.Request{Op: jute.OpCloseSession, Session: a.Session.ID},
		waiter(func(*state.Outcome) { close(end) })))
	<-end
	must.OK(t, a.Closed())
	e := r.srv.conns.Observed.EndedSince(-1)
	if expect.Equal(t, len(e), 1, "ended %+v: len(e)", e) {
		expect.Equal(t, e[0].Reason(), "closed by its client", "ended %+v: e[0].Reason()", e)
	}
}

func TestResetClosesEveryClientAndForgetsEveryWatch(t *testing.T) {
	r := newRig(t, options.Options{})
	a, b := r.client(), r.client()
	call(t, a, jute.OK, jute.OpAddWatch, wire.PathInt("/", 1))
	first := r.dial()
	eventually(t, "accepted", func() bool { return r.status().Conns == 3 })
	r.srv.Reset()
	must.OK(t, a.Closed())
	must.OK(t, b.Closed())
	expect.Equal(t, r.status().AllWatches, 0, "watches")
	// This client has seen nothing of the state before Reset, so it may stay.
	must.OK(t, first.Connect(wire.NewSession(10000)))
}

func TestUnknownOutcomeClosesWithoutAReply(t *testing.T) {
	r := newRig(t, options.Options{})
	for _, o := range []state.Outcome{{Unknown: true}, {Refused: true}} {
		c := r.client()
		r.valve.close()
		var p batch
		p.add(jute.OpSync, wire.Path("/")).add(jute.OpGetData, wire.PathWatch("/", false))
		must.OK(t, c.WriteRaw(p.b))
		eventually(t, "held", func() bool { return r.valve.waiting() == 1 })
		r.valve.mu.Lock()
		h := r.valve.held[0]
		r.valve.held = nil
		r.valve.mu.Unlock()
		h.w.Done(&o, nil)
		r.srv.Applied()
		must.OK(t, c.Closed())
		r.valve.open()
	}
	// A connect request with an unknown outcome gets no refusal.
	r.valve.close()
	c := r.dial()
	must.OK(t, c.WriteRaw(wire.AppendConnectRequest(nil, wire.NewSession(10000))))
	eventually(t, "held", func() bool { return r.valve.waiting() == 1 })
	r.valve.held[0].w.Done(&state.Outcome{Unknown: true}, nil)
	r.valve.held = nil
	must.OK(t, c.Closed())
}

func TestPingIsNotAnsweredByAServerThatIsCutOff(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	alive(t, c)
	r.valve.setCut(true)
	must.Get(c.Send(jute.OpPing, nil))(t)
	// The answer waits, because the server may soon be connected again.
	must.OK(t, c.Silent(100*time.Millisecond))
	r.valve.setCut(false)
	wantKinds(t, c, -2)
	r.valve.setCut(true)
	short := r.dial() // the server waits only a short time for this session
	must.OK(t, short.Connect(wire.NewSession(4000)))
	must.Get(short.Send(jute.OpPing, nil))(t)
	must.OK(t, short.Closed())
	eventually(t, "counted", func() bool { return r.srv.conns.Counts.Ends[ends.CutOff].Load() == 1 })
}

func TestHeardTellsWhoSpokeSinceTheLastCall(t *testing.T) {
	r := newRig(t, options.Options{})
	a, b := r.client(), r.client()
	gone := r.client()
	var first []state.Touch
	alive(t, a)
	alive(t, b)
	alive(t, gone)
	r.srv.SessionMoved(gone.Session.ID, 9)
	time.Sleep(20 * time.Millisecond)
	first = r.srv.Heard(nil, false)
	// The list lacks sessions that package raftfsm has already got from Heard.
	for _, touch := range first {
		expect.That(t, touch.Session != gone.Session.ID,
			"a connection whose session has moved is reported")
		expect.That(t, touch.Age >= 20 && touch.Age <= 10_000, "age %d ms", touch.Age)
	}
	expect.Equal(t, len(r.srv.Heard(nil, false)), 0, "told twice")
	expect.Equal(t, len(r.srv.Heard(nil, true)), 2, "told again on a new link")
	alive(t, a)
	only := r.srv.Heard(first[:0], false)
	if expect.That(t, len(only) <= 1,
		"heard %v, want %d alone: want len(only) <= 1", only, a.Session.ID) {
		expect.That(t, len(only) != 1 || only[0].Session == a.Session.ID,
			"heard %v, want %d alone: want len(only) != 1 || only[0].Session == a.Session.ID",
			only, a.Session.ID)
	}
}

func TestConnectionsAreDescribed(t *testing.T) {
	r := newRig(t, options.Options{})
	c := r.client()
	create(t, c, "/a", "", 0)
	call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/a", true))
	r.dial()
	eventually(t, "both there", func() bool { return len(r.srv.Conns()) == 2 })
	// A flusher may write the reply to a read before the read is counted.
	eventually(t, "all requests counted", func() bool {
		return slices.ContainsFunc(r.srv.Conns(), func(d report.Conn) bool { return d.Received == 3 })
	})
	for _, d := range r.srv.Conns() {
		if d.Session == 0 {
			expect.Equal(t, d.Received, 0, "connection without a session: d.Received")
			expect.Equal(t, d.Interest, 1, "connection without a session: d.Interest")
			continue
		}
		expect.Equal(t, d.Session, c.Session.ID, "d.Session")
		expect.Equal(t, d.LastOp, "GETD", "d.LastOp")
		expect.Equal(t, d.Received, 3, "d.Received")
		expect.Equal(t, d.Sent, 3, "d.Sent")
		expect.Equal(t, d.LastCxid, 2, "d.LastCxid")
		expect.Equal(t, d.LastZxid, c.Zxid, "d.LastZxid")
		expect.Equal(t, d.Timeout, 30*time.Second, "d.Timeout")
		expect.Equal(t, d.Queued, 0, "d.Queued")
		expect.Equal(t, d.Interest, 1, "d.Interest")
		expect.Equal(t, d.Addr, c.LocalAddr().String(), "d.Addr")
	}
	s := r.status()
	expect.Equal(t, s.Conns, 2, "snapshot %+v: s.Conns", s)
	expect.Equal(t, s.AllWatches, 1, "snapshot %+v: s.AllWatches", s)
	expect.Equal(t, s.WatchConns, 1, "snapshot %+v: s.WatchConns", s)
	expect.Equal(t, s.WatchPaths, 1, "snapshot %+v: s.WatchPaths", s)
	expect.That(t, s.Serving, "snapshot %+v: want s.Serving", s)
	var watched []string
	r.srv.WatchScan(func(path string, session int64) bool {
		if session == c.Session.ID {
			watched = append(watched, path)
		}
		return true
	})
	expect.List(t, watched, []string{"/a"}, "watches")
	m := r.srv.Metrics()
	expect.Equal(t, m.PacketsReceived.Load(), 3,
		"received %d, sent %d: m.PacketsReceived.Load()",
		m.PacketsReceived.Load(), m.PacketsSent.Load())
	expect.Equal(t, m.PacketsSent.Load(), 3,
		"received %d, sent %d: m.PacketsSent.Load()",
		m.PacketsReceived.Load(), m.PacketsSent.Load())
	expect.Equal(t, m.ConnectionRequests.Load(), 1,
		"received %d, sent %d: m.ConnectionRequests.Load()",
		m.PacketsReceived.Load(), m.PacketsSent.Load())
	r.srv.ResetConns()
	for _, d := range r.srv.Conns() {
		expect.Equal(t, d.Received, 0, "after the reset %+v: d.Received", d)
		expect.Equal(t, d.Sent, 0, "after the reset %+v: d.Sent", d)
	}
}

// The function Follow gets each request once, with its answer, in the order of the answers.
func TestFollowGetsEachRequestWithItsAnswer(t *testing.T) {
	var mu sync.Mutex
	var got []string
	r := newRig(t, options.Options{Follow: func(q *observe.Request) {
		mu.Lock()
		defer mu.Unlock()
		expect.That(t, q.Arrived <= q.Begun && q.Begun <= q.Answered,
			"%+v: want q.Arrived <= q.Begun && q.Begun <= q.Answered", q)
		expect.Equal(t, q.Addr, "127.0.0.1", "q.Addr")
		expect.That(t, len(q.IDs) != 0, "%+v: want len(q.IDs) != 0", q)
		log := request.Of(q.Op) == request.Write || q.Op == state.OpCreateSession
		expect.Equal(t, log, q.Logged > 0, "%v: log", q.Op)
		expect.That(t, !log || !(q.Logged < q.Begun || q.Logged > q.Answered),
			"%v: logged at %v, begun %v, answered %v",
			q.Op, q.Logged, q.Begun, q.Answered)
		got = append(got, fmt.Sprint(q.Op, " ", q.Path(), " ", int32(q.Code), " ", q.Session != 0, " ", q.Zxid > 0))
	}})
	c := r.client()
	create(t, c, "/a", "", 0)
	call(t, c, jute.NodeExists, jute.OpCreate, wire.Create("/a", nil, jute.WorldAnyone, 0))
	call(t, c, jute.OK, jute.OpGetData, wire.PathWatch("/a", true))
	call(t, c, jute.NoNode, jute.OpGetChildren, wire.PathWatch("/b", false))
	call(t, c, jute.OK, jute.OpWhoAmI, nil)
	mu.Lock()
	defer mu.Unlock()
	want := []string{}
	for _, w := range []struct {
		op   jute.OpCode
		path string
		code jute.ErrCode
	}{{state.OpCreateSession, "", 0}, {jute.OpCreate, "/a", 0}, {jute.OpCreate, "/a", jute.NodeExists},
		{jute.OpGetData, "/a", 0}, {jute.OpGetChildren, "/b", jute.NoNode}, {jute.OpWhoAmI, "", 0}} {
		want = append(want, fmt.Sprint(w.op, " ", w.path, " ", int32(w.code), " true true"))
	}
	expect.List(t, got, want)
}

// The requests of a client still count after its connection has ended, because some clients connect for each
// request.
func TestClientsThatConnectForEachRequestAreCounted(t *testing.T) {
	r := newRig(t, options.Options{})
	const connections = 20
	for range connections {
		c := r.client()
		call(t, c, jute.OK, jute.OpExists, wire.PathWatch("/", false))
		c.Close()
	}
	eventually(t, "connections gone", func() bool { return r.status().Conns == 0 })
	n := r.srv.conns.Observed.GoneClients()["127.0.0.1"]
	expect.That(t, n.Requests >= connections,
		"%+v of %d connections: want n.Requests >= connections", n, connections)
	expect.That(t, n.Bytes >= 100*connections,
		"%+v of %d connections: want n.Bytes >= 100*connections", n, connections)
}
