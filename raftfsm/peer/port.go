package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Host is the server that a port belongs to.
type Host interface {
	// Greeting returns the server's greeting to a server that it calls.
	Greeting(to uint32) Greeting
	// Admit decides whether a caller may talk to the server, and remembers what
	// the caller has shown.
	Admit(Purpose, *Greeting) error
	// ServeLink runs another server's link until it ends.
	ServeLink(c net.Conn, from *Greeting)
	// Answer does what a question asks to do, and returns what it asks for.
	Answer(context.Context, *Question) (Told, error)
	// Status returns the server's status for a server that asks.
	Status(asker *Greeting) Status
	// SnapshotSent is called when another server has taken a snapshot from this one.
	SnapshotSent()
	// Stored is called when server id has told this server, the leader of term, that it has stored the
	// log up to index.
	Stored(id uint32, term, index uint64)
	// Replicates reports whether this server leads in term and has server id at addr as a member.
	Replicates(term uint64, id uint32, addr string) bool
	// HasApplied reports whether this server is in a term and has applied the log up to index.
	HasApplied(term, index uint64) bool
	// Term returns the newest term that this server's raft knows.
	Term() uint64
	// AddrOf returns the address of a server; empty: it is not known.
	AddrOf(id uint32) string
	// Instead returns the present address of a server that raft's configuration has at addr.
	Instead(id uint32, addr string) string
}

// Options say how a port runs.
type Options struct {
	ID       uint32
	Addr     string // to listen on
	SelfAddr string // where other servers reach the port
	Release  string // of this program
	TLS      *TLS   // nil: none
	Host     Host
	Listen   func(addr string) (net.Listener, error)
	Dial     func(ctx context.Context, addr string) (net.Conn, error)
	Logger   *slog.Logger
}

// Port is the peer port of a server: it accepts, greets and sorts, and calls
// other servers' ports.
type Port struct {
	o   Options
	ctx context.Context // ends what is under way
	ln  net.Listener

	rpcs  chan raft.RPC // for raft, from all connections
	reach reach
	sent  sendings

	committed atomic.Uint64 // the last commit index that raft was given and accepted

	mu     sync.Mutex
	conns  map[net.Conn]uint64 // by the order in which they came
	came   uint64              // connections so far
	new    []net.Conn          // those of conns that are not admitted yet, oldest first
	closed bool
	wg     sync.WaitGroup
}

// Open opens the port. The port admits no caller before the host calls Serve, when it is ready for callers.
// The end of ctx ends all calls that wait.
func Open(ctx context.Context, o Options) (*Port, error) {
	ln, err := o.Listen(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("peer port: %w", err)
	}
	return &Port{o: o, ctx: ctx, ln: ln, rpcs: make(chan raft.RPC), conns: map[net.Conn]uint64{},
		reach: reach{log: o.Logger, lost: map[uint32]*outage{}}}, nil
}

// Serve begins to admit callers.
func (p *Port) Serve() { p.wg.Go(p.accept) }

// Addr is the address that the port listens on.
func (p *Port) Addr() string { return p.ln.Addr().String() }

func (p *Port) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			if p.isClosed() || errors.Is(err, net.ErrClosed) {
				return
			}
			// Most likely the process is out of file descriptors. That passes; exiting would not help.
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if !p.track(c) {
			c.Close()
			return
		}
		p.wg.Go(func() { p.greet(c) })
	}
}

func (p *Port) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// maxNew bounds the connections whose callers are not admitted yet. One more closes the oldest of them.
const maxNew = 64

// track registers a connection, so that close can end it.
func (p *Port) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.came++
	p.conns[c] = p.came
	if p.new = append(p.new, c); len(p.new) > maxNew {
		p.new[0].Close() // whose greeting fails now
		p.new = slices.Delete(p.new, 0, 1)
	}
	return true
}

// admitted removes a connection from those that are not admitted yet.
func (p *Port) admitted(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.new, c); i >= 0 {
		p.new = slices.Delete(p.new, i, i+1)
	}
}

func (p *Port) untrack(c net.Conn) {
	p.admitted(c)
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close()
}

// greet reads a caller's greeting and hands the connection on by its purpose.
func (p *Port) greet(raw net.Conn) {
	defer p.untrack(raw)
	raw.SetDeadline(time.Now().Add(greetTime))
	purpose, g, c, err := p.readGreeting(raw)
	if err == nil {
		err = p.o.Host.Admit(purpose, &g)
	}
	if err != nil {
		p.o.Logger.Debug("peer connection refused", "peer", raw.RemoteAddr(), "err", err)
		_ = writeAnswer(c, err)
		return
	}
	if writeAnswer(c, nil) != nil {
		return
	}
	p.admitted(raw)
	c.SetDeadline(time.Time{})
	p.reach.called(g.From, purpose)
	switch purpose {
	case Raft:
		p.serveRaft(&asked{Conn: c, alive: func() bool { return p.alive(g.From) }}, g.From)
	case Link:
		p.o.Host.ServeLink(c, &g)
	case Ask:
		p.answer(c, &g)
	}
}

func (p *Port) readGreeting(c net.Conn) (purpose Purpose, g Greeting, _ net.Conn, err error) {
	var name string
	if t := p.o.TLS; t != nil {
		if c, name, err = tlsServer(t, c); err != nil {
			return 0, g, c, err
		}
	}
	var first [1]byte
	if _, err = io.ReadFull(c, first[:]); err != nil {
		return 0, g, c, err
	}
	if err = readJSON(c, &g); err != nil {
		return 0, g, c, err
	}
	if name != "" && name != certName(g.From) {
		return 0, g, c, fmt.Errorf("server %d shows the certificate of %s", g.From, name)
	}
	return Purpose(first[0]), g, c, nil
}

// Close ends the port and its connections, and waits for the goroutines that serve them.
func (p *Port) Close() {
	p.mu.Lock()
	p.closed = true
	for _, c := range inOrder(p.conns) {
		c.Close()
	}
	p.mu.Unlock()
	p.ln.Close()
	p.wg.Wait()
}

// Call opens a connection to another server.
func (p *Port) Call(ctx context.Context, purpose Purpose, to uint32, addr string) (net.Conn, error) {
	c, err := p.call(ctx, purpose, to, addr)
	if purpose == Raft && p.ctx.Err() == nil { // raft calls again and again, so it finds the end of an outage
		p.reach.note(to, err)
	}
	return c, err
}

func (p *Port) call(ctx context.Context, purpose Purpose, to uint32, addr string) (c net.Conn, err error) {
	if c, err = p.o.Dial(ctx, addr); err != nil {
		return nil, err
	}
	defer func() {
		if errors.Is(err, net.ErrClosed) && ctx.Err() != nil { // closed below, for it stands still
			err = fmt.Errorf("server %d at %s does not answer: %w", to, addr, ctx.Err())
		}
	}()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(greetTime)
	}
	c.SetDeadline(deadline)
	raw := c // a server that hangs does not answer the greeting
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	if t := p.o.TLS; t != nil {
		if c, err = tlsClient(t, c, to); err != nil {
			return nil, err
		}
	}
	g := p.o.Host.Greeting(to)
	g.From, g.To, g.Version, g.Oldest = p.o.ID, to, Version, Oldest
	g.At, g.Release = p.o.SelfAddr, p.o.Release
	if err = writeJSON(c, &g, byte(purpose)); err == nil {
		err = readAnswer(c)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("server %d at %s: %w", to, addr, err)
	}
	c.SetDeadline(time.Time{})
	return c, nil
}
