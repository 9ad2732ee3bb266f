package clients

import (
	"encoding/binary"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
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

// header splits a frame, which is at least headerSize long.
func header(frame []byte) (xid int32, op jute.OpCode, body []byte) {
	return int32(binary.BigEndian.Uint32(frame)), jute.OpCode(binary.BigEndian.Uint32(frame[4:])),
		frame[headerSize:]
}

// handle carries out one request. It reports false when no more of the connection may be read.
// Answers from this server alone wait for the replies to the connection's own writes; the writes
// themselves do not wait.
func (c *conn) handle(frame []byte) bool {
	xid, op, body := header(frame)
	class := classOf(op)
	c.idle = class == pingOp
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
		return c.reply(xid, op, c.replica.Zxid(), jute.OK, c.appendWhoAmI(nil))
	case refusedOp:
		return c.refuseOp(xid, op)
	case reconfigOp:
		return c.reconfig(xid, body)
	}
	c.replyLast(xid, -1, jute.Unimplemented, endUnknownOp)
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
			c.close(endCutOff)
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
	if !o.accepts(&c.srv.o) {
		return false
	}
	b, at := o.beginReply(xid, zxid, len(record))
	if b = append(b, record...); op == jute.OpSASL {
		o.endWhole(b, at, code) // a negotiation that fails has an answer, too
	} else {
		o.endReply(b, at, code)
	}
	c.answered(pending{xid: xid, op: op, at: c.arrived, followed: c.followed},
		&state.Outcome{Code: code, Zxid: zxid, Reply: record}, c.srv.now())
	return true
}

// replyLast appends an error reply and ends the connection behind it.
func (c *conn) replyLast(xid int32, zxid int64, code jute.ErrCode, why endReason) {
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
