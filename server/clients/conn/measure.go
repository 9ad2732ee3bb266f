package conn

import (
	"log/slog"
	"net"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/request"
	"github.com/zlockd/zlockd/server/clients/watchers"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/report"
)

// seen() is called for every request that has arrived; it counts n requests as received. `body` is empty if
// the request is longer than other frames may be.
func (c *Conn) seen(n int, op jute.OpCode, body []byte) {
	if n > 0 {
		c.shared.Metrics.PacketsReceived.Add(int64(n))
		c.out.Lock()
		c.out.Stat.Received(n)
		c.out.Unlock()
	}
	if c.reader.followed = c.shared.Observed.Begin(op, body); c.reader.followed != nil {
		c.reader.followed.Arrived, c.reader.followed.Begun = c.reader.arrived, c.shared.Now()
	}
}

// readsAnswered counts n reads that were answered together. It also counts them as received, because seen()
// has not done so.
func (c *Conn) readsAnswered(n int) {
	m := &c.shared.Metrics
	m.PacketsReceived.Add(int64(n))
	now := c.shared.Now()
	d := now - c.reader.arrived
	c.out.Lock()
	c.out.Stat.Received(n)
	c.out.Stat.Took(n, d, now)
	c.out.Unlock()
	m.Requests.ObserveN(d.Microseconds(), int64(n))
	m.ReadLatency.ObserveN(d.Microseconds(), int64(n))
}

// readAnswered records one answered read. The outbox is locked.
func (c *Conn) readAnswered(xid int32, op jute.OpCode, zxid int64, code jute.ErrCode, reply []byte) {
	c.out.Stat.Last(xid, op, zxid)
	if c.reader.followed != nil {
		c.follow(c.reader.followed, xid, &state.Outcome{Code: code, Zxid: zxid, Reply: reply}, c.shared.Now())
	}
}

// applied() counts one answered request that went through the log. The outbox is locked.
func (c *Conn) applied(p outbox.Pending, out *state.Outcome) {
	now := c.shared.batchTime(out)
	c.count(p, out, now)
	if p.First != nil && out.Code == jute.OK {
		c.shared.Metrics.Writes.ObserveNew(p.First.Name, p.First.Bytes)
	}
	c.followApplied(p, out, now)
}

// answered() counts one request that was answered at the time `now` and did not go through the log. The
// outbox is locked.
func (c *Conn) answered(p outbox.Pending, out *state.Outcome, now time.Duration) {
	c.count(p, out, now)
	c.follow(p.Followed, p.Xid, out, now)
}

// count() adds one answered request to the figures. The outbox is locked.
func (c *Conn) count(p outbox.Pending, out *state.Outcome, now time.Duration) {
	d := max(now-p.At, 0)
	c.out.Stat.Last(p.Xid, p.Op, out.Zxid)
	c.out.Stat.Took(1, d, now)
	m := &c.shared.Metrics
	m.Requests.ObserveTime(d)
	switch request.Of(p.Op) {
	case request.Write, request.Close:
		m.UpdateLatency.ObserveTime(d)
	}
}

// followApplied is like follow(), for a request that was applied at the time `logged`.
func (c *Conn) followApplied(p outbox.Pending, out *state.Outcome, logged time.Duration) {
	if p.Followed != nil {
		p.Followed.Logged = logged
		c.follow(p.Followed, p.Xid, out, logged)
	}
}

// follow completes a request that a log records, and passes it to the log.
func (c *Conn) follow(r *observe.Request, xid int32, out *state.Outcome, now time.Duration) {
	if r == nil {
		return
	}
	if r.Logged > 0 {
		now = c.shared.Now() // the batch's time would be too early
	}
	r.Xid, r.Session, r.Addr, r.IDs = xid, c.session, c.from.Host, *c.proof.IDs.Load()
	r.Outcome, r.Answered = *out, now
	c.shared.Observed.Followed(r)
}

// say() logs that the client is the reason for the connection's end. Then no other line is logged about this
// end.
func (c *Conn) say(msg string, args ...any) {
	c.reader.said = true
	if c.session != 0 {
		args = append(args, "session", report.Hex(c.session))
	}
	c.shared.Log.Of(c.from.Host, slog.LevelInfo, msg, args...)
}

// Describe returns the description of the connection for operators.
func (c *Conn) Describe() report.Conn {
	d := report.Conn{Addr: addrOf(c.out.NC), Secure: c.out.Secure,
		Established: c.shared.Options.Now().Add(c.born - c.shared.Now()),
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
		silent := c.shared.Now() - time.Duration(c.pulse.heard.Load())
		d.Expires = c.shared.Options.Now().Add(c.timeout + c.margin() - silent)
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
func (s *Shared) connEnded(c *Conn, why ends.Reason) {
	s.Counts.Ends[why].Add(1)
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
		s.Metrics.ConnectionDropped.Add(1)
	}
	if why == ends.Handshake {
		s.Metrics.SessionlessExpired.Add(1)
	}
	switch {
	case why == ends.Client || why == ends.Session || why == ends.Word || c.reader.said:
		s.Options.Logger.Debug("connection ended", "session", report.Hex(c.session), "addr", c.from.Host, "reason",
			why.String())
	case c.session != 0:
		s.Log.Info("connection closed", "session", report.Hex(c.session), "addr", c.from.Host, "reason",
			why.String())
	case c.asked != 0 && why == ends.Gone:
		s.Log.Of(c.from.Host, slog.LevelInfo, "connection refused", "reason",
			"its session has ended or never existed",
			"session", report.Hex(c.asked))
	default:
		s.Log.Of(c.from.Host, slog.LevelInfo, "connection refused", "reason", why.String())
	}
}

// Watching returns the connection that has the watcher w.
func Watching(w *watchers.Watcher) *Conn { return w.Out.Owner().(*Conn) }

// Waits returns how many requests of the connection have no answer yet.
func (c *Conn) Waits() int {
	c.out.Lock()
	defer c.out.Unlock()
	return c.out.Pending()
}

// Forget zeroes the statistics of the connection.
func (c *Conn) Forget() {
	c.out.Lock()
	defer c.out.Unlock()
	c.out.Stat.Reset()
}
