package sim

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

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
	number   int

	mu       sync.Mutex
	cond     *sync.Cond
	segments []segment
	size     int
	sealed   bool // the writer has closed: EOF after the last segment
	gone     bool // the reader has closed: writing fails
	dead     bool // the process at either end has ended
	mute     bool // the writing process has ended
	read     deadline
	write    deadline
	conn     *connID
	answers  bool // from the called host to the caller
}

// connID is what both directions of a connection know of it.
type connID struct{ first atomic.Int32 } // the byte that the caller sent; both ends write

type segment struct {
	data []byte
	at   time.Time // time of arrival on a whole wire
	held bool      // see Network.held
}

// deadline is a point in time at which waiting fails.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (n *Network) pipe(from, to string) *pipe {
	p := &pipe{n: n, from: from, to: to, conn: new(connID)}
	p.cond = sync.NewCond(&p.mu)
	n.mu.Lock()
	n.made++
	p.number = n.made
	n.pipes[p] = struct{}{}
	n.mu.Unlock()
	return p
}

// finish ends the pipe at once and loses the bytes on the wire. The other end hears nothing
// more from an ended process, even before it notices that end: without power the process's
// disk may have lost what the process believes to be durable.
func (p *pipe) finish(writes bool) {
	p.mu.Lock()
	p.dead = true
	p.mute = p.mute || writes
	p.forget()
	p.mu.Unlock()
	p.cond.Broadcast()
}

// forget drops a pipe on which no goroutine can wait. Until then a repaired wire must wake the waiting
// ends: one end may be over and the other not know it. The caller holds the pipe's lock.
func (p *pipe) forget() {
	if !p.sealed || !p.gone {
		return
	}
	p.n.mu.Lock()
	delete(p.n.pipes, p)
	p.n.mu.Unlock()
}

func (p *pipe) Write(b []byte) (int, error) {
	delay := p.n.delay()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.sealed, p.mute:
			return 0, net.ErrClosed
		case (p.gone || p.dead) && !p.n.isCut(p.to, p.from):
			return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
		case p.write.passed():
			return 0, os.ErrDeadlineExceeded
		}
		if p.size < pipeRoom {
			break
		}
		p.cond.Wait()
	}
	at := onGrid(p.n.carried(p.from, p.to, len(b)).Add(delay), p.n.grid)
	if k := len(p.segments); k > 0 && p.segments[k-1].at.After(at) {
		at = p.segments[k-1].at
	}
	p.conn.first.CompareAndSwap(0, int32(b[0]))
	hold := p.n.held.Load()
	p.segments = append(p.segments, segment{append([]byte(nil), b...), at, hold != nil && (*hold)(p, b)})
	p.size += len(b)
	p.n.trace.add("write", p.from, p.to, b)
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
		if !p.n.isCut(p.from, p.to) {
			switch {
			case len(p.segments) > 0 && p.segments[0].held: // also after the end of its sender
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
		p.cond.Wait()
	}
}

// letGo lets the bytes arrive that were held, and what is behind them.
func (p *pipe) letGo() {
	p.mu.Lock()
	for i := range p.segments {
		p.segments[i].held = false
	}
	p.mu.Unlock()
	p.cond.Broadcast()
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
	c.out.forget()
	c.out.mu.Unlock()
	c.out.cond.Broadcast()
	c.in.mu.Lock()
	c.in.gone = true
	c.stop(c.in)
	c.in.forget()
	c.in.mu.Unlock()
	c.in.cond.Broadcast()
	if already {
		return net.ErrClosed
	}
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
