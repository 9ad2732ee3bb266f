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

// holdStep is what an outbox grows by before srv.memory hears of it: many events are short.
const holdStep = 16 << 10

// grown is hold after frames were appended.
func (c *conn) grown(others bool) {
	if c.out.size() > flushSize {
		c.hold(others)
	}
}

// hold tells srv.memory how much the outbox holds, after it grew or shrank. If others fill an
// outbox that is already large, or outcomes or parked reads do, it dies when there is no room for more.
// The outbox is locked.
func (c *conn) hold(others bool) {
	o := &c.out
	n := o.size() + o.writing + o.reserved - o.lent
	if n <= flushSize {
		n = min(o.lent, 1) // one that has borrowed something is there
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

// stuckTime is how long a client may take nothing while too much waits for it.
const stuckTime = 2 * time.Second

// accepts reports whether a frame may be appended. A client that does not take
// what it is sent loses its connection, never a part of what it is sent. However much it is sent at once,
// it has its time. The outbox is locked.
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
