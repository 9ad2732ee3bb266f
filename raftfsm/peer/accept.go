package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Open opens the port. The port admits no caller until the host calls Serve. When ctx ends, all waiting calls
// end.
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

func (p *Port) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			if p.isClosed() || errors.Is(err, net.ErrClosed) {
				return
			}
			// Most likely the process has no free file descriptor. That will pass, and it would not help to
			// exit.
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

// maxNew bounds the connections whose callers are not admitted yet. A further connection closes the oldest of
// them.
const maxNew = 64

// track registers a connection, so that Close can end the connection.
func (p *Port) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.came++
	p.conns[c] = p.came
	if p.new = append(p.new, c); len(p.new) > maxNew {
		p.new[0].Close() // the greeting on this connection now fails
		p.new = slices.Delete(p.new, 0, 1)
	}
	return true
}

// admitted() removes a connection from the connections that are not admitted yet.
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

// greet() reads a caller's greeting and passes the connection to the handler of its purpose.
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
