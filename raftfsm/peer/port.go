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

// Host is the server that a port belongs to.
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
	// Status returns the server's status for a server that asks.
	Status(asker *Greeting) Status
	// The port calls SnapshotSent after another server has accepted a snapshot from this one.
	SnapshotSent()
	// The port calls Stored when server id has answered this server, the leader of term, that it has stored
	// the log up to index.
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

// Port is the peer port of a server: it admits callers, passes their connections to the right handlers, and
// calls the ports of other servers.
type Port struct {
	o   Options
	ctx context.Context // its end ends all calls
	ln  net.Listener

	rpcs  chan raft.RPC // requests from all connections, for raft
	reach reach
	sent  sendings

	committed atomic.Uint64 // the last commit index that raft has accepted

	mu     sync.Mutex
	conns  map[net.Conn]uint64 // numbered in the order of their arrival
	came   uint64              // connections so far
	new    []net.Conn          // those of conns that are not admitted yet, oldest first
	closed bool
	wg     sync.WaitGroup
}

// Addr is the address that the port listens on.
func (p *Port) Addr() string { return p.ln.Addr().String() }

// Call opens a connection to another server.
func (p *Port) Call(ctx context.Context, purpose Purpose, to uint32, addr string) (net.Conn, error) {
	c, err := p.call(ctx, purpose, to, addr)
	if purpose == Raft && p.ctx.Err() == nil { // raft calls repeatedly, so it notices the end of an outage
		p.reach.note(to, err)
	}
	return c, err
}

func (p *Port) call(ctx context.Context, purpose Purpose, to uint32, addr string) (c net.Conn, err error) {
	if c, err = p.o.Dial(ctx, addr); err != nil {
		return nil, err
	}
	defer func() {
		if errors.Is(err, net.ErrClosed) && ctx.Err() != nil { // closed below, because the handshake hangs
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
