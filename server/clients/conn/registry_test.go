package conn

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// Connections are registered up to each bound, share the data of their address, and leave nothing behind.
func TestConnectionsAreRegistered(t *testing.T) {
	s, _ := quiet(t, options.Options{MaxConns: 3, MaxConnsPerAddr: 2})
	var conns []*Conn
	for _, x := range []struct{ host, problem string }{
		{"a", ""}, {"a", ""}, {"a", "too many connections from this address"}, {"b", ""}, {"c", "too many connections"},
		{"a", "too many connections"},
	} {
		c := newFrom(s, x.host)
		problem := s.tryAdd(c)
		must.Equal(t, problem, x.problem, "of %s, number %d", x.host, len(conns))
		if problem == "" {
			conns = append(conns, c)
		}
	}
	a := conns[0].from
	expect.Equal(t, conns[1].from, a, "addresses are shared wrongly: conns[1].from")
	expect.That(t, conns[2].from != a,
		"addresses are shared wrongly: want conns[2].from != a")
	if expect.Equal(t, len(a.conns), 2, "addresses are shared wrongly: len(a.conns)") {
		expect.Equal(t, conns[0].proof.IDs.Load(), a.ids,
			"addresses are shared wrongly: conns[0].proof.IDs.Load()")
	}
	expect.Equal(t, fmt.Sprint(*conns[2].proof.IDs.Load()), "[{ip b}]")
	if expect.Equal(t, len(s.All()), 3, "%d connections: len(s.all())", len(s.All())) {
		if expect.Equal(t, len(s.watchersFrom("a")), 2, "%d connections", len(s.All())) {
			expect.Equal(t, len(s.watchersFrom("c")), 0, "%d connections", len(s.All()))
		}
	}
	older, ok := s.claim(conns[0], 7)
	must.That(t, ok, "claimed: want ok")
	must.That(t, older == nil, "claimed: want older == nil")
	_, ok = s.claim(conns[1], 7)
	must.That(t, ok, "claimed")
	s.remove(conns[0]) // another connection has taken over the session of this one
	expect.Equal(t, s.Of(7), conns[1], "the first is removed: s.connOf(7)")
	if expect.Equal(t, len(s.watchersFrom("a")), 1, "the first is removed") {
		expect.That(t, conns[0].removed, "the first is removed: want conns[0].removed")
	}
	s.remove(conns[1])
	expect.That(t, s.Of(7) == nil, "the second is removed: want s.connOf(7) == nil")
	expect.That(t, s.perAddr["a"] == nil,
		"the second is removed: want s.perAddr[\"a\"] == nil")
	expect.Equal(t, len(s.All()), 1, "the second is removed: len(s.all())")
	s.remove(conns[2])
	for range conns {
		s.wg.Done() // in place of the goroutines of the connections, which this test does not start
	}
	s.Stop()
	expect.Equal(t, s.tryAdd(newFrom(s, "d")), "server stopping")
	if expect.Equal(t, len(s.conns), 0, "something is left: len(s.conns)") {
		if expect.Equal(t, len(s.perAddr), 0, "something is left: len(s.perAddr)") {
			expect.Equal(t, len(s.sessions), 0, "something is left: len(s.sessions)")
		}
	}
}

// A refused connection is counted, logged, and remembered for operators.
func TestRefusedConnectionsAreCounted(t *testing.T) {
	s, _ := quiet(t, options.Options{MaxConns: 1, MaxConnsPerAddr: -1})
	first := newFrom(s, "a")
	must.That(t, s.add(first), "added")
	expect.Equal(t, s.Metrics.ConnectionRejected.Load(), 0)
	expect.That(t, !s.add(newFrom(s, "b")), "added")
	why, known := s.Observed.Refused("b")
	expect.Equal(t, s.Metrics.ConnectionRejected.Load(), 1,
		"s.metrics.ConnectionRejected.Load()")
	expect.That(t, known, "%v: want known", why)
	expect.Equal(t, why.Why, "too many connections", "why.Why")
	s.remove(first)
	s.wg.Done()
}

// The server forgets an address without connections once the address owes nothing. It never forgets an
// address with connections.
func TestAddressesThatOweAreKept(t *testing.T) {
	s, _ := quiet(t, options.Options{})
	c := newFrom(s, "a")
	must.Equal(t, s.tryAdd(c), "")
	from := c.from
	s.Shares.Settle(&from.Account, 1000*time.Hour) // so far in the future that nothing more is paid
	for _, x := range []struct {
		owed int64
		kept bool
	}{{1, true}, {0, false}} {
		s.perAddr["a"] = from
		owe(from, x.owed)
		s.mu.Lock()
		s.forget(from)
		_, kept := s.perAddr["a"]
		s.mu.Unlock()
		expect.Equal(t, kept, x.kept, "an address that owes %d", x.owed)
	}
	s.cancel()
	s.mu.Lock()
	s.perAddr["a"] = from
	owe(from, 1)
	s.forget(from)
	_, kept := s.perAddr["a"]
	s.mu.Unlock()
	expect.That(t, !kept, "a server that stops keeps it")
	s.wg.Done()
}

