package clients

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/sasl"
)

// Times after which a connection ends, and of its end.
const (
	lingerTime  = time.Second            // for a client to read the last frame
	authPenalty = 100 * time.Millisecond // after a failed authentication
	headerGrace = time.Second            // for the header behind an oversized prefix
	stallTime   = 30 * time.Second       // for the rest of a frame, or a client that takes no byte
	frameTime   = 120 * time.Second      // for a frame in all
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
	from   *address
	born   time.Duration
	number uint64 // connections of the server are counted
	secure bool

	removed bool // under srv.mu
	dropped bool // under srv.watches.mu: it may watch nothing more
	phase   atomic.Int32
	hears   int32 // under srv.watches.mu: its place among those told of the change, from 1

	// Owned by the connection's goroutine. Small fields stand together: there may be a hundred
	// thousand connections.
	opened     bool             // the handshake is over
	idle       bool             // the newest request, if there was one, was a ping
	unfinished bool             // the deadline is that of an unfinished frame
	within     int              // bytes of a long setWatches that are not read yet
	readOnly   bool             // the session is one of a server without a leader
	mayRead    bool             // the connect request said whether it takes such a session
	settled    bool             // it has rested before
	stop       bool             // run met the end of the connection
	said       bool             // the log has a line about why this connection ends
	empties    uint8            // answers without a token where there is no SASL
	auths      int32            // auth packets so far
	limit      *time.Timer      // of the handshake
	in         *input           // nil while it rests
	inHeld     int              // bytes of in that srv.memory counts
	arrived    time.Duration    // when the newest bytes came
	frameStart time.Duration    // when the wait for the rest of a frame began; 0: not yet
	exchange   sasl.Negotiation // the SASL negotiation under way, if any
	frame      []byte           // the frame that run begins with
	replica    Replica          // the state that serves the client, from the connect request on
	need       int              // bytes of memory that run must have before it goes on
	apart      bool             // the answer needs no buffer
	behind     bool             // run must wait for the connection's writes before it goes on
	long       *longReply       // what run has begun to answer
	building   int64            // steps of the answer that needs them
	cost       int64            // of the reads that run has answered, in steps, beyond what is charged
	runView    func(*state.State)
	asked      int64            // the session that the client came back for, if any
	followed   *observe.Request // the newest request, if a log wants it

	// Written once, before phaseOpen, by the outcome of the handshake; the
	// session under srv.mu.
	session int64
	gen     uint32
	timeout time.Duration

	// The client's identities: its address, then those it has proved. Replaced, never changed.
	ids identity.List

	lastHeard atomic.Int64 // on the server's clock, ns
	bytesIn   atomic.Int64 // received
	listed    atomic.Bool  // in srv.heard
	retired   atomic.Bool  // the session has moved or ended: hearing from it means nothing

	// Under srv.resting.mu.
	rests bool   // without a goroutine, and no visit is under way
	slot  uint32 // while it rests or is visited

	out outbox

	// Owned by the flush under way.
	sent   piece           // what is being written
	unsent []byte          // the rest of it
	raw    syscall.RawConn // nil: not plain TCP
}

func newConn(s *Server, nc net.Conn, config *tls.Config) *conn {
	c := &conn{srv: s, nc: nc, host: hostOf(nc), born: s.now(), from: new(address), in: new(input)}
	if config != nil {
		c.secure = true
		c.nc = tls.Server(nc, config)
	} else if tc, ok := nc.(*net.TCPConn); ok {
		if raw, err := tc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
	c.runView = c.run
	c.out.stat = observe.NewConn()
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

// serve is the connection's goroutine, unless the connection rests. If why is not endNone, the
// connection has ended while it rested.
func (c *conn) serve(why endReason) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
		} else if why == endNone {
			c.lieDown()
			return
		}
		c.finish(why)
		c.srv.wg.Done()
	}()
	if why == endNone && !c.opened {
		why = c.begin()
	}
	if why == endNone {
		why = c.loop()
	}
	if why == endNone {
		return
	}
	if why == endLength || why == endMalformed {
		c.last(nil, why) // behind the replies to what came before
	}
	c.discard()
}

// begin opens the connection, in time.
func (c *conn) begin() endReason {
	c.limit = time.AfterFunc(c.srv.o.HandshakeTimeout, func() { c.close(endHandshake) })
	why := c.open()
	c.limit.Stop()
	c.limit = nil
	if why == endNone {
		c.opened, c.idle = true, true
		c.lastHeard.Store(int64(c.arrived))
	}
	return why
}

// panicked ends this connection, and nothing else, after a panic.
func (c *conn) panicked(p any) {
	c.srv.metrics.UnrecoverableErrors.Add(1)
	c.close(endPanic)
	c.srv.log.error("panic in a client connection", "panic", p, slog.String("stack", string(debug.Stack())))
}

