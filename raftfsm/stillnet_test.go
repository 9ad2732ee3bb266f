package raftfsm

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
)

// stillNet is a network that can make a server appear stopped: the server reads nothing, and its connections
// stay open.
type stillNet struct {
	is atomic.Pointer[func(p peer.Purpose, addr string) bool]
}

// takesNothing selects the connections over which nothing is read.
func (s *stillNet) takesNothing(is func(p peer.Purpose, addr string) bool) { s.is.Store(&is) }

// tune() makes a server use the network.
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
	purpose peer.Purpose // given by the first byte that is written
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

// cutNet is a network whose links between servers can be cut.
type cutNet struct {
	mu    sync.Mutex
	ids   map[string]uint32 // ids by address
	cut   map[link]error    // the error that a new connection over a cut link gets
	calls map[link]int      // how many connections over a link were refused
	conns map[net.Conn]link
}

// link names two servers, the lower id first.
type link [2]uint32

func linkOf(a, b uint32) link { return link{min(a, b), max(a, b)} }

// errAway makes a cut link accept connections and answer nothing; ECONNREFUSED makes it refuse them.
var errAway = errors.New("away")

func newCutNet() *cutNet {
	return &cutNet{ids: map[string]uint32{}, cut: map[link]error{}, calls: map[link]int{},
		conns: map[net.Conn]link{}}
}

// tune() makes a server use the network.
func (n *cutNet) tune(o *Options) {
	id := o.ID
	n.mu.Lock()
	for p, addr := range o.Peers {
		n.ids[addr] = p
	}
	n.mu.Unlock()
	o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		n.mu.Lock()
		l := linkOf(id, n.ids[addr])
		err := n.cut[l]
		if err != nil {
			n.calls[l]++
		}
		n.mu.Unlock()
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err != nil {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c, err := peer.Dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		w := &cutConn{Conn: c, n: n}
		n.mu.Lock()
		n.conns[w] = l
		n.mu.Unlock()
		return w, nil
	}
}

type cutConn struct {
	net.Conn
	n *cutNet
}

func (c *cutConn) Close() error {
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.Conn.Close()
}

// set() cuts the link between two servers. If err is nil, set() repairs the link.
func (n *cutNet) set(a, b uint32, err error) {
	l := linkOf(a, b)
	var broken []net.Conn
	n.mu.Lock()
	delete(n.cut, l)
	if err != nil {
		n.cut[l] = err
		for c, of := range n.conns {
			if of == l {
				broken = append(broken, c)
			}
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.Close()
	}
}

// refusals returns how many connections have met a cut link between two servers.
func (n *cutNet) refusals(a, b uint32) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[linkOf(a, b)]
}

// isolate() cuts a server of three from both others.
func (n *cutNet) isolate(id uint32, err error) {
	n.set(id, id%3+1, err)
	n.set(id, (id+1)%3+1, err)
}