// When the server stops serving, it ends the connections that have a session or ask for one, and no others.
func TestEndOfServiceSendsClientsAway(t *testing.T) {
	s, _ := quiet(t, options.Options{})
	var conns []*Conn
	for p := phaseFirst; p <= phaseOpen; p++ {
		c := newFrom(s, "a")
		must.Equal(t, s.tryAdd(c), "")
		c.phase.Store(int32(p))
		conns = append(conns, c)
	}
	s.SendAway()
	for p, c := range conns {
		open := phase(p) < phaseConnect
		expect.Equal(t, c.out.IsOpen(), open, "phase %d: open", p)
		expect.That(t, c.out.Look().Why == ends.Serving != open, "phase %d: it ends because %v", p,
			c.out.Look().Why)
		s.remove(c)
		s.wg.Done()
	}
}

// A server tells the leader which sessions it heard from, and how long ago.
func TestHeardTellsAges(t *testing.T) {
	s, silent := quiet(t, options.Options{})
	s.start = s.start.Add(-time.Hour)
	busy, gone, early := connFrom(s, new(address)), connFrom(s, new(address)), connFrom(s, new(address))
	for i, c := range []*Conn{silent, busy, gone, early} {
		c.session = int64(i + 1)
		c.alive(s.Now() - time.Minute)
	}
	busy.out.Push(outbox.Pending{Xid: 1})
	gone.pulse.retired.Store(true)
	early.alive(s.Now() + time.Hour)
	got := map[int64]uint32{}
	for _, x := range s.Heard([]state.Touch{{Session: 99}}, false) {
		got[x.Session] = x.Age
	}
	if expect.Equal(t, len(got), 4, "len(got)") {
		expect.That(t, got[1] >= 60_000 && got[1] < 3_600_000,
			"%v: want got[1] >= 60_000 && got[1] < 3_600_000", got)
		expect.Equal(t, got[2], 0, "got[2]")
		expect.Equal(t, got[4], 0, "got[4]")
	}
	must.List(t, s.heard.take(), []*Conn{busy}, "told of again")
	expect.That(t, !silent.pulse.listed.Load(),
		"which is listed: want !silent.pulse.listed.Load()")
	expect.That(t, busy.pulse.listed.Load(),
		"which is listed: want busy.pulse.listed.Load()")
	busy.out.Die(ends.Moved)
	expect.That(t, !busy.owed(), "a connection that has ended waits for an outcome")
	s.sessions[1], s.sessions[2] = silent, busy
	busy.pulse.listed.Store(false)
	expect.Equal(t, len(s.Heard(nil, true)), 2, "of all sessions")
}

// The end or the move of a session ends its connection here. A connection that closes its own session stays
// open for the answer.
func TestEndsAndMovesOfSessions(t *testing.T) {
	for _, x := range []struct {
		name    string
		closing bool
		cause   state.EndCause
		want    string
	}{
		{"that it closes", true, state.EndClosed, "open"}, // it stays open: the outcome of the request comes next
		{"that another closes", false, state.EndClosed, "ending"},
		{"that expires while it closes", true, state.EndExpired, "ending"},
		{"that an operator ends", false, state.EndOperator, "ending"},
	} {
		s, c := quiet(t, options.Options{})
		c.out.Hush() // keeps the flushers from writing the outbox
		other := connFrom(s, new(address))
		s.sessions[7], s.sessions[8] = c, other
		if x.closing {
			c.out.SetClosing()
		}
		s.SessionEnded(&state.Ending{Session: session.Session{ID: 7}, Cause: x.cause})
		expect.Equal(t, c.out.Look().State, x.want, "a session %s: c.out.Look().State", x.name)
		expect.Equal(t, c.out.Look().Why == ends.Gone, x.want == "ending",
			"a session %s: c.out.Look().Why == ends.Gone", x.name)
		expect.That(t, c.pulse.retired.Load(),
			"a session %s: %v: want c.pulse.retired.Load()", x.name, c.out.Look().Why)
		expect.That(t, other.out.IsOpen(), "another session: want other.out.IsOpen()")
		expect.That(t, !other.pulse.retired.Load(),
			"another session: want !other.pulse.retired.Load()")
		s.SessionEnded(&state.Ending{Session: session.Session{ID: 99}}) // this session has no connection here
	}
	var told []string
	s, c := quiet(t, options.Options{Ended: func(id int64, events []tree.Event) {
		told = append(told, fmt.Sprint(id, " ", len(events)))
	}})
	c.out.Hush()
	s.sessions[7] = c
	for _, id := range []int64{7, 99} { // session 99 has no connection here
		s.SessionEnded(&state.Ending{Session: session.Session{ID: id}, Events: make([]tree.Event, 2)})
	}
	expect.Equal(t, strings.Join(told, ", "), "7 2, 99 2", "ends that were told")
	for gen, open := range map[uint32]bool{4: true, 5: true, 6: false} {
		s, c := quiet(t, options.Options{})
		c.out.Hush()
		c.gen = 5
		s.sessions[7] = c
		s.SessionMoved(7, gen)
		s.SessionMoved(8, 99)
		expect.Equal(t, c.out.IsOpen(), open, "moved by generation %d: c.out.IsOpen()", gen)
		expect.That(t, c.pulse.retired.Load() != open,
			"moved by generation %d: open %v, %v: want c.pulse.retired.Load() != open",
			gen, c.out.IsOpen(), c.out.Look().Why)
		expect.That(t, c.out.Look().Why == ends.Moved != open,
			"moved by generation %d: open %v, %v: want c.out.Look().Why == ends.Moved != open",
			gen, c.out.IsOpen(), c.out.Look().Why)
	}
}

