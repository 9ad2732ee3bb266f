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
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/inbox"
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

// conn is one client's connection. Its goroutine reads and, most of the time, writes it; outcomes and
// events come from the goroutine that applies the log. Each part below says who may touch it. The embedded
// parts do not change once the client has its session: all may read them then.
type conn struct {
	srv *Server

	socket
	seat

	reader   reader
	reads    readRun
	proof    proof
	pulse    pulse
	place    place
	watching watching
	flight   flight
	out      outbox // has a lock of its own

	phase   atomic.Int32 // how far it has come: a phase
	removed bool         // the server has forgotten it; under srv.mu
}

// socket is where the client is. All of it is set before the connection's first goroutine.
type socket struct {
	nc     net.Conn
	raw    syscall.RawConn // nil: not plain TCP
	secure bool
	host   string // the client's address without its port
	from   *address
	born   time.Duration
	number uint64 // connections of the server are counted
}

// seat is the session that the connection serves. The connection's goroutine fills in what the client asks
// for; the outcome of the handshake writes the rest, once, before the phase is open. The session is written
// under srv.mu, which may be asked for it at any time.
type seat struct {
	replica  Replica // the state that serves the client, from the connect request on
	readOnly bool    // the session is one of a server without a leader
	mayRead  bool    // the connect request said whether it takes such a session
	asked    int64   // the session that the client came back for, if any

	session int64
	gen     uint32
	timeout time.Duration
}

// reader holds the bytes received, up to the newest request. It belongs to the connection's goroutine. A
// connection that rests has none: then it belongs to the goroutine whose visit it is. While the connection's
// goroutine waits for its session, the goroutine that applies the log may read followed.
type reader struct {
	in         *inbox.Input     // nil while the connection rests
	held       int              // bytes of in that srv.memory counts
	within     int              // bytes of a long setWatches that are not read yet
	arrived    time.Duration    // when the newest bytes came
	frameStart time.Duration    // when the wait for the rest of a frame began; 0: not yet
	followed   *observe.Request // the newest request, if a log wants it
	unfinished bool             // the deadline is that of an unfinished frame
	idle       bool             // the newest request, if there was one, was a ping
	rested     bool             // it has rested before: its session is open
	said       bool             // the log has a line about why this connection ends
}

// readRun is a run of reads that are answered under one hold of the state lock. It belongs to the
// connection's goroutine.
type readRun struct {
	frame    []byte // the one that the run begins with
	view     func(*state.State)
	long     *longReply // what the run has begun to answer
	need     int        // bytes of memory that the run must have before it goes on
	building int64      // steps of the answer that needs them
	cost     int64      // of the reads answered, in steps, beyond what is charged
	apart    bool       // the answer needs no buffer
	behind   bool       // the run must wait for the connection's writes before it goes on
	stop     bool       // the run met the end of the connection
}

// proof is who the client is. The connection's goroutine alone changes it; all may load the identities,
// which are replaced, never changed.
type proof struct {
	ids      identity.List    // the client's address, then what it has proved
	exchange sasl.Negotiation // the SASL negotiation under way, if any
	auths    int32            // auth packets so far
	empties  uint8            // answers without a token where there is no SASL
}

// pulse is whether the client is alive. All may read and write it.
type pulse struct {
	heard    atomic.Int64 // when bytes came last, on the server's clock, ns
	received atomic.Int64 // bytes
	listed   atomic.Bool  // in srv.heard
	retired  atomic.Bool  // the session has moved or ended: hearing from it means nothing
}

// place is where the connection rests. It is under srv.resting.mu.
type place struct {
	rests bool   // without a goroutine, and no visit is under way
	slot  uint32 // while it rests or is visited
}

// watching is the connection among those that watch. It is under srv.watches.mu.
type watching struct {
	dropped bool  // it may watch nothing more
	hears   int32 // its place among those told of the change, from 1
}

// flight is what is being written. It belongs to the flush under way.
type flight struct {
	sent   piece
	unsent []byte // the rest of it
}

func newConn(s *Server, nc net.Conn, config *tls.Config) *conn {
	c := &conn{srv: s, socket: socket{nc: nc, host: hostOf(nc), from: new(address), born: s.now()}}
	c.reader.in, c.reads.view = new(inbox.Input), c.run
	if config != nil {
		c.secure = true
		c.nc = tls.Server(nc, config)
	} else if tc, ok := nc.(*net.TCPConn); ok {
		if raw, err := tc.SyscallConn(); err == nil {
			c.raw = raw
		}
	}
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

// serve is the connection's goroutine, unless the connection rests. If why is not ends.None, the
// connection has ended while it rested.
func (c *conn) serve(why ends.Reason) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
		} else if why == ends.None {
			c.lieDown()
			return
		}
		c.finish(why)
		c.srv.wg.Done()
	}()
	if why == ends.None && !c.reader.rested {
		why = c.begin()
	}
	if why == ends.None {
		why = c.loop()
	}
	if why == ends.None {
		return
	}
	if why == ends.Length || why == ends.Malformed {
		c.last(nil, why) // behind the replies to what came before
	}
	c.discard()
}

// begin opens the connection, in time.
func (c *conn) begin() ends.Reason {
	limit := time.AfterFunc(c.srv.o.HandshakeTimeout, func() {
		if phase(c.phase.Load()) != phaseWord { // the answer has deadlines of its own
			c.close(ends.Handshake)
		}
	})
	why := c.open()
	limit.Stop()
	if why == ends.None {
		c.reader.idle = true
		c.pulse.heard.Store(int64(c.reader.arrived))
	}
	return why
}

