package outbox

import (
	"testing"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An outbox with more than FlushSize bytes reserves memory in steps. If there is no memory left, an outbox
// that other clients fill is closed.
func TestOutboxIsHeldInSteps(t *testing.T) {
	s, c := quiet(t, 0, 0, 1<<20)
	o := &c.Outbox
	for _, x := range []struct{ n, writing, reserved, held int }{
		{100, 0, 0, 0}, {FlushSize, 0, 0, 0}, {FlushSize + 1, 0, 0, FlushSize + holdStep},
		{FlushSize + holdStep, 0, 0, FlushSize + holdStep},
		{FlushSize + holdStep + 1, 0, 0, FlushSize + 2*holdStep},
		{10, FlushSize, 0, FlushSize + holdStep}, {10, 0, FlushSize, FlushSize + holdStep}, {0, 0, 0, 0},
	} {
		o.buf, o.writing, o.reserved = make([]byte, x.n), x.writing, x.reserved
		c.Hold(false)
		expect.Equal(t, o.held, x.held,
			"%d bytes, %d are written, %d reserved: o.held", x.n, x.writing, x.reserved)
		expect.Equal(t, s.Memory.Used(), x.held,
			"%d bytes, %d are written, %d reserved: s.Memory.Used()", x.n, x.writing, x.reserved)
		expect.Equal(t, o.state, open,
			"%d bytes, %d are written, %d reserved: o.state", x.n, x.writing, x.reserved)
	}
	other := connOf(s)
	must.That(t, s.Memory.Try(other, budget.Input, 1<<20, true), "no memory")
	o.buf, o.writing, o.reserved = make([]byte, 4*FlushSize), 0, 0
	c.Grown(true)
	expect.Equal(t, o.state, open, "4 times FlushSize: %d held: o.state", o.held)
	expect.Equal(t, o.held, 4*FlushSize, "4 times FlushSize: %d held: o.held", o.held)
	o.buf = make([]byte, 4*FlushSize+1)
	c.Grown(false)
	expect.Equal(t, o.state, open, "by its own goroutine: %d held: o.state", o.held)
	expect.Equal(t, o.held, 4*FlushSize+holdStep,
		"by its own goroutine: %d held: o.held", o.held)
	o.buf = make([]byte, 4*FlushSize+holdStep)
	c.Grown(true)
	expect.Equal(t, o.state, open, "what is held already")
	o.buf = make([]byte, 4*FlushSize+holdStep+1)
	c.Grown(true)
	expect.Equal(t, o.state, dead, "more, by others: o.state")
	expect.Equal(t, o.why, ends.Slow, "more, by others: o.why")
}

// Memory that is reserved for a reply is also held in steps, in addition to the bytes that already wait. If
// the reply is built at once, it has a buffer of its own.
func TestReservedMemoryIsHeldInSteps(t *testing.T) {
	for _, x := range []struct {
		size, waits int
		now         bool
		held        int
	}{
		{100, 0, true, 0}, {FlushSize + 1, 0, true, FlushSize + holdStep},
		{1<<20 + 1, 0, false, 1<<20 + holdStep},
		{1 << 20, 1000, true, 1<<20 + holdStep}, {1 << 20, 1000, false, 1<<20 + holdStep},
	} {
		s, c := quiet(t, 0, 0, 0)
		o := &c.Outbox
		o.writing, o.flushing = x.waits, true // as if the waiting bytes were being written
		must.That(t, c.Reserve(x.size, x.now), "no memory")
		expect.Equal(t, o.held, x.held, "%d bytes behind %d: o.held", x.size, x.waits)
		expect.Equal(t, s.Memory.Used(), x.held,
			"%d bytes behind %d: s.Memory.Used()", x.size, x.waits)
		expect.Equal(t, o.reserved, x.size, "%d bytes behind %d: o.reserved", x.size, x.waits)
		expect.Equal(t, cap(o.buf) >= x.size+KeepSize, x.now, "%d bytes: a buffer of %d", x.size, cap(o.buf))
		o.Append([]byte("frame"))
		must.That(t, c.Reserve(x.size, true), "no memory")
		if expect.Equal(t, len(o.full), 1, "a frame before the reply: len(o.full)") {
			expect.Equal(t, string(o.full[0].b), "frame",
				"a frame before the reply: string(o.full[0].b)")
			expect.Equal(t, len(o.buf), 0, "a frame before the reply: len(o.buf)")
		}
		c.Outbox.Close(ends.Moved)
		expect.That(t, !c.Reserve(x.size, true),
			"after the end: want !c.Reserve(x.size, true)")
		expect.Equal(t, o.reserved, 0, "after the end: o.reserved")
	}
}
