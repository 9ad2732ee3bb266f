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

// pipeRoom is how many bytes one direction holds before the writer waits.
const pipeRoom = 256 << 10

// pipe is one direction of a connection.
type pipe struct {
	n        *Network
	from, to string
	number   int

	mu       sync.Mutex
	reader   waiters
	writer   waiters
	segments []segment
	size     int
	sealed   bool      // the writer has closed: EOF after the last segment
	gone     bool      // the reader has closed: writing fails
	dead     bool      // the process at either end has ended
	mute     bool      // the process of the writer has ended
	read     time.Time // deadline of the reader; zero: none
	write    time.Time // deadline of the writer
	conn     *connID
	answers  bool // this direction leads from the called host to the caller
}

// connID is the part of a connection that both directions share.
type connID struct{ first atomic.Int32 } // the first byte on the connection, which the caller writes

type segment struct {
	data []byte
	at   time.Time // when the bytes arrive, if the wire is whole
	held bool      // the bytes stay on the wire until letGo() is called
}

// waiters are the goroutines that wait at one end of a pipe. A timer wakes them directly, which saves a
// goroutine for each message that arrives. Most events of a run are such messages.
type waiters struct {
	n     int
	woken chan struct{}
	timer *time.Timer
}

func newWaiters() waiters {
	defer asHost(asHost(0)) // the network goes on while the timers of a server stand still
	w := waiters{woken: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// wait() returns when wake() is called, or at the time `until`. If `until` is zero, there is no such time.
// The caller holds the lock, and must check its condition again.
func (w *waiters) wait(mu *sync.Mutex, until time.Time) {
	w.n++
	w.wakeAt(until)
	mu.Unlock()
	select {
	case <-w.woken:
	case <-w.timer.C:
	}
	mu.Lock()
	w.n--
}

// wake() makes one waiting goroutine check again. That goroutine wakes the next one when it stops waiting.
func (w *waiters) wake() {
	if w.n > 0 {
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}
}

// wakeAt sets the time at which the timer wakes a waiting goroutine.
func (w *waiters) wakeAt(at time.Time) {
	switch {
	case w.n == 0:
	case at.IsZero():
		w.timer.Stop()
	default:
		w.timer.Reset(time.Until(at))
	}
}

// sooner() returns the earlier of two times; zero means no time.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// arrival() returns when the next byte arrives or the read deadline passes; zero: no byte is on its way.
func (p *pipe) arrival() time.Time {
	if len(p.segments) == 0 || p.segments[0].held || !p.segments[0].at.After(time.Now()) {
		return p.read // a byte that is due waits for the repair of a cut wire, and the repair wakes the reader
	}
	return sooner(p.read, p.segments[0].at)
}

// wakeReader wakes the reader when there are bytes for it. If bytes have arrived, it wakes the reader at
// once, because the timer may have been reset at the moment when it was due.
func (p *pipe) wakeReader() {
	if len(p.segments) > 0 && !p.segments[0].held && !p.segments[0].at.After(time.Now()) {
		p.reader.wake()
	}
	p.reader.wakeAt(p.arrival())
}

// wake() makes both ends check again; the caller holds the lock.
func (p *pipe) wake() {
	p.reader.wake()
	p.writer.wake()
}

func (n *Network) pipe(from, to string) *pipe {
	p := &pipe{n: n, from: from, to: to, conn: new(connID), reader: newWaiters(), writer: newWaiters()}
	n.mu.Lock()
	n.made++
	p.number = n.made
	n.pipes[p] = struct{}{}
	n.mu.Unlock()
	return p
}

// finish() ends the pipe at once and drops the bytes on the wire. After a process has ended, the host at the
// other end hears nothing more from it, even before that host notices the end. After a power loss the
// process's disk may lack data that the process believes to be durable.
func (p *pipe) finish(writes bool) {
	p.mu.Lock()
	p.dead = true
	p.mute = p.mute || writes
	p.forget()
	p.wake()
	p.mu.Unlock()
}

// forget() drops a pipe on which no goroutine can wait. Before that, a repaired wire must wake the goroutines
// at both ends: one end may be closed without the other end knowing it. The caller holds the pipe's lock.
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
	defer p.writer.wake()
	for {
		switch {
		case p.sealed, p.mute:
			return 0, net.ErrClosed
		case (p.gone || p.dead) && !p.n.isCut(p.to, p.from):
			return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
		case passed(p.write):
			return 0, os.ErrDeadlineExceeded
		}
		if p.size < pipeRoom {
			break
		}
		p.writer.wait(&p.mu, p.write)
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
	if len(p.segments) == 1 {
		p.wakeReader()
	}
	return len(b), nil
}

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.reader.wake()
	for {
		if p.gone {
			return 0, net.ErrClosed
		}
		if passed(p.read) {
			return 0, os.ErrDeadlineExceeded
		}
		if !p.n.isCut(p.from, p.to) {
			switch {
			case len(p.segments) > 0 && p.segments[0].held: // held bytes stay even after their sender has ended
			case len(p.segments) > 0 && !p.segments[0].at.After(time.Now()):
				n := copy(b, p.segments[0].data)
				p.segments[0].data = p.segments[0].data[n:]
				if len(p.segments[0].data) == 0 {
					p.segments = p.segments[1:]
				}
				p.size -= n
				p.writer.wake()
				return n, nil
			case p.dead:
				return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
			case p.sealed && len(p.segments) == 0:
				return 0, io.EOF
			}
		}
		p.reader.wait(&p.mu, p.arrival())
	}
}

// letGo lets the held bytes arrive, and the bytes after them.
func (p *pipe) letGo() {
	p.mu.Lock()
	for i := range p.segments {
		p.segments[i].held = false
	}
	p.reader.wake()
	p.mu.Unlock()
}

func passed(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

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
	c.out.forget()
	c.out.wake()
	c.out.mu.Unlock()
	c.in.mu.Lock()
	c.in.gone = true
	c.in.forget()
	c.in.wake()
	c.in.mu.Unlock()
	if already {
		return net.ErrClosed
	}
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	p := c.in
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = t
	p.wakeReader()
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	p := c.out
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write = t
	p.writer.wakeAt(t)
	return nil
}
