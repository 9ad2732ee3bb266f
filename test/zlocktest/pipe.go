package zlocktest

import (
	"errors"
	"net"
	"sync"
)

// pipeListener is a listener whose connections are pipes in memory. Goroutines that wait for
// pipes count as blocked in virtual time; goroutines that wait for sockets do not.
type pipeListener struct {
	addr   *net.TCPAddr
	queue  chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	port int // of the last client
}

func newPipeListener(addr string) *pipeListener {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		panic("zlocktest: " + err.Error())
	}
	return &pipeListener{addr: a, queue: make(chan net.Conn), closed: make(chan struct{}), port: 40000}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return l.addr }

// dial connects to the listener.
func (l *pipeListener) dial() (net.Conn, error) {
	client, serverEnd := net.Pipe()
	l.mu.Lock()
	l.port++
	from := &net.TCPAddr{IP: l.addr.IP, Port: l.port}
	l.mu.Unlock()
	select {
	case l.queue <- pipeConn{serverEnd, l.addr, from}:
		return pipeConn{client, from, l.addr}, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	}
}

// pipeConn is an end of a pipe with addresses like a socket's: servers distinguish and admit
// clients by address.
type pipeConn struct {
	net.Conn
	local, remote net.Addr
}

func (c pipeConn) LocalAddr() net.Addr  { return c.local }
func (c pipeConn) RemoteAddr() net.Addr { return c.remote }
