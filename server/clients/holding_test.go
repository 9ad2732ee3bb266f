package clients

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A connection gets memory up to the bound, the last byte of it included; one that is alone gets what it asks
// for, and less than before is always given.
func TestMemoryIsGivenUpToItsBound(t *testing.T) {
	s, a := quiet(t, Options{MaxBuffers: 1000, MaxConnsPerAddr: -1})
	b, m := connFrom(s, new(address)), &s.memory
	for i, x := range []struct {
		c       *conn
		part, n int
		force   bool
		want    bool
		used    int
	}{
		{a, inputPart, 5000, false, true, 5000}, // alone
		{b, inputPart, 1, false, false, 5000},
		{a, outputPart, 10, false, true, 5010},
		{a, inputPart, 600, false, true, 610},
		{b, inputPart, 390, false, true, 1000},
		{b, inputPart, 391, false, false, 1000},
		{a, outputPart, 11, false, false, 1000},
		{b, outputPart, 50, true, true, 1050},
		{b, outputPart, 50, false, true, 1050},
		{b, outputPart, 0, false, true, 1000},
		{a, inputPart, 0, false, true, 400},
		{a, outputPart, 0, false, true, 390},
	} {
		got := m.try(x.c, x.part, x.n, x.force)
		expect.That(t, got == x.want && m.used == x.used, "step %d: %v, %d bytes are used", i, got, m.used)
		mine := func(c *conn) int { return m.partOf(c, inputPart) + m.partOf(c, outputPart) }
		expect.That(t, mine(a)+mine(b) == m.used && int(a.from.buffers.Load()) == mine(a) &&
			int(b.from.buffers.Load()) == mine(b), "step %d: %d and %d bytes", i, mine(a), mine(b))
	}
	expect.That(t, len(m.held) == 1 && m.held[b] != nil, "%d connections hold something", len(m.held))
	m.drop(b)
	m.drop(b)
	expect.That(t, len(m.held) == 0 && m.used == 0 && b.from.buffers.Load() == 0, "%d bytes are left", m.used)
}

// The connection with the least progress is closed, if it could make some and had its time.
func TestSlowestConnectionIsFound(t *testing.T) {
	s, a := quiet(t, Options{MaxConnsPerAddr: -1})
	b, c, m := connFrom(s, new(address)), connFrom(s, new(address)), &s.memory
	now := s.now()
	ago := func(d time.Duration) time.Duration { return now - memoryGrace - d }
	type hold = holding
	for name, x := range map[string]struct {
		a, b hold
		own  bool
		slow *conn
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
		m.held = map[*conn]*holding{a: &x.a, b: &x.b}
		slow, why := m.slowest(&memoryWait{c: c, own: x.own})
		expect.That(t, slow == x.slow && why == x.why, "%s: %v", name, why)
	}
	m.held = map[*conn]*holding{a: {part: [2]int{9, 0}, since: ago(time.Hour), partial: true}, b: {part: [2]int{9, 0}, since: ago(time.Minute), partial: true}}
	slow, why := m.slowest(&memoryWait{c: a})
	expect.That(t, slow == nil && why == ends.None,
		"a connection that is the slowest is closed by another, %v", why)
	slow, why = m.slowest(&memoryWait{c: connFrom(s, b.from), own: true})
	expect.That(t, slow == b && why == ends.Stalled, "of the address: %v", why)
	m.held = map[*conn]*holding{}
}

// Progress is a frame that begins or is complete, and bytes that the client takes.
func TestProgressIsNoted(t *testing.T) {
	s, c := quiet(t, Options{})
	m := &s.memory
	m.partial(c, true) // holds nothing
	m.moved(c, memoryPace)
	must.Equal(t, len(m.held), 0)
	must.That(t, m.try(c, inputPart, 10, false), "no memory")
	since := func() time.Duration { return m.held[c].since }
	forget := func() { m.held[c].since = -time.Hour }
	forget()
	m.partial(c, false)
	expect.Equal(t, since(), -time.Hour, "nothing has changed")
	m.partial(c, true)
	expect.That(t, since() > -time.Hour && m.held[c].partial, "a frame has begun")
	forget()
	m.partial(c, true)
	expect.Equal(t, since(), -time.Hour, "the frame goes on")
	m.partial(c, false)
	expect.That(t, since() > -time.Hour && !m.held[c].partial, "the frame is complete")
	forget()
	m.moved(c, memoryPace-1)
	expect.Equal(t, since(), -time.Hour, "few bytes")
	m.moved(c, 1)
	expect.That(t, since() > -time.Hour, "many bytes")
}

