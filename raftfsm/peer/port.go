package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Host is the server to which a port belongs.
type Host interface {
	// Greeting returns the server's greeting to a server that it calls.
	Greeting(to uint32) Greeting
	// Admit decides whether a caller may talk to the server, and remembers what
	// the caller has shown.
	Admit(Purpose, *Greeting) error
	// ServeLink runs another server's link until it ends.
	ServeLink(c net.Conn, from *Greeting)
	// Answer handles a question and returns the answer.
	Answer(context.Context, *Question) (Told, error)
	// Status returns the server's status for a server that asks for it.
	Status(asker *Greeting) Status
	// The port calls SnapshotSent after another server has accepted a snapshot from this server.
	SnapshotSent()
	// The port calls Stored when server `id` has answered that it has stored the log up to `index`. This
	// server leads in `term`.
	Stored(id uint32, term, index uint64)
	// Replicates reports whether this server leads in `term`, and server `id` is a member with this address.
	Replicates(term uint64, id uint32, addr string) bool
	// HasApplied reports whether this server is in the given term and has applied the log up to `index`.
	HasApplied(term, index uint64) bool
	// Term returns the newest term that this server's raft knows.
	Term() uint64
	// AddrOf returns the address of a server. It returns "" if the address is not known.
	AddrOf(id uint32) string
	// Instead returns the present address of a server; `addr` is its address in raft's configuration.
	Instead(id uint32, addr string) string
}

// Options configure a Port.
type Options struct {
	ID       uint32
	Addr     string // address to listen on
	SelfAddr string // address at which other servers reach the port
	Release  string // version of this program
	TLS      *TLS   // nil: the port uses no TLS
	Host     Host
	Listen   func(addr string) (net.Listener, error)
	Dial     func(ctx context.Context, addr string) (net.Conn, error)
	Logger   *slog.Logger
}

// Port is the peer port of a server: it admits callers, passes their connections to the right handlers, and
// calls the ports of other servers.
type Port struct {
	o   Options
	ctx context.Context // when ctx ends, all calls end
	ln  net.Listener

	rpcs  chan raft.RPC // requests from all connections, for raft
	reach reach
	sent  sendings

	committed atomic.Uint64 // the last commit index that raft has accepted

	mu     sync.Mutex
	conns  map[net.Conn]uint64 // the open connections, numbered in the order in which they arrived
	came   uint64              // how many connections have arrived so far
	new    []net.Conn          // connections of conns that are not admitted yet, oldest first
	closed bool
	wg     sync.WaitGroup
}

// Addr returns the address on which the port listens.
func (p *Port) Addr() string { return p.ln.Addr().String() }

// Call opens a connection to another server.
func (p *Port) Call(ctx context.Context, purpose Purpose, to uint32, addr string) (net.Conn, error) {
	c, err := p.call(ctx, purpose, to, addr)
	if purpose == Raft && p.ctx.Err() == nil { // raft calls again and again, so it notices when an outage ends
		p.reach.note(to, err)
	}
	return c, err
}

func (p *Port) call(ctx context.Context, purpose Purpose, to uint32, addr string) (c net.Conn, err error) {
	if c, err = p.o.Dial(ctx, addr); err != nil {
		return nil, err
	}
	defer func() {
		if errors.Is(err, net.ErrClosed) && ctx.Err() != nil { // the AfterFunc below has closed the connection
			err = fmt.Errorf("server %d at %s does not answer: %w", to, addr, ctx.Err())
		}
	}()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(greetTime)
	}
	c.SetDeadline(deadline)
	raw := c // the connection below TLS: closing it ends the call even if the server hangs
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
