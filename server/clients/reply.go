package clients

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/observe"
)

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
		&state.Outcome{Code: code, Zxid: zxid, Reply: record}, c.srv.now())
	return true
}

// replyLast appends an error reply and ends the connection after it.
func (c *conn) replyLast(xid int32, zxid int64, code jute.ErrCode, why ends.Reason) {
	if c.reply(xid, jute.OpError, zxid, code, nil) {
		c.out.Last(nil, why)
	}
}

// propose proposes a request and adds it to the pending ones. It returns false when the connection has ended,
// or ends because this server no longer serves.
func (c *conn) propose(p outbox.Pending, r state.Request) bool {
	o := &c.out
	if p.Followed = c.reader.followed; p.Followed != nil {
		p.Followed.Body, p.Followed.Begun = observe.WithoutData(p.Op, p.Followed.Body), c.srv.now()
	}
	o.Lock()
	if !o.Open() {
		o.Unlock()
		return false
	}
	o.Push(p)
	if p.Op == jute.OpCloseSession {
		o.SetClosing()
	}
	o.Unlock()
	if c.replica.Propose(r, c) != nil {
		if r.Op == state.OpCreateSession {
			c.countCreating(-1)
		}
		c.out.Close(ends.Serving)
		return false
	}
	return true
}

// countCreating counts the sessions that are not in the state yet.
func (c *conn) countCreating(n int64) {
	c.srv.creating.Add(n)
	c.from.creating.Add(n)
}
