package clients

import (
	"testing"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

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
		expect.Equal(t, o.held, x.held,
			"%d bytes, %d are written, %d reserved: o.held", x.n, x.writing, x.reserved)
		expect.Equal(t, s.memory.Used(), x.held,
			"%d bytes, %d are written, %d reserved: s.memory.Used()", x.n, x.writing, x.reserved)
		expect.Equal(t, o.state, outboxOpen,
			"%d bytes, %d are written, %d reserved: o.state", x.n, x.writing, x.reserved)
	}
	other := connFrom(s, new(address))
	must.That(t, s.memory.Try(other, budget.Input, 1<<20, true), "no memory")
	o.buf, o.writing, o.reserved = make([]byte, 4*flushSize), 0, 0
	c.grown(true)
	expect.Equal(t, o.state, outboxOpen, "4 times flushSize: %d held: o.state", o.held)
	expect.Equal(t, o.held, 4*flushSize, "4 times flushSize: %d held: o.held", o.held)
	o.buf = make([]byte, 4*flushSize+1)
	c.grown(false)
	expect.Equal(t, o.state, outboxOpen, "by its own goroutine: %d held: o.state", o.held)
	expect.Equal(t, o.held, 4*flushSize+holdStep,
		"by its own goroutine: %d held: o.held", o.held)
	o.buf = make([]byte, 4*flushSize+holdStep)
	c.grown(true)
	expect.Equal(t, o.state, outboxOpen, "what is held already")
	o.buf = make([]byte, 4*flushSize+holdStep+1)
	c.grown(true)
	expect.Equal(t, o.state, outboxDead, "more, by others: o.state")
	expect.Equal(t, o.why, ends.Slow, "more, by others: o.why")
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
		expect.Equal(t, o.held, x.held, "%d bytes behind %d: o.held", x.size, x.waits)
		expect.Equal(t, s.memory.Used(), x.held,
			"%d bytes behind %d: s.memory.Used()", x.size, x.waits)
		expect.Equal(t, o.reserved, x.size, "%d bytes behind %d: o.reserved", x.size, x.waits)
		expect.Equal(t, cap(o.buf) >= x.size+keepSize, x.now, "%d bytes: a buffer of %d", x.size, cap(o.buf))
		o.append([]byte("frame"))
		must.That(t, c.reserve(x.size, true), "no memory")
		if expect.Equal(t, len(o.full), 1, "a frame before the reply: len(o.full)") {
			expect.Equal(t, string(o.full[0].b), "frame",
				"a frame before the reply: string(o.full[0].b)")
			expect.Equal(t, len(o.buf), 0, "a frame before the reply: len(o.buf)")
		}
		c.close(ends.Moved)
		expect.That(t, !c.reserve(x.size, true),
			"after the end: want !c.reserve(x.size, true)")
		expect.Equal(t, o.reserved, 0, "after the end: o.reserved")
	}
}
