package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Network connects hosts in memory. It behaves like TCP over wires that can be
// cut: a cut holds what was sent until it is healed, as retransmission would;
// dialling needs both directions; a peer that is gone shows only through a
// direction that is whole. All methods are safe inside a synctest bubble: no
// lock is held over a wait.
type Network struct {
	mu        sync.Mutex
	rng       *rand.Rand
	latency   time.Duration // one way; jitter of the same size on top
	cut       map[[2]string]bool
	frozen    map[string]bool
	rate      int                     // bytes per second of each wire; 0: any
	free      map[[2]string]time.Time // when a wire has sent all it was given
	listeners map[string]*listener    // by address
	pipes     map[*pipe]struct{}
}

// NewNetwork returns a network without hosts.
func NewNetwork(rng *rand.Rand, latency time.Duration) *Network {
	return &Network{rng: rng, latency: latency, cut: map[[2]string]bool{}, frozen: map[string]bool{}, free: map[[2]string]time.Time{}, listeners: map[string]*listener{}, pipes: map[*pipe]struct{}{}}
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// Cut stops everything sent from one host to another.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	n.cut[[2]string{from, to}] = true
	n.mu.Unlock()
}

// Mend makes one direction whole.
func (n *Network) Mend(from, to string) {
	n.mu.Lock()
	delete(n.cut, [2]string{from, to})
	n.mu.Unlock()
	n.wake()
}

// Heal makes all wires whole.
func (n *Network) Heal() {
	n.mu.Lock()
	clear(n.cut)
	n.mu.Unlock()
	n.wake()
}

// Throttle bounds what each wire carries, in bytes per second and direction;
// 0 is no bound.
func (n *Network) Throttle(rate int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rate = rate
	clear(n.free)
}

// carried returns when what is sent now has left a wire that is throttled.
func (n *Network) carried(from, to string, size int) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.rate == 0 {
		return now
	}
	wire := [2]string{from, to}
	if n.free[wire].After(now) {
		now = n.free[wire]
	}
	n.free[wire] = now.Add(time.Duration(size) * time.Second / time.Duration(n.rate))
	return n.free[wire]
}

// Freeze lets nothing in or out of a host, as if it were stopped: others can
// still connect to it, but nothing is ever answered. Its clocks go on.
func (n *Network) Freeze(host string) {
	n.mu.Lock()
	n.frozen[host] = true
	n.mu.Unlock()
}

// Thaw ends Freeze.
func (n *Network) Thaw(host string) {
	n.mu.Lock()
	delete(n.frozen, host)
	n.mu.Unlock()
	n.wake()
}

// wake lets everybody who waits look again.
func (n *Network) wake() {
	n.mu.Lock()
	pipes := n.all(func(*pipe) bool { return true })
	n.mu.Unlock()
	for _, p := range pipes {
		p.cond.Broadcast()
	}
}

// all lists pipes; the caller holds the lock.
func (n *Network) all(want func(*pipe) bool) (list []*pipe) {
	for p := range n.pipes {
		if want(p) {
			list = append(list, p)
		}
	}
	return list
}

// isCut reports whether nothing passes now.
func (n *Network) isCut(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[[2]string{from, to}] || n.frozen[from] || n.frozen[to]
}

// canDial reports whether a connection can be made now. The other host makes
// it although its programs may be stopped.
func (n *Network) canDial(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cut[[2]string{from, to}] && !n.cut[[2]string{to, from}] && !n.frozen[from]
}

func (n *Network) delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.latency + time.Duration(n.rng.Int64N(int64(n.latency)+1))
}

// Crash ends every connection of a host, as the end of its process does.
func (n *Network) Crash(host string) {
	n.mu.Lock()
	pipes := n.all(func(p *pipe) bool { return p.from == host || p.to == host })
	var ls []*listener
	for _, l := range n.listeners {
		if hostOf(l.addr) == host {
			ls = append(ls, l)
		}
	}
	n.mu.Unlock()
	for _, l := range ls {
		l.Close()
	}
	for _, p := range pipes {
		p.finish()
	}
}

// Listen opens a listener at "host:port".
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, fmt.Errorf("listen %s: %w", addr, syscall.EADDRINUSE)
	}
	l := &listener{n: n, addr: addr, backlog: make(chan net.Conn, 1024), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

// Dialer returns a dial function for programs on a host.
func (n *Network) Dialer(from string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		to := hostOf(addr)
		wait := time.NewTimer(n.delay() + n.delay())
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !n.canDial(from, to) {
			limit := time.NewTimer(5 * time.Second)
			defer limit.Stop()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-limit.C:
				return nil, os.ErrDeadlineExceeded
			}
		}
		n.mu.Lock()
		l := n.listeners[addr]
		n.mu.Unlock()
		if l == nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		there, back := n.pipe(from, to), n.pipe(to, from)
		near := &conn{in: back, out: there, local: address(from + ":0"), remote: address(addr)}
		far := &conn{in: there, out: back, local: address(addr), remote: address(from + ":0")}
		select {
		case l.backlog <- far:
			return near, nil
		case <-l.closed:
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
	}
}

