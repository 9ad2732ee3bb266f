package server

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
)

// Waits that belong to the end of a connection.
const (
	lingerTime  = time.Second            // for a client to read the last frame
	authPenalty = 100 * time.Millisecond // after a failed authentication
	headerGrace = time.Second            // for the header behind an oversized prefix
)

// phase is how far a connection has come.
type phase int32

const (
	phaseFirst   phase = iota // its first four bytes are awaited
	phaseWord                 // a four-letter word is answered
	phaseConnect              // it asks for a session
	phaseOpen                 // it has one
)

// conn is one client's connection. Its goroutine reads and, most of the time,
// writes it; outcomes and events come from the goroutine that applies the log.
type conn struct {
	srv    *Server
	nc     net.Conn
	host   string // the client's address without its port
	secure bool
	born   time.Duration
	since  time.Time // the same by the wall clock

	phase   atomic.Int32
	removed bool // under srv.mu

	// Owned by the connection's goroutine.
	limit      *time.Timer // of the handshake
	in         input
	arrived    time.Duration // when the newest bytes came
	deadline   time.Duration // the read deadline as it is set
	unfinished bool          // it is that of an unfinished frame
	frameStart time.Duration // when the wait for the rest of a frame began; 0: not yet
	auths      int           // auth packets so far
	hello      jute.ConnectRequest
	frame      []byte // the frame that run begins with
	stop       bool   // run met the end of the connection
	runView    func(*raftfsm.State)

	// Written once, before phaseOpen, by the outcome of the handshake; the
	// session under srv.mu.
	session int64
	gen     uint32
	timeout time.Duration

	// Who the client is now: its address, then what it has proved. Replaced,
	// never changed.
	ids atomic.Pointer[[]jute.ID]

	lastHeard atomic.Int64 // on the server's clock, ns
	listed    atomic.Bool  // in srv.heard
	retired   atomic.Bool  // the session has moved or ended: hearing from it means nothing

	out  outbox
	wake chan struct{}

	// Owned by the flush under way.
	sent, unsent []byte // what is being written, and the rest of it
	raw          syscall.RawConn
	rawWrite     func(fd uintptr) bool
	rawBuf       []byte
	rawN         int
	rawErr       error
}

func newConn(s *Server, nc net.Conn, config *tls.Config) *conn {
	c := &conn{srv: s, nc: nc, host: hostOf(nc), born: s.now(), since: s.o.Now(), wake: make(chan struct{}, 1)}
	if config != nil {
		c.secure = true
		c.nc = tls.Server(nc, config)
	} else if tc, ok := nc.(*net.TCPConn); ok {
		if raw, err := tc.SyscallConn(); err == nil {
			c.raw, c.rawWrite = raw, c.tryWrite
		}
	}
	c.runView = c.run
	c.out.stat.init()
	ids := []jute.ID{{Scheme: "ip", ID: c.host}}
	if s.o.SkipACL {
		ids = append(ids, superID)
	}
	c.setIDs(ids)
	return c
}

// hostOf returns the address a connection comes from, in the form that ip
// identities have: IPv4 in its own notation, however it arrived.
func hostOf(nc net.Conn) string {
	switch a := nc.RemoteAddr().(type) {
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("").String()
	case nil:
		return ""
	default:
		host, _, err := net.SplitHostPort(a.String())
		if err != nil {
			return a.String()
		}
		return host
	}
}

// setIDs makes ids the client's identities.
func (c *conn) setIDs(ids []jute.ID) { c.ids.Store(&ids) }

// serve is the connection's goroutine.
func (c *conn) serve() {
	s := c.srv
	defer s.wg.Done()
	why := endPanic
	defer func() {
		if p := recover(); p != nil {
			s.metrics.UnrecoverableErrors.Add(1)
			s.log.error("panic in a client connection", "panic", p, slog.String("stack", string(debug.Stack())))
		}
		c.finish(why)
	}()
	c.limit = time.AfterFunc(s.o.HandshakeTimeout, func() { c.close(endHandshake) })
	why = c.open()
	c.limit.Stop()
	if why == endNone {
		why = c.loop()
	}
	if why == endLength || why == endMalformed {
		c.finishReplies(why) // to what came before
	}
	c.discard()
}

// finishReplies lets what has been answered be written before the connection
// is closed.
func (c *conn) finishReplies(why endReason) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.end(why)
}

// finish releases what the connection held.
func (c *conn) finish(why endReason) {
	c.close(why)
	c.srv.remove(c)
	c.srv.watches.drop(c)
	c.out.mu.Lock()
	why = c.out.why
	c.out.mu.Unlock()
	c.srv.connEnded(c, why)
}

