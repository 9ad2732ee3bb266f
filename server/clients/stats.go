package clients

import (
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
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

// connStat is what operators see of a connection, guarded by its outbox.
type connStat struct {
	received, sent int64
	bytes          int64 // sent

	op      jute.OpCode // of the last reply; 0: none
	cxid    int32
	zxid    int64
	replied time.Duration

	count, sum             int64 // of latencies, ms
	latest, least, longest int64

	replies             int // since the last report
	lastSize            int // of a reply
	leastSize, mostSize int
}

func (s *connStat) init() { s.cxid = -1 }

// last remembers the newest request answered.
func (s *connStat) last(xid int32, op jute.OpCode, zxid int64) {
	s.op, s.zxid = op, zxid
	if xid >= 0 {
		s.cxid = xid
	}
}

// took records n requests that were answered at now, having taken d.
func (s *connStat) took(n int64, d, now time.Duration) {
	ms := d.Milliseconds()
	s.replied = now
	if s.count == 0 || ms < s.least {
		s.least = ms
	}
	s.longest = max(s.longest, ms)
	s.latest = ms
	s.count += n
	s.sum += n * ms
}

// size records the length of a reply.
func (s *connStat) size(n int) {
	if s.replies == 0 || n < s.leastSize {
		s.leastSize = n
	}
	s.mostSize = max(s.mostSize, n)
	s.lastSize = n
	s.replies++
}

// report adds the sizes of replies to the server's.
func (s *connStat) report(m *admin.Metrics) {
	if s.replies == 0 {
		return
	}
	m.Responses.Observe(int64(s.leastSize))
	m.Responses.Observe(int64(s.mostSize))
	m.Responses.Observe(int64(s.lastSize))
	s.replies, s.mostSize = 0, 0
}

// noteReceived counts requests.
func (c *conn) noteReceived(n int64) {
	c.out.mu.Lock()
	c.out.stat.received += n
	c.out.mu.Unlock()
}

// noteReads counts n reads that were answered together.
func (c *conn) noteReads(n int) {
	m := &c.srv.metrics
	m.PacketsReceived.Add(int64(n))
	now := c.srv.now()
	d := now - c.arrived
	c.out.mu.Lock()
	c.out.stat.received += int64(n)
	c.out.stat.took(int64(n), d, now)
	c.out.mu.Unlock()
	m.Requests.ObserveN(d.Microseconds(), int64(n))
	m.ReadLatency.ObserveN(d.Microseconds(), int64(n))
}

// answered counts one request that was answered at now. The outbox is locked.
func (c *conn) answered(p pending, zxid int64, now time.Duration) {
	d := max(now-p.at, 0)
	c.out.stat.last(p.xid, p.op, zxid)
	c.out.stat.took(1, d, now)
	m := &c.srv.metrics
	m.Requests.ObserveTime(d)
	switch classOf(p.op) {
	case writeOp, closeOp:
		m.UpdateLatency.ObserveTime(d)
	}
}

// connEnded counts a connection's end.
func (s *Server) connEnded(c *conn, why endReason) {
	s.counts.ends[why].Add(1)
	s.lost.note(c, why, s.now())
	if phase(c.phase.Load()) == phaseOpen {
		c.out.mu.Lock()
		did := observe.Count{Requests: c.out.stat.received, Bytes: c.bytesIn.Load() + c.out.stat.bytes}
		c.out.mu.Unlock()
		s.gone.Add(c.host, did, s.now())
	}
	if why.ours() {
		s.metrics.ConnectionDropped.Add(1)
	}
	if why == endHandshake {
		s.metrics.SessionlessExpired.Add(1)
	}
	switch {
	case why == endClient || why == endSession || why == endWord || c.said:
		s.o.Logger.Debug("connection ended", "session", hexID(c.session), "addr", c.host, "reason", why.String())
	case c.session != 0:
		s.log.info("connection closed", "session", hexID(c.session), "addr", c.host, "reason", why.String())
	case c.asked != 0 && why == endGone:
		s.log.of(c.host, slog.LevelInfo, "connection refused", "reason", "its session is over, or was never there",
			"session", hexID(c.asked))
	default:
		s.log.of(c.host, slog.LevelInfo, "connection refused", "reason", why.String())
	}
}

// say logs the one line about a connection that ends because of its client.
func (c *conn) say(msg string, args ...any) {
	c.said = true
	if c.session != 0 {
		args = append(args, "session", hexID(c.session))
	}
	c.srv.log.of(c.host, slog.LevelInfo, msg, args...)
}

func hexID(id int64) string { return "0x" + strconv.FormatInt(id, 16) }
