package clients

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
)

// Done handles the outcome of the oldest pending request, and answers the reads that are parked after it. It
// implements state.Waiter.
func (c *conn) Done(out *state.Outcome, st *state.State) {
	o := &c.out
	o.Lock()
	p := o.Front()
	c.charge(int64(out.Steps) - p.Est)
	if p.Op == state.OpAttach || p.Op == state.OpCreateSession {
		if p.Op == state.OpCreateSession {
			c.countCreating(-1) // the session is now in the state, or never will be
		}
		c.helloDone(p, out)
	} else {
		c.done(p, out)
	}
	o.Pop()
	c.answerParked(st)
	c.out.Touch()
	o.Unlock()
	if out.Unknown {
		c.shared.outboxes.Kick() // no later batch may end this one
	}
}

// done appends the reply to p. The outbox is locked.
func (c *conn) done(p outbox.Pending, out *state.Outcome) {
	o := &c.out
	switch {
	case out.Unknown:
		o.Die(ends.Unknown)
		c.follow(p.Followed, p.Xid, out, c.shared.now())
	case out.Refused:
		o.Die(ends.Gone)
		c.follow(p.Followed, p.Xid, out, c.shared.now())
	case p.Op == state.OpBarrier: // the read after it has the reply
	case c.out.Accepts():
		b, at := o.BeginReply(p.Xid, out.Zxid, len(out.Reply))
		if out.Code == jute.OK {
			b = append(b, out.Reply...)
		}
		o.EndReply(b, at, out.Code)
		c.out.Grown(true)
		c.applied(p, out)
		if out.Divided {
			c.shared.counts.divided.Add(1)
		}
		if p.Op == jute.OpCloseSession {
			o.End(ends.Session)
		}
	}
}

// helloDone handles the outcome of a connect request. It unlocks the outbox while it registers the session's
// connection.
func (c *conn) helloDone(p outbox.Pending, out *state.Outcome) {
	switch {
	case out.Unknown:
		c.out.Die(ends.Unknown)
	case out.Refused || out.Code != jute.OK:
		c.refusal()
	default:
		c.out.Unlock()
		attached := c.attached(&out.Session)
		c.out.Lock()
		if attached {
			c.applied(p, out)
		}
	}
}

// reply appends a reply that needs no state.
func (c *conn) reply(xid int32, op jute.OpCode, zxid int64, code jute.ErrCode, record []byte) bool {
	o := &c.out
	o.Lock()
	defer o.Unlock()
	if !c.out.Accepts() {
		return false
	}
	b, at := o.BeginReply(xid, zxid, len(record))
	if b = append(b, record...); op == jute.OpSASL {
		o.EndWhole(b, at, code) // a failed negotiation also has a record
	} else {
		o.EndReply(b, at, code)
	}
	c.answered(outbox.Pending{Xid: xid, Op: op, At: c.reader.arrived, Followed: c.reader.followed},
		&state.Outcome{Code: code, Zxid: zxid, Reply: record}, c.shared.now())
	return true
}

// replyLast appends an error reply and ends the connection after it.
func (c *conn) replyLast(xid int32, zxid int64, code jute.ErrCode, why ends.Reason) {
	if c.reply(xid, jute.OpError, zxid, code, nil) {
		c.out.Last(nil, why)
	}
}
