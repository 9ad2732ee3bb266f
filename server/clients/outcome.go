package clients

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
)

// Done handles the outcome of the oldest pending request, and answers the reads that are parked after it. It
// implements state.Waiter.
func (c *conn) Done(out *state.Outcome, st *state.State) {
	o := &c.out
	o.mu.Lock()
	p := o.front()
	c.charge(int64(out.Steps) - p.est)
	if p.op == state.OpAttach || p.op == state.OpCreateSession {
		if p.op == state.OpCreateSession {
			c.countCreating(-1) // the session is now in the state, or never will be
		}
		c.helloDone(p, out)
	} else {
		c.done(p, out)
	}
	o.pop()
	c.answerParked(st)
	c.touch()
	o.mu.Unlock()
	if out.Unknown {
		c.srv.flush.kick() // no later batch may end this one
	}
}

// done appends the reply to p. The outbox is locked.
func (c *conn) done(p pending, out *state.Outcome) {
	o := &c.out
	switch {
	case out.Unknown:
		o.die(ends.Unknown)
		c.follow(p.followed, p.xid, out, c.srv.now())
	case out.Refused:
		o.die(ends.Gone)
		c.follow(p.followed, p.xid, out, c.srv.now())
	case p.op == state.OpBarrier: // the read after it has the reply
	case c.accepts():
		b, at := o.beginReply(p.xid, out.Zxid, len(out.Reply))
		if out.Code == jute.OK {
			b = append(b, out.Reply...)
		}
		o.endReply(b, at, out.Code)
		c.grown(true)
		c.applied(p, out)
		if out.Divided {
			c.srv.counts.divided.Add(1)
		}
		if p.op == jute.OpCloseSession {
			o.end(ends.Session)
		}
	}
}

// helloDone handles the outcome of a connect request. It unlocks the outbox while it registers the session's
// connection.
func (c *conn) helloDone(p pending, out *state.Outcome) {
	switch {
	case out.Unknown:
		c.out.die(ends.Unknown)
	case out.Refused || out.Code != jute.OK:
		c.refusal()
	default:
		c.out.mu.Unlock()
		attached := c.attached(&out.Session)
		c.out.mu.Lock()
		if attached {
			c.applied(p, out)
		}
	}
}
