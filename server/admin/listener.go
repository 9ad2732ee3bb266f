package admin

import (
	"net"
	"sync"
)

// maxConns is how many connections an admin port has at a time. Those beyond
// wait until others end, which the deadlines of the HTTP server see to.
const maxConns = 256

// LimitListener bounds the connections that are accepted from ln.
func LimitListener(ln net.Listener) net.Listener {
	return &limitListener{Listener: ln, room: make(chan struct{}, maxConns), closed: make(chan struct{})}
}

type limitListener struct {
	net.Listener
	room   chan struct{} // a token for each connection
	closed chan struct{}
	once   sync.Once
}

func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.room
		return nil, err
	}
	return &limitedConn{Conn: c, room: l.room}, nil
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	room chan struct{}
	once sync.Once
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { <-c.room })
	return c.Conn.Close()
}