// panicked ends this connection, and nothing else, after a panic.
func (c *conn) panicked(p any) {
	c.srv.metrics.UnrecoverableErrors.Add(1)
	c.close(ends.Panic)
	c.srv.log.Error("panic in a client connection", "panic", p, slog.String("stack", string(debug.Stack())))
}

// finish releases what the connection held.
func (c *conn) finish(why ends.Reason) {
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
func (c *conn) close(why ends.Reason) {
	c.out.mu.Lock()
	c.out.die(why)
	c.out.mu.Unlock()
	c.hangUp()
}

// kill is close for the goroutine that applies the log, which must not touch a
// socket.
func (c *conn) kill(why ends.Reason) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.die(why)
	c.touch()
}

// loop serves an open connection until it ends, or, ends.None, rests.
func (c *conn) loop() ends.Reason {
	for {
		why := c.frames()
		if why == ends.None {
			c.flush()
			if c.mayRest() {
				return ends.None
			}
			why = c.fill()
		}
		if why != ends.None {
			return why
		}
	}
}

// frames handles the bytes received.
func (c *conn) frames() ends.Reason {
	for {
		frame, _, err := c.reader.in.Peek(c.srv.o.MaxFrame)
		switch {
		case errors.Is(err, inbox.ErrLong): // setWatches reads the rest
			b := c.reader.in.Bytes()
			frame, c.reader.within = b[4:4+inbox.HeaderSize], int(binary.BigEndian.Uint32(b))-inbox.HeaderSize
		case err != nil:
			c.srv.metrics.LargeRejected.Add(1)
			return ends.Length
		case frame == nil:
			return ends.None
		case len(frame) < inbox.HeaderSize:
			return ends.Malformed
		}
		if c.reader.held > 0 {
			c.srv.memory.partial(c, false)
		}
		c.reader.in.Take(frame)
		c.reader.frameStart = 0
		open := c.handle(frame)
		if c.reader.in.Handled(); !open {
			return ends.Else
		}
	}
}

// fill reads once.
func (c *conn) fill() ends.Reason {
	if !c.grow() {
		return ends.Else
	}
	if c.reader.in.Busy() {
		runtime.Gosched() // there is more than can be read at once: others first
	}
	c.armDeadline()
	n, err := c.reader.in.Fill(c.nc)
	if err != nil {
		return c.readFailed(err)
	}
	c.received(n)
	return ends.None
}

// received notes that n bytes have just come: the client is alive.
func (c *conn) received(n int) {
	c.reader.arrived = c.srv.now()
	c.srv.metrics.BytesReceived.Add(int64(n))
	c.pulse.received.Add(int64(n))
	if c.reader.held > 0 {
		c.srv.memory.moved(c, n)
	}
	c.alive(c.reader.arrived)
}

// alive notes that the client was not silent at that time: bytes came, or the server had not read them.
func (c *conn) alive(at time.Duration) {
	c.pulse.heard.Store(int64(at))
	if !c.pulse.listed.Load() && !c.readOnly { // there is no leader to be told
		c.srv.heard.add(c)
	}
}

// grow waits for the memory that the next fill takes.
func (c *conn) grow() bool {
	size := c.reader.in.Size()
	switch {
	case size > inbox.Keep:
		size = max(size, c.reader.in.Wanted())
	case c.reader.held == 0:
		return true
	default:
		size = 0
	}
	if size != c.reader.held {
		if !c.srv.memory.wait(c, inputPart, size) {
			return false
		}
		c.reader.held = size
	}
	c.srv.memory.partial(c, c.reader.in.Len() > 0)
	return true
}

// armDeadline sets how long the next bytes may take from now on: the server itself may have caused the
// time since the last bytes. While no frame has begun there is no bound: the connection ends with its
// session, which the leader ends if the client is silent. A read-only session has no leader.
func (c *conn) armDeadline() {
	now := c.srv.now()
	if c.reader.in.Len() == 0 && c.reader.within == 0 {
		if c.readOnly {
			c.setDeadline(c.srv.start.Add(now + c.timeout + c.margin()))
		} else if c.reader.unfinished {
			c.setDeadline(time.Time{})
		}
		c.reader.unfinished = false
		return
	}
	c.reader.unfinished = true
	if c.reader.frameStart == 0 {
		c.reader.frameStart = now
	}
	stall := min(now+stallTime, c.reader.frameStart+frameTime)
	if c.headerMissing() {
		stall = min(stall, now+headerGrace)
	}
	c.setDeadline(c.srv.start.Add(stall))
}

// headerMissing reports whether an oversized frame has begun whose operation is not known yet.
func (c *conn) headerMissing() bool {
	if c.reader.within > 0 {
		return false
	}
	_, wait, _ := c.reader.in.Peek(c.srv.o.MaxFrame)
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
func (c *conn) readFailed(err error) ends.Reason {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && c.reader.in.Len() > 0:
		return ends.Stalled
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ends.Idle
	case errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe):
		return ends.Else
	}
	return ends.Client
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
			o.sleep(left)
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
			o.sleep(-1)
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
	for total := 0; total < inbox.MaxWatchFrame; {
		c.reader.in.Drop()
		n, err := c.reader.in.Fill(c.nc)
		if err != nil {
			return
		}
		total += n
	}
}
