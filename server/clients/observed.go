package clients

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/observe"
)

// counts are events that have no name in ZooKeeper's metrics.
type counts struct {
	acceptErrors atomic.Int64 // failed accepts
	foreign      atomic.Int64 // connections that spoke something else
	refused      atomic.Int64 // sessions refused
	ends         [endReasons]atomic.Int64
}

// seen is called for every request when it has come: n are counted as received. body is nil for a
// request that is longer than a frame.
func (c *conn) seen(n int, op jute.OpCode, body []byte) {
	if n > 0 {
		c.srv.metrics.PacketsReceived.Add(int64(n))
		c.out.mu.Lock()
		c.out.stat.Received(n)
		c.out.mu.Unlock()
	}
	if c.followed = c.srv.Observed.Begin(op, body); c.followed != nil {
		c.followed.Arrived, c.followed.Begun = c.arrived, c.srv.now()
	}
}

// readsAnswered counts n reads that were answered together; seen has not counted them.
func (c *conn) readsAnswered(n int) {
	m := &c.srv.metrics
	m.PacketsReceived.Add(int64(n))
	now := c.srv.now()
	d := now - c.arrived
	c.out.mu.Lock()
	c.out.stat.Received(n)
	c.out.stat.Took(n, d, now)
	c.out.mu.Unlock()
	m.Requests.ObserveN(d.Microseconds(), int64(n))
	m.ReadLatency.ObserveN(d.Microseconds(), int64(n))
}

// readAnswered notes one read that was answered. The outbox is locked.
func (c *conn) readAnswered(xid int32, op jute.OpCode, zxid int64, code jute.ErrCode, reply []byte) {
	c.out.stat.Last(xid, op, zxid)
	if c.followed != nil {
		c.follow(c.followed, xid, &state.Outcome{Code: code, Zxid: zxid, Reply: reply}, c.srv.now())
	}
}

// applied counts one request that was answered from the log. The outbox is locked.
func (c *conn) applied(p pending, out *state.Outcome) {
	now := c.srv.batchTime(out)
	if p.followed != nil {
		p.followed.Logged = now
	}
	c.answered(p, out, now)
}

// answered counts one request that was answered at now. The outbox is locked.
func (c *conn) answered(p pending, out *state.Outcome, now time.Duration) {
	d := max(now-p.at, 0)
	c.out.stat.Last(p.xid, p.op, out.Zxid)
	c.out.stat.Took(1, d, now)
	m := &c.srv.metrics
	m.Requests.ObserveTime(d)
	switch classOf(p.op) {
	case writeOp, closeOp:
		m.UpdateLatency.ObserveTime(d)
	}
	c.follow(p.followed, p.xid, out, now)
}

// follow completes a request that a log wants, and passes it on.
func (c *conn) follow(r *observe.Request, xid int32, out *state.Outcome, now time.Duration) {
	if r == nil {
		return
	}
	if r.Logged > 0 {
		now = c.srv.now() // later than the beginning of the batch
	}
	r.Xid, r.Session, r.Addr, r.IDs, r.Outcome, r.Answered = xid, c.session, c.host, *c.ids.Load(), *out, now
	c.srv.Observed.Followed(r)
}

// connEnded counts a connection's end.
func (s *Server) connEnded(c *conn, why endReason) {
	s.counts.ends[why].Add(1)
	if phase(c.phase.Load()) == phaseOpen {
		c.out.mu.Lock()
		requests, sent := c.out.stat.Total()
		c.out.mu.Unlock()
		s.Observed.ConnEnded(c.host, observe.Count{Requests: requests, Bytes: c.bytesIn.Load() + sent})
		if !c.retired.Load() && why != endSession && why != endGone && why != endMoved {
			s.Observed.ConnLost(c.session, why.String(), time.Duration(c.lastHeard.Load()))
		}
	}
	if why.ours() {
		s.metrics.ConnectionDropped.Add(1)
	}
	if why == endHandshake {
		s.metrics.SessionlessExpired.Add(1)
	}
	switch {
	case why == endClient || why == endSession || why == endWord || c.said:
		s.o.Logger.Debug("connection ended", "session", admin.Hex(c.session), "addr", c.host, "reason",
			why.String())
	case c.session != 0:
		s.log.info("connection closed", "session", admin.Hex(c.session), "addr", c.host, "reason", why.String())
	case c.asked != 0 && why == endGone:
		s.log.of(c.host, slog.LevelInfo, "connection refused", "reason", "its session is over, or was never there",
			"session", admin.Hex(c.asked))
	default:
		s.log.of(c.host, slog.LevelInfo, "connection refused", "reason", why.String())
	}
}

// say logs the one line about a connection that ends because of its client.
func (c *conn) say(msg string, args ...any) {
	c.said = true
	if c.session != 0 {
		args = append(args, "session", admin.Hex(c.session))
	}
	c.srv.log.of(c.host, slog.LevelInfo, msg, args...)
}
