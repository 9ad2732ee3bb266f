package clients

import (
	"bytes"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// A read behind writes of its own connection must see what they change, and nothing that the
// connection asks for later. Such a read is parked among the pending requests, so that the requests
// behind it need not wait: the goroutine that applies the log answers it right behind the outcome of
// the write before it. That goroutine holds up everybody, so only reads with short answers are
// parked; others wait until their connection's writes are answered. A change by another client may
// make an answer long after all: then it is bounded as events are.
const (
	parkedFrame  = 256     // length of a request that may be parked
	parkedAnswer = 4 << 10 // length of the answer, as the state is when the request comes
)

// park parks a read if requests of its connection are pending. wait tells that some are, but that
// this read must wait for them.
func (c *conn) park(st *state.State, frame []byte) (parked, wait bool) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.pendingLen()
	if n == 0 {
		return false, false
	}
	xid, op, body := header(frame)
	switch op {
	case jute.OpGetData, jute.OpExists, jute.OpGetACL, jute.OpGetChildren, jute.OpGetChildren2:
	default:
		return false, true
	}
	if n >= c.srv.o.MaxPending/2 || len(frame) > parkedFrame || o.long > 0 {
		return false, true
	}
	size, steps := st.Tree().AnswerSize(op, c.session, body)
	if c.cost += int64(steps); size > parkedAnswer {
		return false, true
	}
	p := pending{xid: xid, op: op, at: c.arrived, parked: bytes.Clone(frame)}
	c.seen(0, op, p.parked[headerSize:])
	p.followed = c.followed
	o.push(p)
	o.stat.Received(1)
	c.srv.metrics.PacketsReceived.Add(1)
	return true, false
}

// answerParked answers the parked reads that no request is before any more. The outbox is locked,
// except while a watch is set.
func (c *conn) answerParked(st *state.State) {
	o := &c.out
	for o.pendingLen() > 0 && o.front().parked != nil {
		if st != nil && o.accepts(&c.srv.o) {
			c.answerOne(st, o.front())
		}
		o.pop()
	}
}

func (c *conn) answerOne(st *state.State, p pending) {
	o := &c.out
	_, op, body := header(p.parked)
	w, reply, code := c.answerRead(st, p.xid, op, body, jute.OK)
	c.charge(c.answerSteps(w, reply))
	out := state.Outcome{Code: code, Zxid: st.Zxid(), Reply: reply}
	now := c.srv.batchTime(&out)
	c.answered(p, &out, now)
	c.srv.metrics.ReadLatency.ObserveTime(max(now-p.at, 0))
	if w.set {
		o.mu.Unlock() // it comes behind the lock of the watches
		c.srv.watches.add(c, w.path, w.kind)
		o.mu.Lock()
	}
}
