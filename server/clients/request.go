package clients

import (
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/observe"
)

// class is how an operation is carried out.
type class uint8

const (
	unknownOp class = iota
	readOp          // from the local state, under View
	writeOp         // through the log
	closeOp         // through the log, and the end of the connection
	pingOp
	catchUpOp  // setWatches
	authOp     // changes the client's identities
	saslOp     // the same, in several rounds
	localOp    // answered from the connection alone
	refusedOp  // known, and never carried out
	reconfigOp // changes the membership
)

func classOf(op jute.OpCode) class {
	switch op {
	case jute.OpGetData, jute.OpExists, jute.OpGetChildren, jute.OpGetChildren2, jute.OpGetACL,
		jute.OpMultiRead, jute.OpGetEphemerals, jute.OpGetAllChildrenNumber,
		jute.OpAddWatch, jute.OpRemoveWatches, jute.OpCheckWatches:
		return readOp
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL, jute.OpDelete,
		jute.OpSetData, jute.OpSetACL, jute.OpMulti, jute.OpSync:
		return writeOp
	case jute.OpCloseSession:
		return closeOp
	case jute.OpPing:
		return pingOp
	case jute.OpSetWatches, jute.OpSetWatches2:
		return catchUpOp
	case jute.OpAuth:
		return authOp
	case jute.OpSASL:
		return saslOp
	case jute.OpWhoAmI:
		return localOp
	case jute.OpCheck, jute.OpDeleteContainer:
		return refusedOp
	case jute.OpReconfig:
		return reconfigOp
	}
	return unknownOp
}

// handle carries out one request. It reports false when no more of the connection may be read.
// Answers from this server alone wait for the replies to the connection's own writes; the writes
// themselves do not wait.
func (c *conn) handle(frame []byte) bool {
	xid, op, body := inbox.Header(frame)
	class := classOf(op)
	c.reader.idle = class == pingOp
	if class != readOp { // run counts its own
		c.seen(1, op, body)
	}
	if class != authOp && class != saslOp && !c.admitted() {
		return c.turnAway(xid)
	}
	switch class {
	case writeOp, closeOp, refusedOp, reconfigOp:
		if c.readOnly {
			return c.mayOnlyRead(class, xid, op)
		}
	}
	switch class {
	case writeOp:
		return c.writeOp(xid, op, body)
	case closeOp:
		if c.writeOp(xid, op, body) {
			c.awaitReplies(0, 0)
		}
		return false
	}
	if class == readOp {
		return c.foresee(readCost(body)) && c.catchUp() && c.read(frame)
	}
	if class != catchUpOp && !c.afford(plainSteps+int64(len(body)/decodeBytes)) {
		return false
	}
	if !c.awaitReplies(0, 0) {
		return false
	}
	switch class {
	case pingOp:
		return c.ping()
	case catchUpOp:
		return c.setWatches(xid, op, body)
	case authOp:
		return c.auth(xid, body)
	case saslOp:
		return c.sasl(xid, body)
	case localOp:
		return c.reply(xid, op, c.replica.Zxid(), jute.OK, c.proof.ids.AppendWhoAmI(nil))
	case refusedOp:
		return c.refuseOp(xid, op)
	case reconfigOp:
		return c.reconfig(xid, body)
	}
	c.replyLast(xid, -1, jute.Unimplemented, ends.UnknownOp)
	return false
}

// admitted reports whether the client may ask for anything but authentication.
func (c *conn) admitted() bool { return c.proof.ids.HasOneOf(c.srv.o.RequireAuth) }

// turnAway answers a request of a client that must authenticate first.
func (c *conn) turnAway(xid int32) bool {
	c.srv.metrics.AuthFailed.Add(1)
	c.say("closed: the client asks for something before it has authenticated", "required", c.srv.o.RequireAuth)
	c.replyLast(xid, 0, jute.SessionClosedRequireAuth, ends.Auth)
	return false
}

// pingPoll is how often a ping that waits looks again.
const pingPoll = 20 * time.Millisecond

// ping answers only while the leader hears of this server's clients: otherwise the client must
// look for a better server while its session lasts. Between two leaders the answer waits, for a
// third of the session's timeout at most.
func (c *conn) ping() bool {
	for began := c.srv.now(); !c.readOnly && !c.replica.PingOK(c.timeout); {
		if c.srv.now()-began > c.timeout/3 || !c.isOpen() {
			c.close(ends.CutOff)
			return false
		}
		time.Sleep(pingPoll)
	}
	return c.reply(jute.XidPing, jute.OpPing, c.replica.Zxid(), jute.OK, nil)
}

