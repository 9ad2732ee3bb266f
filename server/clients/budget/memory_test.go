package budget

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// conn is a connection with the values that Memory reads.
type conn struct {
	own    Account
	from   *Account // account of the address; nil: own
	number uint64
	why    ends.Reason // why the connection was closed
}

func (c *conn) Account() *Account {
	if c.from != nil {
		return c.from
	}
	return &c.own
}
func (c *conn) Number() uint64        { return c.number }
func (c *conn) IsOpen() bool          { return c.why == ends.None }
func (c *conn) Alive()                {}
func (c *conn) CountWatches()         {}
func (c *conn) Close(why ends.Reason) { c.why = why }

// newMemory returns a Memory with the limit `limit`. An address may have `conns` connections, and the server
// keeps at most `perAddress` bytes for it.
func newMemory(limit, conns, perAddress int) *Memory {
	shares := &Shares{Bytes: perAddress}
	shares.SetConns(conns)
	start := time.Now()
	return &Memory{Limit: limit, Shares: shares, Waits: func() {},
		Now: func() time.Duration { return time.Since(start) }}
}

// A connection gets memory up to the limit, including the last byte. A connection that is alone gets all that
// it asks for. A request for fewer bytes than the connection has always succeeds.
func TestMemoryIsGivenUpToItsBound(t *testing.T) {
	m, a, b := newMemory(1000, -1, 0), new(conn), new(conn)
	for i, x := range []struct {
		c     *conn
		part  Part
		n     int
		force bool
		want  bool
		used  int
	}{
		{a, Input, 5000, false, true, 5000}, // the only connection gets all that it asks for
		{b, Input, 1, false, false, 5000},
		{a, Output, 10, false, true, 5010},
		{a, Input, 600, false, true, 610},
		{b, Input, 390, false, true, 1000},
		{b, Input, 391, false, false, 1000},
		{a, Output, 11, false, false, 1000},
		{b, Output, 50, true, true, 1050},
		{b, Output, 50, false, true, 1050},
		{b, Output, 0, false, true, 1000},
		{a, Input, 0, false, true, 400},
		{a, Output, 0, false, true, 390},
	} {
		got := m.Try(x.c, x.part, x.n, x.force)
		expect.Equal(t, got, x.want, "step %d: got", i)
		expect.Equal(t, m.used, x.used, "step %d: m.used", i)
		mine := func(c *conn) int { return m.partOf(c, Input) + m.partOf(c, Output) }
		expect.Equal(t, mine(a)+mine(b), m.used, "step %d: mine(a) + mine(b)", i)
		expect.Equal(t, int(a.Account().Buffers()), mine(a),
			"step %d: int(a.Account().Buffers())", i)
		expect.Equal(t, int(b.Account().Buffers()), mine(b),
			"step %d: int(b.Account().Buffers())", i)
	}
	if expect.Equal(t, len(m.held), 1,
		"%d connections hold something: len(m.held)", len(m.held)) {
		expect.That(t, m.held[b] != nil,
			"%d connections hold something: want m.held[b] != nil", len(m.held))
	}
	m.Drop(b)
	m.Drop(b)
	if expect.Equal(t, len(m.held), 0, "%d bytes are left: len(m.held)", m.used) {
		expect.Equal(t, m.used, 0, "%d bytes are left: m.used", m.used)
		expect.Equal(t, b.Account().Buffers(), 0,
			"%d bytes are left: b.Account().Buffers()", m.used)
	}
}

