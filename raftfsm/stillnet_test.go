package raftfsm

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// stillNet is a network on which connections to a server can be made to take
// nothing, as if its process stood still: what is sent is not read, and nothing
// breaks.
type stillNet struct {
	is atomic.Pointer[func(p peer.Purpose, addr string) bool]
}

// takesNothing says of which connections this is true.
func (s *stillNet) takesNothing(is func(p peer.Purpose, addr string) bool) { s.is.Store(&is) }

// tune makes a server use the network.
func (s *stillNet) tune(o *Options) {
	o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := peer.Dial(ctx, addr)
		return &stillConn{Conn: c, s: s, addr: addr, closed: make(chan struct{})}, err
	}
}

type stillConn struct {
	net.Conn
	s       *stillNet
	addr    string
	purpose peer.Purpose // by its first byte
	writes  int
	once    sync.Once
	closed  chan struct{}
	until   atomic.Pointer[time.Time]
}

func (c *stillConn) SetDeadline(at time.Time) error {
	c.until.Store(&at)
	return c.Conn.SetDeadline(at)
}

func (c *stillConn) Write(b []byte) (int, error) {
	if c.writes++; c.purpose == 0 {
		c.purpose = peer.Purpose(b[0])
	}
	for is := c.s.is.Load(); is != nil && (*is)(c.purpose, c.addr); is = c.s.is.Load() {
		if at := c.until.Load(); at != nil && !at.IsZero() && time.Now().After(*at) {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-c.closed:
			return 0, net.ErrClosed
		case <-time.After(5 * time.Millisecond):
		}
	}
	return c.Conn.Write(b)
}

func (c *stillConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
