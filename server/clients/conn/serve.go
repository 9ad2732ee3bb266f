package conn

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
	"time"

	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/watchers"
)

func newConn(s *Shared, nc net.Conn, config *tls.Config) *Conn {
	from := &address{Address: watchers.Address{Host: hostOf(nc)}}
	c := &Conn{shared: s, socket: socket{from: from, born: s.Now()}}
	c.reader.in, c.reads.view = new(inbox.Input), c.run
	c.out.Init(&s.Outboxes, c, nc, config)
	c.watcher = watchers.Watcher{Out: &c.out, IDs: &c.proof.IDs, From: &c.from.Address}
	return c
}

// hostOf returns the address from which a connection comes, in the form of the identities of the scheme ip:
// an IPv4 address is written as such even if it came over an IPv6 socket.
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

// serve is the connection's goroutine, unless the connection rests. If `why` is not ends.None, the connection
// ended while it rested.
func (c *Conn) serve(why ends.Reason) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
		} else if why == ends.None {
			c.lieDown()
			return
		}
		c.finish(why)
		c.shared.wg.Done()
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
		c.out.Last(nil, why) // the replies to earlier requests are written before the end
	}
	c.discard()
}

// begin opens the connection, within the handshake timeout.
func (c *Conn) begin() ends.Reason {
	limit := time.AfterFunc(c.shared.Options.HandshakeTimeout, func() {
		if phase(c.phase.Load()) != phaseWord { // the answer to a four-letter word has deadlines of its own
			c.out.Close(ends.Handshake)
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

// panicked() ends only this connection after a panic.
func (c *Conn) panicked(p any) {
	c.shared.Metrics.UnrecoverableErrors.Add(1)
	c.out.Close(ends.Panic)
	c.shared.Log.Error("panic in a client connection", "panic", p, slog.String("stack", string(debug.Stack())))
}

// finish releases all that the connection held.
func (c *Conn) finish(why ends.Reason) {
	c.out.Close(why)
	c.shared.remove(c)
	c.shared.Watches.Drop(&c.watcher)
	c.shared.Memory.Drop(c)
	c.shared.connEnded(c, c.out.Why())
}

// loop serves an open connection until the connection ends, or rests (ends.None).
func (c *Conn) loop() ends.Reason {
	for {
		why := c.frames()
		if why == ends.None {
			c.out.Flush()
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

// frames() handles the bytes received.
func (c *Conn) frames() ends.Reason {
	for {
		frame, _, err := c.reader.in.Peek(c.shared.Options.MaxFrame)
		switch {
		case errors.Is(err, inbox.ErrLong): // setWatches() reads the rest of the frame
			b := c.reader.in.Bytes()
			frame, c.reader.within = b[4:4+inbox.HeaderSize], int(binary.BigEndian.Uint32(b))-inbox.HeaderSize
		case err != nil:
			c.shared.Metrics.LargeRejected.Add(1)
			return ends.Length
		case frame == nil:
			return ends.None
		case len(frame) < inbox.HeaderSize:
			return ends.Malformed
		}
		if c.reader.held > 0 {
			c.shared.Memory.Partial(c, false)
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
func (c *Conn) fill() ends.Reason {
	if !c.grow() {
		return ends.Else
	}
	if c.reader.in.Busy() {
		runtime.Gosched() // this client sends without a pause: let other goroutines run first
	}
	c.armDeadline()
	n, err := c.reader.in.Fill(c.out.NC)
	if err != nil {
		return c.readFailed(err)
	}
	c.received(n)
	return ends.None
}

// received() records that n bytes have just arrived: the client is alive.
func (c *Conn) received(n int) {
	c.reader.arrived = c.shared.Now()
	c.shared.Metrics.BytesReceived.Add(int64(n))
	c.pulse.received.Add(int64(n))
	if c.reader.held > 0 {
		c.shared.Memory.Moved(c, n)
	}
	c.alive(c.reader.arrived)
}

// grow waits for the memory that the next fill takes.
func (c *Conn) grow() bool {
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
		if !c.shared.Memory.Wait(c, budget.Input, size) {
			return false
		}
		c.reader.held = size
	}
	c.shared.Memory.Partial(c, c.reader.in.Len() > 0)
	return true
}

// armDeadline sets the time by which the next bytes must arrive. It counts from now, and not from the last
// bytes, because the server itself may have been slow to read. While no frame has begun there is no deadline:
// the leader ends the session of a silent client, and the connection ends with the session. A read-only
// session has no leader, so its connection always has a deadline.
func (c *Conn) armDeadline() {
	now := c.shared.Now()
	if c.reader.in.Len() == 0 && c.reader.within == 0 {
		if c.readOnly {
			c.out.SetReadDeadline(c.shared.start.Add(now + c.timeout + c.margin()))
		} else if c.reader.unfinished {
			c.out.SetReadDeadline(time.Time{})
		}
		c.reader.unfinished = false
		return
	}
	c.reader.unfinished = true
	if c.reader.frameStart == 0 {
		c.reader.frameStart = now
	}
	stall := min(now+outbox.StallTime, c.reader.frameStart+frameTime)
	if c.headerMissing() {
		stall = min(stall, now+headerGrace)
	}
	c.out.SetReadDeadline(c.shared.start.Add(stall))
}

// headerMissing reports whether the header of an oversized frame is still missing.
func (c *Conn) headerMissing() bool {
	if c.reader.within > 0 {
		return false
	}
	_, wait, _ := c.reader.in.Peek(c.shared.Options.MaxFrame)
	return wait
}

// readFailed returns the reason for the end of a connection whose read has failed.
func (c *Conn) readFailed(err error) ends.Reason {
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

// discard completes the end of a connection: it writes the outbox, and then drops what the client still
// sends, for a moment. If bytes were left unread, closing the socket could lose the last frames.
func (c *Conn) discard() {
	if !c.out.Drain() {
		return
	}
	c.out.NC.SetReadDeadline(time.Now().Add(outbox.LingerTime))
	for total := 0; total < inbox.MaxWatchFrame; {
		c.reader.in.Drop()
		n, err := c.reader.in.Fill(c.out.NC)
		if err != nil {
			return
		}
		total += n
	}
}

// Handle gives a new connection its goroutine, or closes it at once. It applies the limits before it reads
// the first byte, with TLS or without.
func (s *Shared) Handle(nc net.Conn, config *tls.Config) {
	c := newConn(s, nc, config)
	if !s.add(c) {
		nc.Close()
		return
	}
	go c.serve(ends.None)
}
