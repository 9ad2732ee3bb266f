package clients

import (
	"time"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
)

// Account implements budget.Holder.
func (c *conn) Account() *budget.Account { return &c.from.account }

// Number implements budget.Holder.
func (c *conn) Number() uint64 { return c.number }

// IsOpen implements budget.Holder and rest.Sleeper.
func (c *conn) IsOpen() bool { return c.isOpen() }

// Alive implements budget.Holder.
func (c *conn) Alive() { c.alive(c.srv.now()) }

// Close implements budget.Holder.
func (c *conn) Close(why ends.Reason) { c.close(why) }

// holdStep is how many bytes an outbox grows before it reports to srv.memory: many events are short.
const holdStep = 16 << 10

// grown calls hold after frames were appended.
func (c *conn) grown(others bool) {
	if c.out.size() > flushSize {
		c.hold(others)
	}
}

// hold reports the size of the outbox to srv.memory, after it grew or shrank. With others, the growth comes
// from other clients, outcomes or parked reads: then hold closes an outbox that is already large if there is
// no more room. The caller has locked the outbox.
func (c *conn) hold(others bool) {
	o := &c.out
	n := o.size() + o.writing + o.reserved - o.lent
	if n <= flushSize {
		n = min(o.lent, 1) // count an outbox with borrowed buffers at least as one byte
	}
	if n = (n + holdStep - 1) / holdStep * holdStep; n == o.held {
		return
	}
	if n > o.held && others && n > 4*flushSize && !c.srv.memory.Try(c, budget.Output, n, false) {
		o.die(ends.Slow)
		return
	}
	c.srv.memory.Try(c, budget.Output, n, true)
	o.held = n
}

// stuckTime is how long a client with a full outbox may read nothing.
const stuckTime = 2 * time.Second

// accepts reports whether a frame may be appended. A client that does not read its frames loses the
// connection, never single frames. Even a client that gets very much at once has stuckTime to read. The
// caller has locked the outbox.
func (c *conn) accepts() bool {
	o := &c.out
	if o.state != outboxOpen {
		return false
	}
	if o.size() < c.srv.o.MaxOutboxBytes && o.frames < c.srv.o.MaxOutboxFrames {
		return true
	}
	now := c.srv.now()
	if o.stuck == 0 {
		o.stuck = now
	}
	if now-o.stuck < stuckTime {
		return true
	}
	o.die(ends.Slow)
	return false
}
