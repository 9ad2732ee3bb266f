package port

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
)

// TLSListener returns a listener that speaks TLS. If `clear` is true, callers may also speak HTTP without
// TLS.
func TLSListener(ln net.Listener, conf *tls.Config, clear bool) net.Listener {
	if !clear {
		return tls.NewListener(ln, conf)
	}
	return &eitherListener{ln, conf}
}

type eitherListener struct {
	net.Listener
	conf *tls.Config
}

func (l *eitherListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &eitherConn{Conn: c, conf: l.conf}, nil
}

// eitherConn finds out from the first byte whether the caller speaks TLS. The first Read does that, and not
// Accept, because a silent caller would block Accept. The deadline for a request's header applies to this
// Read. No Write comes before it, because an HTTP server reads first.
type eitherConn struct {
	net.Conn
	conf    *tls.Config
	through net.Conn // the connection to read from after the first byte, with TLS or without; nil before
}

// handshakeRecord is the first byte of TLS.
const handshakeRecord = 22

func (c *eitherConn) Read(b []byte) (int, error) {
	if c.through == nil {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c.Conn, first); err != nil {
			return 0, err
		}
		c.through = &begunConn{c.Conn, io.MultiReader(bytes.NewReader(first), c.Conn)}
		if first[0] == handshakeRecord {
			c.through = tls.Server(c.through, c.conf)
		}
	}
	return c.through.Read(b)
}

func (c *eitherConn) Write(b []byte) (int, error) {
	if c.through == nil {
		return c.Conn.Write(b)
	}
	return c.through.Write(b)
}

// NetConn returns the connection below, like NetConn of tls.Conn.
func (c *eitherConn) NetConn() net.Conn { return c.Conn }

// begunConn is a connection that still returns its first byte, which was read to look at it.
type begunConn struct {
	net.Conn
	r io.Reader
}

func (c *begunConn) Read(b []byte) (int, error) { return c.r.Read(b) }
