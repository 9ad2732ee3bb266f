package port

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
)

// TLSListener returns a listener that speaks TLS on the connections of ln. If `clear` is set, it also accepts
// connections that begin in clear text.
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

// eitherConn decides by the first byte whether the caller speaks TLS. It looks at that byte in the first
// Read, not in Accept, so that a silent caller does not delay Accept. That Read has the deadline of a
// request's header. A Write never comes before that Read, because an HTTP server first reads.
type eitherConn struct {
	net.Conn
	conf    *tls.Config
	through net.Conn // the connection after the first byte, with TLS or without; nil before
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

// begunConn is a connection whose first byte has been read already.
type begunConn struct {
	net.Conn
	r io.Reader
}

func (c *begunConn) Read(b []byte) (int, error) { return c.r.Read(b) }
