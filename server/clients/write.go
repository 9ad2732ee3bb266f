package clients

import (
	"bytes"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// propose hands on a request and remembers that its reply is due. It reports false when the
// connection has ended, or ends because this server no longer serves.
func (c *conn) propose(p pending, r state.Request) bool {
	o := &c.out
	if p.followed = c.followed; p.followed != nil {
		p.followed.Body, p.followed.Begun = bytes.Clone(p.followed.Body), c.srv.now()
	}
	o.mu.Lock()
	if o.state != outboxOpen {
		o.mu.Unlock()
		return false
	}
	o.push(p)
	o.closing = o.closing || p.op == jute.OpCloseSession
	o.mu.Unlock()
	if c.replica.Propose(r, c) != nil {
		c.close(endServing)
		return false
	}
	return true
}

// writeOp proposes a client's request.
func (c *conn) writeOp(xid int32, op jute.OpCode, body []byte) bool {
	if !c.awaitReplies(c.srv.o.MaxPending-1, c.srv.o.MaxPending/2) {
		return false
	}
	r := state.Request{Session: c.session, Gen: c.gen, Op: op, Body: body}
	if ids := *c.ids.Load(); len(ids) > 1 {
		r.IDs = ids
	}
	est := writeCost(op, body)
	if !c.afford(est) {
		return false
	}
	est -= int64(writeSteps + len(body)/decodeBytes)
	proposed := c.propose(pending{xid: xid, op: op, at: c.arrived, est: est, long: len(body) > parkedAnswer}, r)
	if op != jute.OpMulti {
		d := jute.NewDecoder(body)
		if path, _ := d.String(); path != "" {
			c.srv.metrics.Writes.Observe(path, int64(len(body)))
		}
	}
	return proposed
}

// Done takes the outcome of the oldest pending request, and answers the reads that are parked behind
// it. It implements state.Waiter.
func (c *conn) Done(out *state.Outcome, st *state.State) {
	o := &c.out
	o.mu.Lock()
	p := o.front()
	c.charge(int64(out.Steps) - p.est)
	if p.op == state.OpAttach || p.op == state.OpCreateSession {
		o.mu.Unlock()
		c.helloDone(out)
		o.mu.Lock()
	} else {
		c.done(p, out)
	}
	o.pop()
	c.answerParked(st)
	c.touch()
	o.mu.Unlock()
	if out.Unknown {
		c.srv.flush.kick() // there may be no batch that ends
	}
}

// done appends the reply to p. The outbox is locked.
func (c *conn) done(p pending, out *state.Outcome) {
	o := &c.out
	switch {
	case out.Unknown:
		o.die(endUnknown)
		c.follow(p.followed, p.xid, out, c.srv.now())
	case out.Refused:
		o.die(endGone)
		c.follow(p.followed, p.xid, out, c.srv.now())
	case o.accepts(&c.srv.o):
		b, at := o.beginReply(p.xid, out.Zxid, len(out.Reply))
		if out.Code == jute.OK {
			b = append(b, out.Reply...)
		}
		o.endReply(b, at, out.Code)
		c.applied(p, out)
		if p.op == jute.OpCloseSession {
			o.end(endSession)
		}
	}
}

// helloDone is done for a connect request.
func (c *conn) helloDone(out *state.Outcome) {
	if !out.Unknown && !out.Refused && out.Code == jute.OK {
		c.attached(out)
		return
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if out.Unknown {
		c.out.die(endUnknown)
	} else {
		c.refusal()
	}
}
