package clients

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/observe"
)

// reply appends a reply that needs no state.
func (c *conn) reply(xid int32, op jute.OpCode, zxid int64, code jute.ErrCode, record []byte) bool {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if !c.accepts() {
		return false
	}
	b, at := o.beginReply(xid, zxid, len(record))
	if b = append(b, record...); op == jute.OpSASL {
		o.endWhole(b, at, code) // a failed negotiation also has a record
	} else {
		o.endReply(b, at, code)
	}
	c.answered(pending{xid: xid, op: op, at: c.reader.arrived, followed: c.reader.followed},
		&state.Outcome{Code: code, Zxid: zxid, Reply: record}, c.srv.now())
	return true
}

// replyLast appends an error reply and ends the connection after it.
func (c *conn) replyLast(xid int32, zxid int64, code jute.ErrCode, why ends.Reason) {
	if c.reply(xid, jute.OpError, zxid, code, nil) {
		c.last(nil, why)
	}
}

// propose proposes a request and adds it to the pending ones. It returns false when the connection has ended,
// or ends because this server no longer serves.
func (c *conn) propose(p pending, r state.Request) bool {
	o := &c.out
	if p.followed = c.reader.followed; p.followed != nil {
		p.followed.Body, p.followed.Begun = observe.WithoutData(p.op, p.followed.Body), c.srv.now()
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
		if r.Op == state.OpCreateSession {
			c.countCreating(-1)
		}
		c.close(ends.Serving)
		return false
	}
	return true
}

// awaitReplies waits until at most left of the connection's requests are pending, if more than limit are. It
// returns false when the connection has ended.
func (c *conn) awaitReplies(limit, left int) bool {
	o := &c.out
	o.mu.Lock()
	if o.pendingLen() > limit && o.state == outboxOpen {
		if limit > 0 {
			c.srv.metrics.Throttled.Add(1)
		}
		o.mu.Unlock()
		c.flush()
		o.mu.Lock()
		for o.pendingLen() > left && o.state == outboxOpen {
			o.sleep(left)
		}
	}
	open := o.state == outboxOpen
	o.mu.Unlock()
	return open
}

// countCreating counts the sessions that are not in the state yet.
func (c *conn) countCreating(n int64) {
	c.srv.creating.Add(n)
	c.from.creating.Add(n)
}
