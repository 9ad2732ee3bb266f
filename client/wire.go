package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// The library hides three things the session layer must know or enforce: the
// negotiated timeout, a limit for the handshake, and the order of replies. All of
// them pass on the wire, so the connection is watched there. Reads are also made
// to set watches there, see hub.

const (
	wireXidEvent    = -1
	wireXidPing     = -2
	wireOpExists    = 3
	wireOpGetData   = 4
	wireOpGetChild2 = 12
	wireOpSetAuth   = 100
	wireMaxFrame    = 64 << 20
)

var errReplyOrder = errors.New("client: reply out of order: one was lost")

// wire opens connections and keeps what the latest handshake said.
type wire struct {
	opt   *options
	count *counters
	hub   *hub

	mu      sync.Mutex
	cur     *wireConn
	sid     int64         // as of the latest handshake
	timeout time.Duration // likewise
	closed  bool
}

// dial opens one connection; the whole handshake shares its time limit.
func (w *wire) dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.opt.dialLimit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	raw, err := w.opt.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if w.opt.tls != nil {
		if raw, err = w.startTLS(ctx, raw, addr); err != nil {
			return nil, err
		}
	}
	if err := raw.SetDeadline(deadline); err != nil {
		raw.Close()
		return nil, err
	}
	c := &wireConn{Conn: raw, w: w, br: bufio.NewReaderSize(raw, 16<<10)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		raw.Close()
		return nil, ErrClosed
	}
	if w.cur != nil {
		// The library forgets to close a connection whose session had expired.
		w.cur.Close()
	}
	w.cur = c
	return c, nil
}

func (w *wire) startTLS(ctx context.Context, raw net.Conn, addr string) (net.Conn, error) {
	cfg := w.opt.tls
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		if host, _, err := net.SplitHostPort(addr); err == nil {
			cfg.ServerName = host
		}
	}
	t := tls.Client(raw, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return t, nil
}

// hangUp closes the present connection; the library will open another one.
func (w *wire) hangUp() {
	w.mu.Lock()
	c := w.cur
	w.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// close ends the present connection and forbids others.
func (w *wire) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.hangUp()
}

// negotiated returns what the latest handshake agreed on.
func (w *wire) negotiated() (sid int64, timeout time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sid, w.timeout
}

// wireConn is one connection. The library writes one frame per Write.
type wireConn struct {
	net.Conn
	w     *wire
	br    *bufio.Reader
	frame []byte // what Read has not handed out yet
	buf   []byte // of the frame

	out []byte // a frame that was changed

	mu      sync.Mutex
	greeted bool // connect request sent
	open    bool // connect response read
	pending []int32
	auth    []int32 // answered out of turn
}

// SetReadDeadline is the library's, except during the handshake, for which the
// library allows many times too much.
func (c *wireConn) SetReadDeadline(t time.Time) error {
	if !c.isOpen() {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline: see SetReadDeadline.
func (c *wireConn) SetWriteDeadline(t time.Time) error {
	if !c.isOpen() {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

func (c *wireConn) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

func (c *wireConn) Write(p []byte) (int, error) {
	c.sending(p)
	c.w.count.bytesSent.Add(uint64(len(p)))
	if c.asksWatch(p) {
		c.out = append(c.out[:0], p...)
		c.out[len(p)-1] = 1
		p = c.out
	}
	return c.Conn.Write(p)
}

// sending notes a frame before it is written, so that its reply finds it noted.
func (c *wireConn) sending(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.greeted {
		c.greeted = true
		return
	}
	if len(p) < 12 {
		return
	}
	xid, op := int32(binary.BigEndian.Uint32(p[4:])), int32(binary.BigEndian.Uint32(p[8:]))
	if xid == wireXidPing {
		return
	}
	c.w.count.requests.Add(1)
	if op == wireOpSetAuth {
		c.auth = append(c.auth, xid)
	} else {
		c.pending = append(c.pending, xid)
	}
}

// asksWatch reports whether a frame is a read that is to set a watch. Such a frame
// ends with the path and one byte for the watch.
func (c *wireConn) asksWatch(p []byte) bool {
	const path = 16
	if len(p) <= path || !c.isOpen() || int(binary.BigEndian.Uint32(p[path-4:])) != len(p)-path-1 {
		return false
	}
	switch int32(binary.BigEndian.Uint32(p[8:])) {
	case wireOpGetData, wireOpExists:
		return c.w.hub.asks(p[path:len(p)-1], watchData)
	case wireOpGetChild2:
		return c.w.hub.asks(p[path:len(p)-1], watchChildren)
	}
	return false
}

func (c *wireConn) Read(p []byte) (int, error) {
	if len(c.frame) == 0 {
		if err := c.readFrame(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.frame)
	c.frame = c.frame[n:]
	return n, nil
}

func (c *wireConn) readFrame() error {
	head, err := c.br.Peek(4)
	if err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(head))
	if n < 0 || n > wireMaxFrame {
		return fmt.Errorf("client: frame of %d bytes", n)
	}
	c.buf = slices.Grow(c.buf[:0], 4+n)
	frame := c.buf[:4+n]
	if _, err := io.ReadFull(c.br, frame); err != nil {
		return err
	}
	c.w.count.bytesRead.Add(uint64(len(frame)))
	if !c.isOpen() {
		if err := c.handshake(frame); err != nil {
			return err
		}
	} else if err := c.received(frame); err != nil {
		return err
	}
	c.frame = frame
	return nil
}

// handshake reads the connect response and ends the handshake's time limit.
func (c *wireConn) handshake(f []byte) error {
	if len(f) < 20 {
		return fmt.Errorf("client: connect response of %d bytes", len(f)-4)
	}
	timeout := time.Duration(int32(binary.BigEndian.Uint32(f[8:]))) * time.Millisecond
	session := int64(binary.BigEndian.Uint64(f[12:]))
	if err := c.Conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.mu.Lock()
	c.open = true
	c.mu.Unlock()
	c.w.mu.Lock()
	c.w.sid, c.w.timeout = session, timeout
	c.w.mu.Unlock()
	return nil
}

// received checks one frame from the server.
func (c *wireConn) received(f []byte) error {
	if len(f) < 20 {
		return fmt.Errorf("client: reply of %d bytes", len(f)-4)
	}
	xid := int32(binary.BigEndian.Uint32(f[4:]))
	switch {
	case xid == wireXidEvent:
		c.w.count.events.Add(1)
		return nil
	case xid < 0:
		return nil
	}
	c.mu.Lock()
	inTurn := false
	if i := slices.Index(c.auth, xid); i >= 0 {
		c.auth = slices.Delete(c.auth, i, i+1)
		inTurn = true
	} else if len(c.pending) > 0 && c.pending[0] == xid {
		c.pending = slices.Delete(c.pending, 0, 1) // few are under way
		inTurn = true
	}
	c.mu.Unlock()
	if !inTurn {
		return errReplyOrder
	}
	return nil
}