// Connections that wait get memory in their order, but one whose own address has too much lets others pass.
func TestLineForMemory(t *testing.T) {
	s, a := quiet(t, Options{MaxBuffers: 1010, MaxWatchBytesPerConn: 600})
	b, rich, m := connFrom(s, new(address)), connFrom(s, new(address)), &s.memory
	must.That(t, m.try(a, inputPart, 500, false) && m.try(b, inputPart, 300, false), "no memory")
	rich.from.watches.Store(1200)
	must.That(t, m.try(connFrom(s, rich.from), inputPart, 10, false), "an address without buffers may have some")
	var line []*memoryWait
	join := func(c *conn, n int) *memoryWait {
		w := &memoryWait{c: c, part: outputPart, n: n, granted: make(chan struct{})}
		line = append(line, w)
		m.line = append(m.line, w)
		return w
	}
	granted := func(w *memoryWait) bool {
		select {
		case <-w.granted:
			return true
		default:
			return false
		}
	}
	own, large, small, none := join(rich, 100), join(b, 250), join(connFrom(s, new(address)), 10), join(a, 0)
	m.advance()
	expect.That(t, len(m.line) == 4 && own.own && !large.own, "%d wait", len(m.line))
	must.That(t, m.try(a, inputPart, 450, false), "less than before")
	expect.That(t, granted(large) && !granted(small) && granted(none) == false && !granted(own), "the first that fits")
	must.That(t, m.try(a, inputPart, 440, false), "less than before")
	expect.That(t, granted(small) && granted(none) && !granted(own) && len(m.line) == 1, "%d wait", len(m.line))
	expect.Equal(t, m.used, 440+300+10+250+10)
	rich.from.watches.Store(0)
	m.leave(none) // is not there any more
	expect.That(t, len(m.line) == 1 && !granted(own), "%d wait", len(m.line))
	later := join(b, 300)
	m.leave(own)
	expect.That(t, len(m.line) == 1 && m.line[0] == later && !granted(later), "%d wait", len(m.line))
	m.drop(a)
	expect.That(t, granted(later) && len(m.line) == 0 && m.used == 300+10+300+10, "%d bytes are used", m.used)
	for _, w := range m.line[:cap(m.line)] {
		expect.That(t, w == nil, "the line keeps %v", w)
	}
}

// An outbox is told to the memory in steps, from flushSize on; one that others fill dies if there is no room.
func TestOutboxIsHeldInSteps(t *testing.T) {
	s, c := quiet(t, Options{MaxBuffers: 1 << 20})
	o := &c.out
	for _, x := range []struct{ n, writing, reserved, held int }{
		{100, 0, 0, 0}, {flushSize, 0, 0, 0}, {flushSize + 1, 0, 0, flushSize + holdStep},
		{flushSize + holdStep, 0, 0, flushSize + holdStep}, {flushSize + holdStep + 1, 0, 0, flushSize + 2*holdStep},
		{10, flushSize, 0, flushSize + holdStep}, {10, 0, flushSize, flushSize + holdStep}, {0, 0, 0, 0},
	} {
		o.buf, o.writing, o.reserved = make([]byte, x.n), x.writing, x.reserved
		c.hold(false)
		expect.That(t, o.held == x.held && s.memory.used == x.held && o.state == outboxOpen,
			"%d bytes, %d are written, %d reserved: %d held, %d used", x.n, x.writing, x.reserved, o.held, s.memory.used)
	}
	other := connFrom(s, new(address))
	must.That(t, s.memory.try(other, inputPart, 1<<20, true), "no memory")
	o.buf, o.writing, o.reserved = make([]byte, 4*flushSize), 0, 0
	c.grown(true)
	expect.That(t, o.state == outboxOpen && o.held == 4*flushSize, "4 times flushSize: %d held", o.held)
	o.buf = make([]byte, 4*flushSize+1)
	c.grown(false)
	expect.That(t, o.state == outboxOpen && o.held == 4*flushSize+holdStep, "by its own goroutine: %d held", o.held)
	o.buf = make([]byte, 4*flushSize+holdStep)
	c.grown(true)
	expect.Equal(t, o.state, outboxOpen, "what is held already")
	o.buf = make([]byte, 4*flushSize+holdStep+1)
	c.grown(true)
	expect.That(t, o.state == outboxDead && o.why == ends.Slow, "more, by others: %v", o.why)
}

// What is reserved for a reply is held in steps as well, behind what waits already, and in a buffer of its own if
// the reply is built at once.
func TestReservedMemoryIsHeldInSteps(t *testing.T) {
	for _, x := range []struct {
		size, waits int
		now         bool
		held        int
	}{
		{100, 0, true, 0}, {flushSize + 1, 0, true, flushSize + holdStep}, {1<<20 + 1, 0, false, 1<<20 + holdStep},
		{1 << 20, 1000, true, 1<<20 + holdStep}, {1 << 20, 1000, false, 1<<20 + holdStep},
	} {
		s, c := quiet(t, Options{})
		o := &c.out
		o.writing, o.flushing = x.waits, true // what waits is being written
		must.That(t, c.reserve(x.size, x.now), "no memory")
		expect.That(t, o.held == x.held && s.memory.partOf(c, outputPart) == x.held && s.memory.used == x.held &&
			o.reserved == x.size, "%d bytes behind %d: %d held, %d used, %d reserved", x.size, x.waits, o.held, s.memory.used,
			o.reserved)
		expect.Equal(t, cap(o.buf) >= x.size+keepSize, x.now, "%d bytes: a buffer of %d", x.size, cap(o.buf))
		o.append([]byte("frame"))
		must.That(t, c.reserve(x.size, true), "no memory")
		expect.That(t, len(o.full) == 1 && string(o.full[0].b) == "frame" && len(o.buf) == 0, "a frame before the reply")
		c.close(ends.Moved)
		expect.That(t, !c.reserve(x.size, true) && o.reserved == 0, "after the end")
	}
}
