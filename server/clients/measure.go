package clients

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/server/observe"
)

// counts counts events that ZooKeeper's metrics lack.
type counts struct {
	acceptErrors atomic.Int64 // failed accepts
	foreign      atomic.Int64 // connections with another protocol
	refused      atomic.Int64 // sessions refused
	refusedNew   atomic.Int64 // sessions refused because of a limit
	divided      atomic.Int64 // requests that --one-layout refused
	ends         [ends.Reasons]atomic.Int64
}

// seen is called for every request that has arrived; it counts n requests as received. body is empty for a
// request that is longer than a frame.
func (c *conn) seen(n int, op jute.OpCode, body []byte) {
	if n > 0 {
		c.srv.metrics.PacketsReceived.Add(int64(n))
		c.out.Lock()
		c.out.Stat.Received(n)
		c.out.Unlock()
	}
	if c.reader.followed = c.srv.Observed.Begin(op, body); c.reader.followed != nil {
		c.reader.followed.Arrived, c.reader.followed.Begun = c.reader.arrived, c.srv.now()
	}
}

// readsAnswered counts n reads that were answered together; seen has not counted them.
func (c *conn) readsAnswered(n int) {
	m := &c.srv.metrics
	m.PacketsReceived.Add(int64(n))
	now := c.srv.now()
	d := now - c.reader.arrived
	c.out.Lock()
	c.out.Stat.Received(n)
	c.out.Stat.Took(n, d, now)
	c.out.Unlock()
	m.Requests.ObserveN(d.Microseconds(), int64(n))
	m.ReadLatency.ObserveN(d.Microseconds(), int64(n))
}

// readAnswered records one answered read. The outbox is locked.
func (c *conn) readAnswered(xid int32, op jute.OpCode, zxid int64, code jute.ErrCode, reply []byte) {
	c.out.Stat.Last(xid, op, zxid)
	if c.reader.followed != nil {
		c.follow(c.reader.followed, xid, &state.Outcome{Code: code, Zxid: zxid, Reply: reply}, c.srv.now())
	}
}

// applied counts one request that was answered from the log. The outbox is locked.
func (c *conn) applied(p outbox.Pending, out *state.Outcome) {
	now := c.srv.batchTime(out)
	if p.Followed != nil {
		p.Followed.Logged = now
	}
	c.answered(p, out, now)
}

// answered counts one request that was answered at now. The outbox is locked.
func (c *conn) answered(p outbox.Pending, out *state.Outcome, now time.Duration) {
	d := max(now-p.At, 0)
	c.out.Stat.Last(p.Xid, p.Op, out.Zxid)
	c.out.Stat.Took(1, d, now)
	m := &c.srv.metrics
	m.Requests.ObserveTime(d)
	switch request.Of(p.Op) {
	case request.Write, request.Close:
		m.UpdateLatency.ObserveTime(d)
	}
	c.follow(p.Followed, p.Xid, out, now)
}

// follow completes a request that a log records, and passes it on.
func (c *conn) follow(r *observe.Request, xid int32, out *state.Outcome, now time.Duration) {
	if r == nil {
		return
	}
	if r.Logged > 0 {
		now = c.srv.now() // the batch's time would be too early
	}
	r.Xid, r.Session, r.Addr, r.IDs = xid, c.session, c.from.Host, *c.proof.ids.Load()
	r.Outcome, r.Answered = *out, now
	c.srv.Observed.Followed(r)
}

// say logs the only line about a connection that ends because of its client.
func (c *conn) say(msg string, args ...any) {
	c.reader.said = true
	if c.session != 0 {
		args = append(args, "session", admin.Hex(c.session))
	}
	c.srv.log.Of(c.from.Host, slog.LevelInfo, msg, args...)
}

// batchTime returns the time at which the server answers the batch being applied. The goroutine
// that applies the log reads the clock once per batch.
func (s *Server) batchTime(o *state.Outcome) time.Duration {
	if s.batch == 0 && !o.Unknown {
		s.batch = s.now()
	}
	return s.batch
}
