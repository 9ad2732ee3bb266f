package zk

import (
	"errors"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// attach() makes `l` the link that carries the session. It sends the watches first, and then the waiting
// calls. It returns false if the Conn was closed.
func (c *Conn) attach(l *link) bool {
	c.mu.Lock()
	if c.closing || c.err != nil {
		c.mu.Unlock()
		return false
	}
	c.link = l
	for _, s := range c.watches.again(c.zxid) {
		l.put(c.setWatches(s))
	}
	waiting := c.queue
	c.queue = nil
	for _, r := range waiting {
		l.put(r)
	}
	clear(c.trouble)
	c.asked = ""
	c.opt.Counters.Connections.Add(1)
	close(c.ready) // after Connections.Add, so that a caller that waits for `ready` finds the connection counted
	l.flush()
	c.opt.Logger.Debug("connected", "server", l.server)
	c.tell(Connected)
	return true
}

// setWatches makes the request that sets watches on a new connection.
func (c *Conn) setWatches(s *jute.SetWatches) *call {
	r := &call{xid: jute.XidSetWatches, inner: true}
	op, lists := jute.OpSetWatches, [][]string{s.Data, s.Exist, s.Child}
	if s.Persistent != nil || s.Recursive != nil {
		op, lists = jute.OpSetWatches2, append(lists, s.Persistent, s.Recursive)
	}
	b := jute.AppendLong(r.begin(op, "", setWatchesLimit), s.RelativeZxid)
	for _, list := range lists {
		b = jute.AppendStrings(b, list)
	}
	r.end(b)
	r.settled = func(err error) {
		if _, refused := errors.AsType[*Error](err); refused {
			c.watches.lost(c.root, s)
			for _, path := range append(s.Persistent, s.Recursive...) {
				c.watches.endSubscriptions(path)
			}
		}
	}
	return r
}

// detach() removes a link that has ended. Reads under way will be sent again, and writes fail. The result
// `useful` is true if the server answered requests of the session and sent no bad answer.
func (c *Conn) detach(l *link, why error) (useful bool) {
	l.close()
	c.mu.Lock()
	var again []*call
	for _, r := range l.pending {
		switch {
		case r.stage == over:
		case r.inner || r.left || !r.repeat:
			r.finish(ErrConnectionLost)
		default:
			r.stage = waiting
			again = append(again, r)
		}
	}
	l.pending, l.out = nil, nil
	c.queue = append(again, c.queue...)
	c.link = nil
	c.lost = time.Now()
	c.ready = make(chan struct{})
	useful = l.useful
	ended := c.err != nil
	c.mu.Unlock()
	close(l.gone)
	if !ended {
		c.opt.Logger.Debug("disconnected", "server", l.server, "err", why)
		c.tell(Disconnected)
	}
	return useful
}

// resend repeats, after a moment, a read that failed between servers. It returns false if no caller waits for
// the read.
func (c *Conn) resend(l *link, r *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.take(r)
	if r.left || r.stage == over {
		return false
	}
	r.stage = waiting
	r.tries++
	time.AfterFunc(backoff(r.tries, 5*time.Millisecond, time.Second), func() {
		c.mu.Lock()
		if r.stage == over {
			c.mu.Unlock()
			return
		}
		c.put(false, r)
	})
	return true
}

// brokeOnTheWay reports whether a code says that the request failed between two servers: system error, data
// inconsistency, connection loss or operation timeout.
func brokeOnTheWay(code jute.ErrCode) bool { return code < 0 && code > -5 || code == -7 }