// finish releases what the connection held.
func (c *conn) finish(why endReason) {
	c.close(why)
	c.srv.remove(c)
	c.srv.watches.drop(c)
	c.srv.memory.drop(c)
	c.out.mu.Lock()
	why = c.out.why
	c.out.mu.Unlock()
	c.srv.connEnded(c, why)
}

// close ends the connection now. It keeps the first reason given.
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

// loop serves an open connection until it ends, or, endNone, rests.
func (c *conn) loop() endReason {
	for {
		why := c.frames()
		if why == endNone {
			c.flush()
			if c.mayRest() {
				return endNone
			}
			why = c.fill()
		}
		if why != endNone {
			return why
		}
	}
}

// frames handles the bytes received.
func (c *conn) frames() endReason {
	for {
		frame, _, err := c.in.peek(c.srv.o.MaxFrame)
		switch {
		case errors.Is(err, errLong): // setWatches reads the rest
			b := c.in.bytes()
			frame, c.within = b[4:4+headerSize], int(binary.BigEndian.Uint32(b))-headerSize
		case err != nil:
			c.srv.metrics.LargeRejected.Add(1)
			return endLength
		case frame == nil:
			return endNone
		case len(frame) < headerSize:
			return endMalformed
		}
		if c.inHeld > 0 {
			c.srv.memory.partial(c, false)
		}
		c.in.take(frame)
		c.frameStart = 0
		open := c.handle(frame)
		if c.in.handled(); !open {
			return endElse
		}
	}
}

// fill reads once.
func (c *conn) fill() endReason {
	if !c.grow() {
		return endElse
	}
	if c.in.full && len(c.in.buf) >= inputBusy {
		runtime.Gosched() // there is more than can be read at once: others first
	}
	c.armDeadline()
	n, err := c.in.fill(c.nc)
	if err != nil {
		return c.readFailed(err)
	}
	c.received(n)
	return endNone
}

// received notes that n bytes have just come: the client is alive.
func (c *conn) received(n int) {
	c.arrived = c.srv.now()
	c.srv.metrics.BytesReceived.Add(int64(n))
	c.bytesIn.Add(int64(n))
	if c.inHeld > 0 {
		c.srv.memory.moved(c, n)
	}
	c.alive(c.arrived)
}

// alive notes that the client was not silent at that time: bytes came, or the server had not read them.
func (c *conn) alive(at time.Duration) {
	c.lastHeard.Store(int64(at))
	if !c.listed.Load() && !c.readOnly { // there is no leader to be told
		c.srv.heard.add(c)
	}
}

// grow waits for the memory that the next fill takes.
func (c *conn) grow() bool {
	size := c.in.size()
	switch {
	case size > inputKeep:
		size = max(size, c.in.want)
	case c.inHeld == 0:
		return true
	default:
		size = 0
	}
	if size != c.inHeld {
		if !c.srv.memory.wait(c, inputPart, size) {
			return false
		}
		c.inHeld = size
	}
	c.srv.memory.partial(c, c.in.len() > 0)
	return true
}

// armDeadline sets how long the next bytes may take from now on: the server itself may have caused the
// time since the last bytes. While no frame has begun there is no bound: the connection ends with its
// session, which the leader ends if the client is silent. A read-only session has no leader.
func (c *conn) armDeadline() {
	now := c.srv.now()
	if c.in.len() == 0 && c.within == 0 {
		if c.readOnly {
			c.setDeadline(c.srv.start.Add(now + c.timeout + c.margin()))
		} else if c.unfinished {
			c.setDeadline(time.Time{})
		}
		c.unfinished = false
		return
	}
	c.unfinished = true
	if c.frameStart == 0 {
		c.frameStart = now
	}
	stall := min(now+stallTime, c.frameStart+frameTime)
	if c.headerMissing() {
		stall = min(stall, now+headerGrace)
	}
	c.setDeadline(c.srv.start.Add(stall))
}

// headerMissing reports whether an oversized frame has begun whose operation is not known yet.
func (c *conn) headerMissing() bool {
	if c.within > 0 {
		return false
	}
	_, wait, _ := c.in.peek(c.srv.o.MaxFrame)
	return wait
}

// margin is how much longer than its session's timeout an idle connection may be there.
func (c *conn) margin() time.Duration { return c.timeout/2 + time.Second }

// setDeadline sets the read deadline, unless the connection is ending: its end has a deadline of
// its own.
func (c *conn) setDeadline(at time.Time) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.state == outboxOpen {
		c.nc.SetReadDeadline(at)
	}
}

// readFailed returns the end reason of a failed read.
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

// awaitReplies waits, if more than limit of the connection's own requests are
// pending, until at most left are. It reports false when the connection has
// ended.
func (c *conn) awaitReplies(limit, left int) bool {
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

// discard completes the end of a connection: it writes the outbox, and for a moment throws away
// what still arrives.
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