// Some connections could make progress, but have made none for longer than Grace. Slowest finds the
// one whose last progress was the earliest.
func TestSlowestConnectionIsFound(t *testing.T) {
	m, a, b, c := newMemory(1000, -1, 0), new(conn), new(conn), new(conn)
	now := m.Now()
	ago := func(d time.Duration) time.Duration { return now - Grace - d }
	type hold = holding
	for name, x := range map[string]struct {
		a, b hold
		own  bool
		slow Holder
		why  ends.Reason
	}{
		"a frame that does not come": {hold{part: [2]int{9, 0}, since: ago(time.Hour), partial: true},
			hold{part: [2]int{9, 0}, since: ago(time.Minute), partial: true}, false, a, ends.Stalled},
		"an answer that is not taken": {hold{part: [2]int{0, 9}, since: ago(time.Minute),
			partial: false}, hold{part: [2]int{0, 9}, since: ago(time.Hour), partial: false}, false, b,
			ends.Slow},
		"both of one": {hold{part: [2]int{9, 9}, since: ago(time.Minute),
			partial: true}, hold{}, false, a, ends.Stalled},
		"a frame that is complete": {hold{part: [2]int{9, 0}, since: ago(time.Hour), partial: false},
			hold{part: [2]int{9, 0}, since: ago(time.Minute), partial: true}, false, b, ends.Stalled},
		"both too early": {hold{part: [2]int{9, 0}, since: now + time.Hour, partial: true},
			hold{part: [2]int{0, 9}, since: now + time.Hour, partial: false}, false, nil, ends.None},
		"nothing to be done": {hold{part: [2]int{9, 0}, since: ago(time.Hour), partial: false},
			hold{part: [2]int{9, 0}, since: ago(time.Hour), partial: false}, false, nil, ends.None},
		"of the address, another's": {hold{part: [2]int{9, 0}, since: ago(time.Hour), partial: true},
			hold{part: [2]int{0, 9}, since: ago(time.Hour), partial: false}, true, nil, ends.None},
		"of the address, its own, too": {hold{part: [2]int{9, 0}, since: ago(time.Hour), partial: true},
			hold{}, true, nil, ends.None},
	} {
		m.held = map[Holder]*holding{a: &x.a, b: &x.b}
		slow, why := m.Slowest(c, x.own)
		expect.Equal(t, slow, x.slow, "%s: slow", name)
		expect.Equal(t, why, x.why, "%s: why", name)
	}
	m.held = map[Holder]*holding{a: {part: [2]int{9, 0}, since: ago(time.Hour), partial: true},
		b: {part: [2]int{9, 0}, since: ago(time.Minute), partial: true}}
	slow, why := m.Slowest(a, false)
	expect.That(t, slow == nil,
		"a connection that is the slowest is closed by another, %v: want slow == nil", why)
	expect.Equal(t, why, ends.None,
		"a connection that is the slowest is closed by another, %v: why", why)
	slow, why = m.Slowest(&conn{from: b.Account()}, true)
	expect.Equal[Holder](t, slow, b, "of the address: slow")
	expect.Equal(t, why, ends.Stalled, "of the address: why")
	m.held = map[Holder]*holding{}
}

// A connection makes progress when a frame begins or is complete, and when the client takes bytes.
func TestProgressIsNoted(t *testing.T) {
	m, c := newMemory(1000, 60, 1000), new(conn)
	m.Partial(c, true) // c has no memory yet
	m.Moved(c, pace)
	must.Equal(t, len(m.held), 0)
	must.That(t, m.Try(c, Input, 10, false), "no memory")
	since := func() time.Duration { return m.held[c].since }
	forget := func() { m.held[c].since = -time.Hour }
	forget()
	m.Partial(c, false)
	expect.Equal(t, since(), -time.Hour, "nothing has changed")
	m.Partial(c, true)
	expect.That(t, since() > -time.Hour, "a frame has begun: want since() > -time.Hour")
	expect.That(t, m.held[c].partial, "a frame has begun: want m.held[c].partial")
	forget()
	m.Partial(c, true)
	expect.Equal(t, since(), -time.Hour, "the frame goes on")
	m.Partial(c, false)
	expect.That(t, since() > -time.Hour,
		"the frame is complete: want since() > -time.Hour")
	expect.That(t, !m.held[c].partial, "the frame is complete: want !m.held[c].partial")
	forget()
	m.Moved(c, pace-1)
	expect.Equal(t, since(), -time.Hour, "few bytes")
	m.Moved(c, 1)
	expect.That(t, since() > -time.Hour, "many bytes")
}

