package clients

import (
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/server/clients/watchers"
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
		c.shared.metrics.PacketsReceived.Add(int64(n))
		c.out.Lock()
		c.out.Stat.Received(n)
		c.out.Unlock()
	}
	if c.reader.followed = c.shared.Observed.Begin(op, body); c.reader.followed != nil {
		c.reader.followed.Arrived, c.reader.followed.Begun = c.reader.arrived, c.shared.now()
	}
}

// readsAnswered counts n reads that were answered together; seen has not counted them.
func (c *conn) readsAnswered(n int) {
	m := &c.shared.metrics
	m.PacketsReceived.Add(int64(n))
	now := c.shared.now()
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
		c.follow(c.reader.followed, xid, &state.Outcome{Code: code, Zxid: zxid, Reply: reply}, c.shared.now())
	}
}

// applied counts one request that was answered from the log. The outbox is locked.
func (c *conn) applied(p outbox.Pending, out *state.Outcome) {
	now := c.shared.batchTime(out)
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
	m := &c.shared.metrics
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
		now = c.shared.now() // the batch's time would be too early
	}
	r.Xid, r.Session, r.Addr, r.IDs = xid, c.session, c.from.Host, *c.proof.ids.Load()
	r.Outcome, r.Answered = *out, now
	c.shared.Observed.Followed(r)
}

// say logs the only line about a connection that ends because of its client.
func (c *conn) say(msg string, args ...any) {
	c.reader.said = true
	if c.session != 0 {
		args = append(args, "session", admin.Hex(c.session))
	}
	c.shared.log.Of(c.from.Host, slog.LevelInfo, msg, args...)
}

// Describe returns the description of the connection for operators.
func (c *conn) Describe() admin.Conn {
	d := admin.Conn{Addr: addrOf(c.out.NC), Secure: c.out.Secure,
		Established: c.shared.o.Now().Add(c.born - c.shared.now()),
		LastCxid:    -1}
	if phase(c.phase.Load()) == phaseWord {
		d.Received = 1
		return d
	}
	o := &c.out
	o.Lock()
	defer o.Unlock()
	d.Queued, d.BytesIn = int64(o.Pending()), c.pulse.received.Load()
	switch flushing, waiting := o.Busy(); {
	case flushing:
		d.Interest = 5
	case !waiting:
		d.Interest = 1
	}
	if phase(c.phase.Load()) == phaseOpen {
		d.Session, d.Timeout = c.session, c.timeout
		silent := c.shared.now() - time.Duration(c.pulse.heard.Load())
		d.Expires = c.shared.o.Now().Add(c.timeout + c.margin() - silent)
	}
	o.Stat.Describe(&d)
	return d
}

func addrOf(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// connEnded counts a connection's end.
func (s *shared) connEnded(c *conn, why ends.Reason) {
	s.counts.ends[why].Add(1)
	if phase(c.phase.Load()) == phaseOpen {
		c.out.Lock()
		requests, sent := c.out.Stat.Total()
		c.out.Unlock()
		bytes := c.pulse.received.Load() + sent
		s.Observed.ConnEnded(c.from.Host, observe.Count{Requests: requests, Bytes: bytes})
		if !c.pulse.retired.Load() && why != ends.Session && why != ends.Gone && why != ends.Moved {
			s.Observed.ConnLost(c.session, why.String(), time.Duration(c.pulse.heard.Load()))
		}
	}
	if why.Ours() {
		s.metrics.ConnectionDropped.Add(1)
	}
	if why == ends.Handshake {
		s.metrics.SessionlessExpired.Add(1)
	}
	switch {
	case why == ends.Client || why == ends.Session || why == ends.Word || c.reader.said:
		s.o.Logger.Debug("connection ended", "session", admin.Hex(c.session), "addr", c.from.Host, "reason",
			why.String())
	case c.session != 0:
		s.log.Info("connection closed", "session", admin.Hex(c.session), "addr", c.from.Host, "reason",
			why.String())
	case c.asked != 0 && why == ends.Gone:
		s.log.Of(c.from.Host, slog.LevelInfo, "connection refused", "reason",
			"its session is over, or was never there",
			"session", admin.Hex(c.asked))
	default:
		s.log.Of(c.from.Host, slog.LevelInfo, "connection refused", "reason", why.String())
	}
}

// watching returns the connection that watches.
func watching(w *watchers.Watcher) *conn { return w.Out.Owner().(*conn) }

// Waits returns how many requests of the connection have no answer yet.
func (c *conn) Waits() int {
	c.out.Lock()
	defer c.out.Unlock()
	return c.out.Pending()
}

// Forget zeroes the statistics of the connection.
func (c *conn) Forget() {
	c.out.Lock()
	defer c.out.Unlock()
	c.out.Stat.Reset()
}