// close ends the connection now. The first reason given is the one remembered.
func (c *conn) close(why endReason) {
	c.out.mu.Lock()
	c.out.die(why)
	c.out.mu.Unlock()
	c.hangUp()
}

// kill is close for the goroutine that applies the log, which must not touch a
// socket.
func (c *conn) kill(why endReason) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.die(why)
	c.touch()
}

// loop serves an open connection until it ends.
func (c *conn) loop() endReason {
	c.lastHeard.Store(int64(c.arrived))
	for {
		for {
			frame, _, err := c.in.peek(c.srv.o.MaxFrame)
			if err != nil {
				c.srv.metrics.LargeRejected.Add(1)
				return endLength
			}
			if frame == nil {
				break
			}
			if len(frame) < headerSize {
				return endMalformed
			}
			c.in.take(frame)
			c.frameStart = 0
			if !c.handle(frame) {
				return endElse
			}
		}
		c.flush()
		if why := c.fill(); why != endNone {
			return why
		}
	}
}

// fill reads once and notes that the client is alive.
func (c *conn) fill() endReason {
	c.armDeadline()
	n, err := c.in.fill(c.nc)
	if err != nil {
		return c.readFailed(err)
	}
	c.arrived = c.srv.now()
	c.srv.metrics.BytesReceived.Add(int64(n))
	c.lastHeard.Store(int64(c.arrived))
	if !c.listed.Load() {
		c.srv.heard.add(c)
	}
	return endNone
}

// armDeadline sets how long the next bytes may take, from now on: what passed
// since the last ones may have been our own doing. While no frame is begun that
// is the session's timeout and a margin: whoever is silent for longer has lost
// the session or is about to. The deadline of an idle connection is renewed
// only when half of the margin is used up.
func (c *conn) armDeadline() {
	now := c.srv.now()
	if c.in.len() == 0 {
		if c.unfinished || c.deadline < now+c.timeout+c.margin()/2 {
			c.unfinished = false
			c.setDeadline(now + c.timeout + c.margin())
		}
		return
	}
	c.unfinished = true
	if c.frameStart == 0 {
		c.frameStart = now
	}
	stall := min(now+c.srv.o.StallTimeout, c.frameStart+c.srv.o.FrameTimeout)
	if _, wait, _ := c.in.peek(c.srv.o.MaxFrame); wait {
		stall = min(stall, now+headerGrace)
	}
	c.setDeadline(stall)
}

// margin is how much longer than its session's timeout an idle connection is
// kept.
func (c *conn) margin() time.Duration { return c.timeout/2 + time.Second }

// setDeadline sets the read deadline, unless the end has begun, which has a
// deadline of its own.
func (c *conn) setDeadline(at time.Duration) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.state == outboxOpen {
		c.deadline = at
		c.nc.SetReadDeadline(c.srv.start.Add(at))
	}
}

// readFailed names what a failed read means.
func (c *conn) readFailed(err error) endReason {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && c.in.len() > 0:
		return endStalled
	case errors.Is(err, os.ErrDeadlineExceeded):
		return endIdle
	case errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return endElse
	}
	return endClient
}

// settle waits, if more than limit of the connection's own requests are
// pending, until at most left are. It reports false when the connection has
// ended.
func (c *conn) settle(limit, left int) bool {
	o := &c.out
	o.mu.Lock()
	if o.pendingLen() > limit && o.state == outboxOpen {
		if limit > 0 {
			c.srv.metrics.Throttled.Add(1)
		}
		o.mu.Unlock()
		c.flush()
		o.mu.Lock()
		for o.pendingLen() > left && o.state == outboxOpen {
			c.sleep(left)
		}
	}
	open := o.state == outboxOpen
	o.mu.Unlock()
	return open
}

// discard sees a connection that is ending to its end: what is in the outbox is
// written, what still arrives is thrown away, for a moment.
func (c *conn) discard() {
	o := &c.out
	o.mu.Lock()
	for o.state == outboxEnding && !o.shut {
		if o.flushing {
			c.sleep(-1)
			continue
		}
		o.flushing = true
		o.mu.Unlock()
		c.write(true)
		o.mu.Lock()
	}
	ending := o.state == outboxEnding
	o.mu.Unlock()
	if !ending {
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	for total := 0; total < maxWatchFrame; {
		c.in.r, c.in.w = 0, 0
		n, err := c.in.fill(c.nc)
		if err != nil {
			return
		}
		total += n
	}
}