// Waiting connections get memory in order. A connection whose address already has too much lets the others
// pass.
func TestLineForMemory(t *testing.T) {
	m, a, b, rich := newMemory(1010, 60, 600), new(conn), new(conn), new(conn)
	must.That(t, m.Try(a, Input, 500, false),
		"no memory: want m.Try(a, Input, 500, false)")
	must.That(t, m.Try(b, Input, 300, false),
		"no memory: want m.Try(b, Input, 300, false)")
	rich.Account().SetWatches(1200)
	must.That(t, m.Try(&conn{from: rich.Account()}, Input, 10, false),
		"an address without buffers may have some")
	var line []*waiting
	join := func(c *conn, n int) *waiting {
		w := &waiting{c: c, part: Output, n: n, granted: make(chan struct{})}
		line = append(line, w)
		m.line = append(m.line, w)
		return w
	}
	granted := func(w *waiting) bool {
		select {
		case <-w.granted:
			return true
		default:
			return false
		}
	}
	own, large, small, none := join(rich, 100), join(b, 250), join(new(conn), 10), join(a, 0)
	m.advance()
	if expect.Equal(t, len(m.line), 4, "%d wait: len(m.line)", len(m.line)) {
		expect.That(t, own.own, "%d wait: want own.own", len(m.line))
		expect.That(t, !large.own, "%d wait: want !large.own", len(m.line))
	}
	must.That(t, m.Try(a, Input, 450, false), "less than before")
	expect.That(t, granted(large), "the first that fits: want granted(large)")
	expect.That(t, !granted(small), "the first that fits: want !granted(small)")
	expect.Equal(t, granted(none), false, "the first that fits: granted(none)")
	expect.That(t, !granted(own), "the first that fits: want !granted(own)")
	must.That(t, m.Try(a, Input, 440, false), "less than before")
	expect.That(t, granted(small), "%d wait: want granted(small)", len(m.line))
	expect.That(t, granted(none), "%d wait: want granted(none)", len(m.line))
	expect.That(t, !granted(own), "%d wait: want !granted(own)", len(m.line))
	expect.Equal(t, len(m.line), 1, "%d wait: len(m.line)", len(m.line))
	expect.Equal(t, m.used, 440+300+10+250+10)
	rich.Account().SetWatches(0)
	m.leave(none) // a waiter that has already left the line
	if expect.Equal(t, len(m.line), 1, "%d wait: len(m.line)", len(m.line)) {
		expect.That(t, !granted(own), "%d wait: want !granted(own)", len(m.line))
	}
	later := join(b, 300)
	m.leave(own)
	if expect.Equal(t, len(m.line), 1, "%d wait: len(m.line)", len(m.line)) {
		expect.Equal(t, m.line[0], later, "%d wait: m.line[0]", len(m.line))
		expect.That(t, !granted(later), "%d wait: want !granted(later)", len(m.line))
	}
	m.Drop(a)
	expect.That(t, granted(later), "%d bytes are used: want granted(later)", m.used)
	if expect.Equal(t, len(m.line), 0, "%d bytes are used: len(m.line)", m.used) {
		expect.Equal(t, m.used, 300+10+300+10, "%d bytes are used: m.used", m.used)
	}
	for _, w := range m.line[:cap(m.line)] {
		expect.That(t, w == nil, "the line keeps %v", w)
	}
}

// Several connections may share the events of a portion. Its bytes count once in total, and once for each
// address. An address that would exceed its limit gets no part of the portion.
func TestPortionsAreCountedOnce(t *testing.T) {
	m, a, b := newMemory(100_000, 60, 50_000), new(conn), new(conn)
	lend := func(c *conn, p *Portion, alone, free, room, own bool) *Loan {
		t.Helper()
		l, gotOwn := m.Lend(c.Account(), p, alone, free)
		must.That(t, (l != nil) == room, "room: %v, want %v", l != nil, room)
		must.Equal(t, gotOwn, own, "its own address has too much")
		return l
	}
	p := NewPortion(40_000)
	first := lend(a, p, false, false, true, false)
	second := lend(b, p, false, false, true, false)
	must.Equal(t, m.used, 40_000,
		"%d bytes, of the addresses %d and %d: m.used",
		m.used, a.Account().Buffers(), b.Account().Buffers())
	must.Equal(t, a.Account().Buffers(), 40_000,
		"%d bytes, of the addresses %d and %d: a.Account().Buffers()",
		m.used, a.Account().Buffers(), b.Account().Buffers())
	must.Equal(t, b.Account().Buffers(), 40_000,
		"%d bytes, of the addresses %d and %d: b.Account().Buffers()",
		m.used, a.Account().Buffers(), b.Account().Buffers())
	lend(a, NewPortion(40_000), false, true, false, true)
	c := new(conn)
	lend(c, NewPortion(61_000), false, false, false, true)
	lend(c, NewPortion(61_000), true, false, false, false)
	third := lend(c, NewPortion(61_000), true, true, true, false)
	first.Put()
	must.Equal(t, m.used, 101_000, "used")
	must.Equal(t, a.Account().Buffers(), 0, "buffers")
	second.Share()
	second.Put()
	must.Equal(t, m.used, 101_000, "one place of two is given back")
	second.Put()
	third.Put()
	must.Equal(t, m.used+int(b.Account().Buffers()+c.Account().Buffers()), 0, "bytes")
}
