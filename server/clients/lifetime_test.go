package clients

import (
	"encoding/binary"
	"fmt"
	"net"
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

// deadlines remembers the read deadlines of a connection.
type deadlines struct {
	net.Conn
	set []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// The read deadline of a connection depends on the bytes that it has received so far.
func TestDeadlinesForTheNextBytes(t *testing.T) {
	part := []byte{0, 0, 0, 99, 1}
	oversized := binary.BigEndian.AppendUint32(nil, options.DefaultMaxFrame+1)
	for _, x := range []struct {
		name       string
		bytes      []byte
		within     int
		readOnly   bool
		unfinished bool
		begun      time.Duration // how long ago the frame began; 0: just now
		ending     bool
		want       time.Duration // from now; 0: the deadline stays, -1: the deadline is removed
	}{
		{name: "between frames"},
		{name: "behind a frame", unfinished: true, want: -1},
		{name: "between frames, without a leader", readOnly: true, want: 10*time.Second + 6*time.Second},
		{name: "in a frame", bytes: part, want: outbox.StallTime},
		{name: "in a frame, without a leader", bytes: part, readOnly: true, want: outbox.StallTime},
		{name: "in a frame that goes on", bytes: part, unfinished: true, begun: time.Second,
			want: outbox.StallTime},
		{name: "in a frame that takes long", bytes: part, unfinished: true, begun: frameTime - time.Second, want: time.Second},
		{name: "in a setWatches", within: 5, want: outbox.StallTime},
		{name: "in a setWatches, with a part", bytes: oversized, within: 5, want: outbox.StallTime},
		{name: "before the header of a long frame", bytes: oversized, want: headerGrace},
		{name: "in a frame, at the end", bytes: part, ending: true},
	} {
		s, c := quiet(t, options.Options{})
		s.start = s.start.Add(-time.Hour) // it has run for an hour
		nc := &deadlines{}
		c.out.NC, c.timeout = nc, 10*time.Second
		c.reader.in.Put(x.bytes)
		c.reader.within, c.readOnly, c.reader.unfinished = x.within, x.readOnly, x.unfinished
		before := time.Now()
		if x.begun > 0 {
			c.reader.frameStart = s.now() - x.begun
		}
		if x.ending {
			c.out.End(ends.Auth)
		}
		c.armDeadline()
		after := time.Now()
		switch {
		case x.want == 0:
			expect.Equal(t, len(nc.set), 0, "%s: deadlines", x.name)
		case !expect.Equal(t, len(nc.set), 1, "%s: deadlines", x.name):
		case x.want < 0:
			expect.That(t, nc.set[0].IsZero(), "%s: a deadline in %v", x.name, nc.set[0].Sub(before))
		default:
			expect.That(t, nc.set[0].Sub(before) >= x.want,
				"%s: a deadline in %v, want %v: want nc.set[0].Sub(before) >= x.want",
				x.name, nc.set[0].Sub(before), x.want)
			expect.That(t, nc.set[0].Sub(after) <= x.want,
				"%s: a deadline in %v, want %v: want nc.set[0].Sub(after) <= x.want",
				x.name, nc.set[0].Sub(before), x.want)
		}
		inFrame := len(x.bytes) > 0 || x.within > 0
		expect.Equal(t, c.reader.unfinished, inFrame, "%s: c.reader.unfinished", x.name)
		expect.Equal(t, c.reader.frameStart > 0, inFrame ||
			x.begun > 0,
			"%s: c.reader.frameStart > 0", x.name)
	}
}

// Bytes from a client show that it is alive. The server tells the leader once, and never for a read-only
// session.
func TestBytesShowThatAClientIsAlive(t *testing.T) {
	s, c := quiet(t, options.Options{})
	c.received(10)
	c.received(5)
	expect.That(t, c.reader.arrived > 0,
		"heard at %v, bytes came at %v: want c.reader.arrived > 0",
		time.Duration(c.pulse.heard.Load()), c.reader.arrived)
	expect.Equal(t, c.pulse.heard.Load(), int64(c.reader.arrived),
		"heard at %v, bytes came at %v: c.pulse.heard.Load()",
		time.Duration(c.pulse.heard.Load()), c.reader.arrived)
	expect.Equal(t, c.pulse.received.Load(), 15,
		"%d bytes: c.pulse.received.Load()", c.pulse.received.Load())
	expect.Equal(t, s.metrics.BytesReceived.Load(), 15,
		"%d bytes: s.metrics.BytesReceived.Load()", c.pulse.received.Load())
	must.List(t, s.heard.take(), []*conn{c}, "heard of")
	c.alive(7)
	expect.Equal(t, c.pulse.heard.Load(), 7)
	expect.Equal(t, len(s.heard.take()), 0, "it is listed, as nothing was asked since")
	c.pulse.listed.Store(false)
	c.readOnly = true
	c.alive(8)
	expect.Equal(t, c.pulse.heard.Load(), 8,
		"a read-only session is told of: c.pulse.heard.Load()")
	expect.Equal(t, len(s.heard.take()), 0,
		"a read-only session is told of: len(s.heard.take())")
}

// A server tells the leader which sessions it heard from, and how long ago.
func TestHeardTellsAges(t *testing.T) {
	s, silent := quiet(t, options.Options{})
	s.start = s.start.Add(-time.Hour)
	busy, gone, early := connFrom(s, new(address)), connFrom(s, new(address)), connFrom(s, new(address))
	for i, c := range []*conn{silent, busy, gone, early} {
		c.session = int64(i + 1)
		c.alive(s.now() - time.Minute)
	}
	busy.out.Push(outbox.Pending{Xid: 1})
	gone.pulse.retired.Store(true)
	early.alive(s.now() + time.Hour)
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
	must.List(t, s.heard.take(), []*conn{busy}, "told of again")
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
		{"that it closes", true, state.EndClosed, "open"}, // its outcome comes next
		{"that another closes", false, state.EndClosed, "ending"},
		{"that expires while it closes", true, state.EndExpired, "ending"},
		{"that an operator ends", false, state.EndOperator, "ending"},
	} {
		s, c := quiet(t, options.Options{})
		c.out.Hush() // no flusher is to come
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
		s.SessionEnded(&state.Ending{Session: session.Session{ID: 99}}) // has no connection here
	}
	var told []string
	s, c := quiet(t, options.Options{Ended: func(id int64, events []tree.Event) {
		told = append(told, fmt.Sprint(id, " ", len(events)))
	}})
	c.out.Hush()
	s.sessions[7] = c
	for _, id := range []int64{7, 99} { // the second is not here
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
		expect.Equal(t, s.connOf(7), first, "the first: s.connOf(7)")
		expect.Equal(t, first.session, 7, "the first: first.session")
	}
	older, ok = s.claim(first, 7)
	if expect.That(t, ok, "the same again: want ok") {
		expect.Equal(t, older, first, "the same again: older")
	}
	older, ok = s.claim(second, 7)
	if expect.That(t, ok, "the second: want ok") {
		expect.Equal(t, older, first, "the second: older")
		expect.Equal(t, s.connOf(7), second, "the second: s.connOf(7)")
	}
	late.removed = true
	older, ok = s.claim(late, 7)
	expect.That(t, !ok, "one that has ended: want !ok")
	expect.That(t, older == nil, "one that has ended: want older == nil")
	expect.Equal(t, s.connOf(7), second, "one that has ended: s.connOf(7)")
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
	expect.Equal(t, s.counts.refused.Load(), 0,
		"a refusal for one that ends: s.counts.refused.Load()")
}
