package clients

import (
	"encoding/binary"
	"io"
	"math"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// connectReadOnly answers a connect request while this server knows no leader. It lets in only
// clients that ask for a read-only session. A session that this server knows goes on for reads;
// no leader hears that this server saw it. A new session is known nowhere else and lasts as long
// as its connection.
func (c *conn) connectReadOnly(r jute.ConnectRequest, timeout int32) endReason {
	s := c.srv
	if !r.ReadOnly {
		s.metrics.ClosedNotServing.Add(1)
		return endServing
	}
	if r.LastZxidSeen > c.replica.Zxid() {
		return endBehind // and there is no leader to catch up with
	}
	id := r.SessionID
	var password [jute.PasswordSize]byte
	if id != 0 {
		if len(r.Password) != len(password) {
			return c.refuse()
		}
		password = [jute.PasswordSize]byte(r.Password)
		known := false
		c.replica.View(func(st *state.State) { _, known = st.Sessions().Get(id) })
		if !known || c.wrongPassword(id, password) {
			// Only a leader can say whether the session is over.
			return endServing
		}
	} else {
		var random [8]byte
		if _, err := io.ReadFull(s.o.Rand, random[:]); err != nil {
			return endUnknown
		}
		if _, err := io.ReadFull(s.o.Rand, password[:]); err != nil {
			return endUnknown
		}
		// Sessions of the log are positive.
		id = int64(binary.BigEndian.Uint64(random[:])) | math.MinInt64
	}
	older, ok := s.claim(c, id)
	if !ok {
		return endElse
	}
	if older != nil && older != c {
		older.retire(endMoved)
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.state != outboxOpen {
		return endElse
	}
	if !s.readOnly.Load() { // it has ended by now
		c.out.die(endServing)
		return endServing
	}
	c.timeout = time.Duration(timeout) * time.Millisecond
	c.out.buf = jute.AppendConnectResponse(c.out.buf, timeout, id, password, c.mayRead, true)
	c.out.frames++
	c.phase.Store(int32(phaseOpen))
	return endNone
}

// local reports whether the session is known to this server alone.
func (c *conn) local() bool { return c.session < 0 }

// mayOnlyRead answers a request that a session without a leader cannot make.
func (c *conn) mayOnlyRead(class class, xid int32, op jute.OpCode) bool {
	zxid := c.replica.Zxid()
	if class != closeOp || !c.local() { // a known session lives on where there is a leader
		return c.reply(xid, op, zxid, jute.NotReadOnly, nil)
	}
	if c.reply(xid, op, zxid, jute.OK, nil) {
		c.last(nil, endSession)
	}
	return false
}