// isOpen reports whether the connection has not begun to end.
func (c *conn) isOpen() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.state == outboxOpen
}

// reply appends a reply that needs nothing of the state.
func (c *conn) reply(xid int32, op jute.OpCode, zxid int64, code jute.ErrCode, record []byte) bool {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if !c.accepts() {
		return false
	}
	b, at := o.beginReply(xid, zxid, len(record))
	if b = append(b, record...); op == jute.OpSASL {
		o.endWhole(b, at, code) // a negotiation that fails has an answer, too
	} else {
		o.endReply(b, at, code)
	}
	c.answered(pending{xid: xid, op: op, at: c.reader.arrived, followed: c.reader.followed},
		&state.Outcome{Code: code, Zxid: zxid, Reply: record}, c.srv.now())
	return true
}

// replyLast appends an error reply and ends the connection behind it.
func (c *conn) replyLast(xid int32, zxid int64, code jute.ErrCode, why ends.Reason) {
	if c.reply(xid, jute.OpError, zxid, code, nil) {
		c.last(nil, why)
	}
}

// refuseOp answers operations that exist, but not for clients.
func (c *conn) refuseOp(xid int32, op jute.OpCode) bool {
	code := jute.Unimplemented // check makes sense inside a multi only
	if op == jute.OpDeleteContainer {
		code = jute.BadArguments
	}
	return c.reply(xid, op, c.replica.Zxid(), code, nil)
}

// propose hands on a request and remembers that its reply is due. It reports false when the
// connection has ended, or ends because this server no longer serves.
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

// writeOp proposes a client's request.
func (c *conn) writeOp(xid int32, op jute.OpCode, body []byte) bool {
	if !c.awaitReplies(c.srv.o.MaxPending-1, c.srv.o.MaxPending/2) {
		return false
	}
	r := state.Request{Session: c.session, Gen: c.gen, Op: op, Body: body}
	if ids := *c.proof.ids.Load(); len(ids) > 1 {
		r.IDs = ids
	}
	if op == jute.OpCloseSession { // it may come when another connection has the session
		r = state.End(c.session, c.gen, state.EndClosed)
	}
	est := writeCost(op, body)
	if !c.afford(est) {
		return false
	}
	est -= int64(writeSteps + len(body)/decodeBytes)
	if op != jute.OpMulti { // before a client that has its answer may look at the metrics
		d := jute.NewDecoder(body)
		path, _ := d.String()
		c.srv.metrics.Writes.Observe(path, int64(len(body)))
	}
	return c.propose(pending{xid: xid, op: op, at: c.reader.arrived, est: est,
		long: len(body) > parkedAnswer}, r)
}

// Done takes the outcome of the oldest pending request, and answers the reads that are parked behind
// it. It implements state.Waiter.
func (c *conn) Done(out *state.Outcome, st *state.State) {
	o := &c.out
	o.mu.Lock()
	p := o.front()
	c.charge(int64(out.Steps) - p.est)
	if p.op == state.OpAttach || p.op == state.OpCreateSession {
		if p.op == state.OpCreateSession {
			c.countCreating(-1) // the state has it, or nothing will
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
		c.srv.flush.kick() // there may be no batch that ends
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
	case p.op == state.OpBarrier: // the read behind it has the reply
	case c.accepts():
		b, at := o.beginReply(p.xid, out.Zxid, len(out.Reply))
		if out.Code == jute.OK {
			b = append(b, out.Reply...)
		}
		o.endReply(b, at, out.Code)
		c.grown(true)
		c.applied(p, out)
		if p.op == jute.OpCloseSession {
			o.end(ends.Session)
		}
	}
}

// helloDone is done for a connect request. It unlocks the outbox while the session finds its connection.
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

// mayOnlyRead answers a request that a session without a leader cannot make.
func (c *conn) mayOnlyRead(class class, xid int32, op jute.OpCode) bool {
	zxid := c.replica.Zxid()
	if class != closeOp || c.asked != 0 { // a session of the log lives on where there is a leader
		return c.reply(xid, op, zxid, jute.NotReadOnly, nil)
	}
	if c.reply(xid, op, zxid, jute.OK, nil) {
		c.last(nil, ends.Session)
	}
	return false
}