// The newest connection of a session owns the session, unless that connection has ended.
func TestConnectionsClaimTheirSessions(t *testing.T) {
	s, first := quiet(t, options.Options{})
	second, late := connFrom(s, first.from), connFrom(s, first.from)
	older, ok := s.claim(first, 7)
	if expect.That(t, ok, "the first: want ok") {
		expect.That(t, older == nil, "the first: want older == nil")
		expect.Equal(t, s.Of(7), first, "the first: s.connOf(7)")
		expect.Equal(t, first.session, 7, "the first: first.session")
	}
	older, ok = s.claim(first, 7)
	if expect.That(t, ok, "the same again: want ok") {
		expect.Equal(t, older, first, "the same again: older")
	}
	older, ok = s.claim(second, 7)
	if expect.That(t, ok, "the second: want ok") {
		expect.Equal(t, older, first, "the second: older")
		expect.Equal(t, s.Of(7), second, "the second: s.connOf(7)")
	}
	late.removed = true
	older, ok = s.claim(late, 7)
	expect.That(t, !ok, "one that has ended: want !ok")
	expect.That(t, older == nil, "one that has ended: want older == nil")
	expect.Equal(t, s.Of(7), second, "one that has ended: s.connOf(7)")
	expect.Equal(t, late.session, 0, "one that has ended: late.session")
	second.out.Hush()
	third := connFrom(s, first.from)
	third.mayRead = true
	must.That(t, third.attached(&session.Session{ID: 7, Gen: 9, Timeout: 5000}), "attached")
	expect.That(t, !second.out.IsOpen(), "the older one stays: want !second.out.IsOpen()")
	expect.Equal(t, second.out.Look().Why, ends.Moved, "the older one stays: second.out.Look().Why")
	expect.That(t, second.pulse.retired.Load(),
		"the older one stays: want second.pulse.retired.Load()")
	expect.Equal(t, third.gen, 9,
		"generation %d, %v, %d frames: third.gen", third.gen, third.timeout, third.out.Look().Frames)
	expect.Equal(t, third.timeout, 5*time.Second,
		"generation %d, %v, %d frames: third.timeout",
		third.gen, third.timeout, third.out.Look().Frames)
	expect.Equal(t, third.out.Look().Frames, 1,
		"generation %d, %v, %d frames: third.out.Look().Frames",
		third.gen, third.timeout, third.out.Look().Frames)
	expect.Equal(t, phase(third.phase.Load()), phaseOpen,
		"generation %d, %v, %d frames: phase(third.phase.Load())",
		third.gen, third.timeout, third.out.Look().Frames)
	want := jute.AppendConnectResponse(nil, 5000, 7, [jute.PasswordSize]byte{}, true, false)
	must.List(t, third.out.Look().Buf, want, "the answer")
	third.out.Die(ends.Slow)
	expect.That(t, !third.attached(&session.Session{ID: 7, Gen: 10}),
		"one that ends: want !third.attached(&session.Session{ID: 7, Gen: 10})")
	expect.Equal(t, third.gen, 9, "one that ends: third.gen")
	third.refusal()
	expect.Equal(t, third.out.Size(), 0, "a refusal for one that ends: third.out.Size()")
	expect.Equal(t, s.Counts.Refused.Load(), 0,
		"a refusal for one that ends: s.counts.refused.Load()")
}

// Two goroutines may call take() at once: one for a term that ends, the other for the link to the next
// leader. Each connection must be reported only once.
func TestHeardTellsTwoWhoAskAtOnce(t *testing.T) {
	var h heardList
	var conns [4]Conn
	for i := range 3 {
		h.add(&conns[i])
	}
	first := h.take()
	expect.Equal(t, len(h.take()), 0, "told a second time")
	h.add(&conns[3])
	must.List(t, first, []*Conn{&conns[0], &conns[1], &conns[2]}, "the list of the first who asked")
}
