package clients

import (
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
)

// Account implements budget.Holder.
func (c *conn) Account() *budget.Account { return &c.from.Account }

// Number implements budget.Holder.
func (c *conn) Number() uint64 { return c.number }

// IsOpen implements budget.Holder and rest.Sleeper.
func (c *conn) IsOpen() bool { return c.out.IsOpen() }

// Alive implements budget.Holder.
func (c *conn) Alive() { c.alive(c.srv.now()) }

// Close implements budget.Holder.
func (c *conn) Close(why ends.Reason) { c.out.Close(why) }

// Wake implements outbox.Owner.
func (c *conn) Wake() { c.srv.resting.Wake(c) }

// Kill ends the connection on behalf of the goroutine that applies the log.
func (c *conn) Kill(why ends.Reason) { c.out.Kill(why) }

// retire ends a connection whose session has a newer connection, or has ended.
func (c *conn) retire(why ends.Reason) {
	c.pulse.retired.Store(true)
	c.out.Kill(why)
}
