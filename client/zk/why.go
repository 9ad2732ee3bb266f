package zk

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// Reasons, other than network errors, why a connection cannot be used.
var (
	errClosed = errors.New(
		"the server closes connections at once: it is starting or stopping, or accepts no more connections")
	errFull = errors.New(
		"the server closes every connection at once: it accepts no more connections, or no more from this " +
			"address (maxClientCnxns)")
	errExpectsTLS = errors.New("the server expects TLS on this port")
	errNoTLS      = errors.New("the server does not speak TLS on this port")
	errHTTP       = errors.New(
		"the server answers in HTTP: this is its port for operators, or another web server, not the port for " +
			"clients (2181 by default)")
	errNotProtocol = errors.New("the answer does not come from a ZooKeeper server")
)

// wordless() reports whether a peer closed a connection without an answer. If the peer had unread data, the
// error is a reset.
func wordless(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// whyTLS explains a TLS handshake that failed.
func whyTLS(err error) error {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || wordless(err) {
		return fmt.Errorf("%w, or wants a certificate: %w", errNoTLS, portless(err))
	}
	return fmt.Errorf("TLS: %w", portless(err))
}

// portless() removes the addresses of both ends from an error of a connection. The client's port differs each
// time, so a log that leaves out repeated errors would otherwise take each error for a new one.
func portless(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "read" || op.Op == "write") {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}

// probeLimit bounds each step of why().
const probeLimit = 200 * time.Millisecond

// why() finds out more about a failure. A server that closes connections without a word may be full,
// or expect TLS. To distinguish these cases, why() opens a second connection. On this connection it
// first sends nothing, and then the beginning of TLS. The Conn keeps the result until a server can be used.
func (c *Conn) why(ctx context.Context, server string, err error) error {
	if errors.Is(err, errNoTLS) {
		return err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "read" && op.Timeout() {
		return ErrSilent
	}
	if !wordless(err) {
		return portless(err)
	}
	c.mu.Lock()
	before := c.trouble[server]
	c.mu.Unlock()
	for _, known := range []error{ErrNotServing, errFull, errExpectsTLS} {
		if errors.Is(before, known) {
			return known
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.AttemptLimit)
	defer cancel()
	conn, dialErr := c.dialAny(ctx, server)
	if dialErr != nil {
		return ErrNotServing
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var b [1]byte
	conn.SetReadDeadline(time.Now().Add(probeLimit))
	if _, err := conn.Read(b[:]); wordless(err) {
		// A server also closes connections at once while it starts or stops, but not for long. So if it already did
		// this at the last attempt, it is full.
		if errors.Is(before, errClosed) {
			return errFull
		}
		return errClosed
	}
	if c.opt.TLS != nil {
		return ErrNotServing
	}
	l := &listener{Conn: conn}
	conn.SetDeadline(time.Now().Add(2 * probeLimit))
	// The outcome of the handshake does not matter, and nothing is sent after it: the first byte of the
	// server's answer, which l remembers, shows whether the server speaks TLS.
	_ = tls.Client(l, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	if l.first == recordHandshake || l.first == recordAlert {
		return errExpectsTLS
	}
	return ErrNotServing
}

// The first bytes of a peer that speaks TLS.
const (
	recordAlert     = 21
	recordHandshake = 22
)

// listener remembers the first byte that it reads.
type listener struct {
	net.Conn
	first byte
}

func (l *listener) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 && l.first == 0 {
		l.first = p[0]
	}
	return n, err
}
