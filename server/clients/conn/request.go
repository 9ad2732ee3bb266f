package conn

import (
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/request"
)

// handle carries out one request. It returns false when nothing more may be read from the connection. If the
// request needs no log entry, handle first waits for the replies to the connection's earlier writes. A write
// need not wait: the log keeps the order.
func (c *Conn) handle(frame []byte) bool {
	xid, op, body := inbox.Header(frame)
	class := request.Of(op)
	c.reader.idle = class == request.Ping
	away := class != request.Auth && class != request.SASL && !c.admitted()
	if class != request.Read || away { // run() calls seen() for reads, several at a time
		c.seen(1, op, body)
	}
	if away {
		return c.turnAway(xid)
	}
	switch class {
	case request.Write, request.Close, request.Refused, request.Reconfig:
		if c.readOnly {
			return c.mayOnlyRead(class, xid, op)
		}
	}
	switch class {
	case request.Write:
		return c.writeOp(xid, op, body)
	case request.Close:
		if c.writeOp(xid, op, body) {
			c.out.Await(0, 0)
		}
		return false
	}
	if class == request.Read {
		return c.foresee(request.ReadCost(body)) && c.catchUp() && c.read(frame)
	}
	if class != request.CatchUp && !c.afford(request.PlainSteps+int64(len(body)/request.DecodeBytes)) {
		return false
	}
	if !c.out.Await(0, 0) {
		return false
	}
	switch class {
	case request.Ping:
		return c.ping()
	case request.CatchUp:
		return c.setWatches(xid, op, body)
	case request.Auth:
		return c.auth(xid, body)
	case request.SASL:
		return c.sasl(xid, body)
	case request.Local:
		return c.reply(xid, op, c.replica.Zxid(), jute.OK, c.proof.IDs.AppendWhoAmI(nil))
	case request.Refused:
		return c.refuseOp(xid, op)
	case request.Reconfig:
		return c.reconfig(xid, body)
	}
	c.replyLast(xid, -1, jute.Unimplemented, ends.UnknownOp)
	return false
}

// admitted reports whether the client may send requests other than authentication.
func (c *Conn) admitted() bool { return c.proof.IDs.HasOneOf(c.shared.Options.RequireAuth) }

// turnAway answers a request of a client that must authenticate first.
func (c *Conn) turnAway(xid int32) bool {
	c.shared.Metrics.AuthFailed.Add(1)
	c.say("closed: the client asks for something before it has authenticated", "required",
		c.shared.Options.RequireAuth)
	c.replyLast(xid, 0, jute.SessionClosedRequireAuth, ends.Auth)
	return false
}

// pingPoll is how often a ping that waits checks again whether it may be answered.
const pingPoll = 20 * time.Millisecond

// ping answers a ping only while the leader hears this server. Otherwise the client gets no answer, so that
// it looks for another server before its session ends. While there is no leader the answer waits, for at most
// a third of the session's timeout.
func (c *Conn) ping() bool {
	for began := c.shared.Now(); !c.readOnly && !c.replica.PingOK(c.timeout); {
		if c.shared.Now()-began > c.timeout/3 || !c.out.IsOpen() {
			c.out.Close(ends.CutOff)
			return false
		}
		time.Sleep(pingPoll)
	}
	return c.reply(jute.XidPing, jute.OpPing, c.replica.Zxid(), jute.OK, nil)
}

// refuseOp answers operations that clients may not use.
func (c *Conn) refuseOp(xid int32, op jute.OpCode) bool {
	code := jute.Unimplemented // the operation `check` is valid only within a multi
	if op == jute.OpDeleteContainer {
		code = jute.BadArguments
	}
	return c.reply(xid, op, c.replica.Zxid(), code, nil)
}

// writeOp proposes a client's request.
func (c *Conn) writeOp(xid int32, op jute.OpCode, body []byte) bool {
	if !c.out.Await(c.shared.Options.MaxPending-1, c.shared.Options.MaxPending/2) {
		return false
	}
	r := state.Request{Session: c.session, Gen: c.gen, Op: op, Body: body}
	if ids := *c.proof.IDs.Load(); len(ids) > 1 {
		r.IDs = ids
	}
	if op == jute.OpCloseSession { // c.gen: do not end a session that has moved to another connection
		r = state.End(c.session, c.gen, state.EndClosed)
	}
	est := request.WriteCost(op, body)
	if !c.afford(est) {
		return false
	}
	est -= int64(request.WriteSteps + len(body)/request.DecodeBytes)
	p := outbox.Pending{Xid: xid, Op: op, At: c.reader.arrived, Est: est, Long: len(body) > parkedAnswer}
	if op != jute.OpMulti {
		d := jute.NewDecoder(body)
		path, _ := d.String()
		// A name gets a place among the sizes only by a write that succeeds: see applied().
		if name := c.shared.Metrics.Writes.ObserveKnown(path, int64(len(body))); name != "" {
			p.First = &outbox.FirstSize{Name: name, Bytes: int64(len(body))}
		}
	}
	return c.propose(p, r)
}

// mayOnlyRead answers a request that a read-only session may not make. Such a session has no leader.
func (c *Conn) mayOnlyRead(class request.Class, xid int32, op jute.OpCode) bool {
	zxid := c.replica.Zxid()
	if class != request.Close || c.asked != 0 { // a session that began elsewhere lives on: refuse to close it
		return c.reply(xid, op, zxid, jute.NotReadOnly, nil)
	}
	if c.reply(xid, op, zxid, jute.OK, nil) {
		c.out.Last(nil, ends.Session)
	}
	return false
}
