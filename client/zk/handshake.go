package zk

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// greet() asks a server to take the session, and presents the identities.
func (c *Conn) greet(conn net.Conn, server string) (*link, error) {
	stop := context.AfterFunc(c.life, func() { conn.Close() })
	defer stop()
	c.mu.Lock()
	sid, zxid, password, auth := c.sid, c.zxid, c.password, slices.Clone(c.auth)
	c.asked = server
	c.mu.Unlock()
	from := &patient{Conn: conn}
	br := bufio.NewReaderSize(from, 16<<10)
	granted, timeout, newPassword, err := c.hello(conn, br, sid, zxid, password)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.sid, c.timeout, c.password, c.server = granted, timeout, newPassword, server
	c.lost = time.Now() // the server has just confirmed the session, even if this connection never carries it
	c.mu.Unlock()
	for _, a := range auth {
		if err := present(conn, br, a); err != nil {
			return nil, err
		}
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	from.silent = timeout * 2 / 3
	return &link{
		c: c, conn: conn, server: server, br: br, silent: from.silent, gone: make(chan struct{}),
		wrote: time.Now(),
	}, nil
}

// hello() makes the handshake for a session, or for a new session if sid is 0, and returns what the
// server grants.
func (c *Conn) hello(conn net.Conn, br io.Reader, sid, zxid int64, password []byte) (int64, time.Duration,
	[]byte, error) {
	if err := conn.SetDeadline(time.Now().Add(c.opt.AttemptLimit)); err != nil {
		return 0, 0, nil, err
	}
	wanted := min(c.opt.Timeout/time.Millisecond, math.MaxInt32)
	b, _ := jute.BeginFrame(nil)
	b = jute.AppendLong(jute.AppendInt(b, 0), zxid)
	b = jute.AppendLong(jute.AppendInt(b, int32(wanted)), sid)
	b = jute.AppendBool(jute.AppendBuffer(b, password), false)
	jute.EndFrame(b, 0)
	if _, err := conn.Write(b); err != nil {
		return 0, 0, nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return 0, 0, nil, err
	}
	switch {
	case head[0] == recordAlert:
		return 0, 0, nil, errExpectsTLS
	case string(head[:]) == "HTTP":
		return 0, 0, nil, errHTTP
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 36 || size > 64 {
		return 0, 0, nil, errNotProtocol
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(br, body); err != nil {
		return 0, 0, nil, err
	}
	d := jute.NewDecoder(body)
	d.Int()
	timeout := time.Duration(d.Int()) * time.Millisecond
	granted := d.Long()
	newPassword := d.Buffer()
	if d.Err() != nil || timeout < 0 {
		return 0, 0, nil, errNotProtocol
	}
	if granted == 0 || timeout == 0 {
		return 0, 0, nil, ErrSessionExpired
	}
	return granted, timeout, slices.Clone(newPassword), nil
}

// present() presents one identity and waits for the answer. A server that refuses the identity closes the
// connection. If more requests followed at once, the server's answer could be lost.
func present(conn net.Conn, br *bufio.Reader, a Auth) error {
	r := authCall(a)
	r.stamp(r.xid)
	if _, err := conn.Write(r.frame); err != nil {
		return err
	}
	var head [4 + jute.ReplyHeaderSize]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return err
	}
	d := jute.NewDecoder(head[:])
	size, xid := d.Int(), d.Int()
	d.Long()
	code := jute.ErrCode(d.Int())
	switch {
	case size != jute.ReplyHeaderSize || xid != r.xid:
		return errNotProtocol
	case code != jute.OK:
		return fmt.Errorf("%w: identity of scheme %q", ErrAuthFailed, a.Scheme)
	}
	return nil
}