type listener struct {
	n       *Network
	addr    string
	backlog chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		delete(l.n.listeners, l.addr)
		l.n.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.backlog:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.addr) }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// pipeRoom is how much one direction holds before the writer waits.
const pipeRoom = 256 << 10

// pipe is one direction of a connection.
type pipe struct {
	n        *Network
	from, to string

	mu       sync.Mutex
	cond     *sync.Cond
	segments []segment
	size     int
	sealed   bool // the writer has closed: EOF behind the last segment
	gone     bool // the reader has closed: writing fails
	dead     bool // the process at either end is gone
	read     deadline
	write    deadline
}

type segment struct {
	data []byte
	at   time.Time // when it arrives, if the wire is whole
}

// deadline is a point in time at which waiting fails.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (n *Network) pipe(from, to string) *pipe {
	p := &pipe{n: n, from: from, to: to}
	p.cond = sync.NewCond(&p.mu)
	n.mu.Lock()
	n.pipes[p] = struct{}{}
	n.mu.Unlock()
	return p
}

// finish ends the pipe at once, with what is on the wire lost.
func (p *pipe) finish() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.cond.Broadcast()
	p.forget()
}

func (p *pipe) forget() {
	p.n.mu.Lock()
	delete(p.n.pipes, p)
	p.n.mu.Unlock()
}

func (p *pipe) Write(b []byte) (int, error) {
	delay := p.n.delay()
	back := p.n.isCut(p.to, p.from)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.sealed:
			return 0, net.ErrClosed
		case (p.gone || p.dead) && !back:
			return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
		case p.write.passed():
			return 0, os.ErrDeadlineExceeded
		}
		if p.size < pipeRoom {
			break
		}
		p.cond.Wait()
	}
	at := p.n.carried(p.from, p.to, len(b)).Add(delay)
	if k := len(p.segments); k > 0 && p.segments[k-1].at.After(at) {
		at = p.segments[k-1].at
	}
	p.segments = append(p.segments, segment{append([]byte(nil), b...), at})
	p.size += len(b)
	time.AfterFunc(time.Until(at), p.cond.Broadcast)
	return len(b), nil
}

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.gone {
			return 0, net.ErrClosed
		}
		if p.read.passed() {
			return 0, os.ErrDeadlineExceeded
		}
		p.mu.Unlock()
		cut := p.n.isCut(p.from, p.to)
		p.mu.Lock()
		if !cut {
			switch {
			case len(p.segments) > 0 && !p.segments[0].at.After(time.Now()):
				n := copy(b, p.segments[0].data)
				p.segments[0].data = p.segments[0].data[n:]
				if len(p.segments[0].data) == 0 {
					p.segments = p.segments[1:]
				}
				p.size -= n
				p.cond.Broadcast()
				return n, nil
			case p.dead:
				return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
			case p.sealed && len(p.segments) == 0:
				return 0, io.EOF
			}
		}
		if p.gone || p.read.passed() {
			continue
		}
		p.cond.Wait()
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (p *pipe) setDeadline(d *deadline, at time.Time) {
	p.mu.Lock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at = at
	if !at.IsZero() {
		d.timer = time.AfterFunc(max(0, time.Until(at)), p.cond.Broadcast)
	}
	p.mu.Unlock()
	p.cond.Broadcast()
}

// conn is one end of a connection.
type conn struct {
	in, out       *pipe
	local, remote net.Addr
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.Write(b) }
func (c *conn) LocalAddr() net.Addr         { return c.local }
func (c *conn) RemoteAddr() net.Addr        { return c.remote }

func (c *conn) Close() error {
	c.out.mu.Lock()
	already := c.out.sealed
	c.out.sealed = true
	c.stop(c.out)
	c.out.mu.Unlock()
	c.out.cond.Broadcast()
	c.in.mu.Lock()
	c.in.gone = true
	c.stop(c.in)
	c.in.mu.Unlock()
	c.in.cond.Broadcast()
	if already {
		return net.ErrClosed
	}
	c.in.n.mu.Lock()
	delete(c.in.n.pipes, c.in)
	c.in.n.mu.Unlock()
	return nil
}

// stop ends the timers of this end; the caller holds the pipe's lock.
func (c *conn) stop(p *pipe) {
	for _, d := range []*deadline{&p.read, &p.write} {
		if d.timer != nil && (d == &p.read) == (p == c.in) {
			d.timer.Stop()
		}
	}
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.read, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.write, t)
	return nil
}
