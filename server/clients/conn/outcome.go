package conn

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/observe"
)

// Done handles the outcome of the oldest pending request, and answers the reads that are parked after it. It
// implements state.Waiter.
func (c *Conn) Done(out *state.Outcome, st *state.State) {
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
		c.shared.Outboxes.Kick() // flush now: an unknown outcome belongs to no batch whose end would do it
	}
}

// done() appends the reply to the request p. The outbox is locked.
func (c *Conn) done(p outbox.Pending, out *state.Outcome) {
	o := &c.out
	if out.Divided {
		c.shared.Counts.Divided.Add(1)
	}
	switch {
	case out.Unknown:
		o.Die(ends.Unknown)
		c.follow(p.Followed, p.Xid, out, c.shared.Now())
	case out.Refused:
		o.Die(ends.Gone)
		c.follow(p.Followed, p.Xid, out, c.shared.Now())
	case p.Op == state.OpBarrier: // no reply: this server made the request itself, to delay a read
	case !c.out.Accepts(): // the client gets no reply, but a log may still record its request
		c.followApplied(p, out, c.shared.batchTime(out))
	default:
		b, at := o.BeginReply(p.Xid, out.Zxid, len(out.Reply))
		if out.Code == jute.OK {
			b = append(b, out.Reply...)
		}
		o.EndReply(b, at, out.Code)
		c.out.Grown(true)
		c.applied(p, out)
		if p.Op == jute.OpCloseSession {
			o.End(ends.Session)
		}
	}
}

// helloDone handles the outcome of a connect request. It unlocks the outbox while it registers the session's
// connection.
func (c *Conn) helloDone(p outbox.Pending, out *state.Outcome) {
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

// reply() appends a reply that needs no state.
func (c *Conn) reply(xid int32, op jute.OpCode, zxid int64, code jute.ErrCode, record []byte) bool {
	o := &c.out
	o.Lock()
	defer o.Unlock()
	if !c.out.Accepts() { // the client gets no reply, but a log may still record its request
		c.follow(c.reader.followed, xid, &state.Outcome{Code: code, Zxid: zxid}, c.shared.Now())
		return false
	}
	b, at := o.BeginReply(xid, zxid, len(record))
	if b = append(b, record...); op == jute.OpSASL {
		o.EndWhole(b, at, code) // keep the record even with an error: clients read it after a failed negotiation
	} else {
		o.EndReply(b, at, code)
	}
	c.answered(outbox.Pending{Xid: xid, Op: op, At: c.reader.arrived, Followed: c.reader.followed},
		&state.Outcome{Code: code, Zxid: zxid, Reply: record}, c.shared.Now())
	return true
}

// replyLast appends an error reply and ends the connection after it.
func (c *Conn) replyLast(xid int32, zxid int64, code jute.ErrCode, why ends.Reason) {
	if c.reply(xid, jute.OpError, zxid, code, nil) {
		c.out.Last(nil, why)
	}
}

// propose proposes a request and adds it to the pending ones. It returns false when the connection has ended,
// or ends because this server no longer serves.
func (c *Conn) propose(p outbox.Pending, r state.Request) bool {
	o := &c.out
	if p.Followed = c.reader.followed; p.Followed != nil {
		p.Followed.Body, p.Followed.Begun = observe.WithoutData(p.Op, p.Followed.Body), c.shared.Now()
	}
	o.Lock()
	if !o.Open() {
		o.Unlock()
		c.notProposed(r.Op)
		return false
	}
	o.Push(p)
	if p.Op == jute.OpCloseSession {
		o.SetClosing()
	}
	o.Unlock()
	if c.replica.Propose(r, c) != nil {
		c.notProposed(r.Op)
		c.out.Close(ends.Serving)
		return false
	}
	return true
}

// notProposed undoes the count of a session that this connection will not create.
func (c *Conn) notProposed(op jute.OpCode) {
	if op == state.OpCreateSession {
		c.countCreating(-1)
	}
}
