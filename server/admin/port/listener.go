package port

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxConns bounds the connections of an admin port. At the bound, a new connection takes the place of one
// that waits for no answer.
const maxConns = 256

// LimitListener bounds the connections from ln, and closes idle ones to make room. It knows which are idle
// only if the server comes from HTTPServer.
func LimitListener(ln net.Listener) net.Listener { return LimitListenerTo(ln, maxConns) }

// LimitListenerTo is LimitListener for another number of connections.
func LimitListenerTo(ln net.Listener, most int) net.Listener {
	l := &limitListener{Listener: ln, most: most, from: map[string]int{}}
	l.room.L = &l.mu
	return l
}

// limitListener bounds the connections of a port. To make room for a new one, it closes an idle one, of the
// address that has the most. So a client with many idle connections cannot keep health checks out.
type limitListener struct {
	net.Listener
	most int

	mu     sync.Mutex
	room   sync.Cond      // signalled when a connection ends, or may be closed to make room
	conns  []*limitedConn // the oldest first
	from   map[string]int // the number of connections by address
	closed bool
}

type limitedConn struct {
	net.Conn
	l    *limitListener
	addr string
	busy int // the number of requests that are being answered
}

func (l *limitListener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(inner.RemoteAddr().String())
	c := &limitedConn{Conn: inner, l: l, addr: host}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.conns) >= l.most && !l.closed && !l.displace() {
		l.room.Wait() // all are busy: wait until an answer ends, as each does at its deadline
	}
	if l.closed {
		inner.Close()
		return nil, net.ErrClosed
	}
	l.conns = append(l.conns, c)
	l.from[host]++
	return c, nil
}

// displace closes a connection to make room: the oldest idle one of the address with the most connections. It
// returns false if none is idle.
func (l *limitListener) displace() bool {
	var victim *limitedConn
	for _, c := range l.conns {
		if c.busy == 0 && (victim == nil || l.from[c.addr] > l.from[victim.addr]) {
			victim = c
		}
	}
	if victim == nil {
		return false
	}
	l.forget(victim)
	victim.Conn.Close()
	return true
}

func (l *limitListener) forget(c *limitedConn) {
	i := slices.Index(l.conns, c)
	if i < 0 {
		return
	}
	l.conns = slices.Delete(l.conns, i, i+1)
	if l.from[c.addr]--; l.from[c.addr] == 0 {
		delete(l.from, c.addr)
	}
	l.room.Signal()
}

func (l *limitListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	c.l.forget(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// working adds n to the number of requests that the server is answering on this connection.
func (c *limitedConn) working(n int) {
	c.l.mu.Lock()
	c.busy += n
	c.l.room.Signal()
	c.l.mu.Unlock()
}

type connKey struct{}

// withConn puts the connection of a request into the request's context, for busy().
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	if l, ok := c.(*limitedConn); ok {
		return context.WithValue(ctx, connKey{}, l)
	}
	return ctx
}

// busy marks the connection of a request as busy while the handler answers, so that displace does not close
// it.
func busy(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*limitedConn); ok {
			c.working(1)
			defer c.working(-1)
		}
		h.ServeHTTP(w, r)
	})
}
