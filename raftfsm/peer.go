package raftfsm

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// One peer port serves three kinds of connections, told apart by the first
// byte. Each begins with a greeting that says who calls whom; the answer is a
// status byte, so a caller knows at once that it is not wanted and why.
//
//	connection := kind u8 · length u32 · greeting (JSON) · answer
//	answer     := 0 | 1 · length u32 · reason
const (
	peerRaft byte = 'R' // raft's own RPCs
	peerLink byte = 'L' // a server's request stream to the leader
	peerAsk  byte = 'A' // one question, one answer, both JSON
)

const (
	peerGreetTime  = 5 * time.Second
	peerMaxMessage = 64 << 20
)

// greeting opens a connection between servers. A server of another cluster, or
// one that has lost its disk and is not who the others think, is refused.
type greeting struct {
	From    uint32 `json:"from"`
	To      uint32 `json:"to"`
	Cluster string `json:"cluster"`
	Birth   string `json:"birth"`
	Term    uint64 `json:"term"` // highest term the caller has seen

	// Versions of what servers say to each other, log entries included, that
	// the caller understands.
	Version int `json:"version"`
	Oldest  int `json:"oldest"`
}

// Versions this program understands. A version that servers of the one before
// cannot follow must not be spoken before all members announce it.
const (
	peerVersion = 1
	peerOldest  = 1
)

// understands reports whether the caller and this server have a version in
// common.
func (g *greeting) understands() bool { return g.Version >= peerOldest && g.Oldest <= peerVersion }

// listenPeers and dialPeer are the network unless a test brings its own. Dead
// peers must be noticed although they say nothing: a follower that waits on a
// vanished leader's connection cannot vote.
func listenPeers(addr string) (net.Listener, error) {
	lc := net.ListenConfig{Control: peerSocket, KeepAliveConfig: peerKeepAlive}
	return lc.Listen(context.Background(), "tcp", addr)
}

func dialPeer(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 2 * time.Second, Control: peerSocket, KeepAliveConfig: peerKeepAlive}
	return d.DialContext(ctx, "tcp", addr)
}

var peerKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 3}

// peerUserTimeout bounds how long sent bytes may stay unacknowledged.
const peerUserTimeout = 10 * time.Second

func peerSocket(_, _ string, c syscall.RawConn) error {
	var err error
	ctlErr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(peerUserTimeout/time.Millisecond))
	})
	return errors.Join(ctlErr, err)
}

// peerPort is the peer port of a server: it accepts, greets and sorts.
type peerPort struct {
	n  *Node
	ln net.Listener

	raftConns chan net.Conn

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	seen   map[string]uint64 // birth of a server -> highest term it has shown us
	closed bool
	wg     sync.WaitGroup
}

// openPeerPort opens the port. Nobody is let in before accept runs, which is
// when the Node knows its port.
func openPeerPort(n *Node) (*peerPort, error) {
	ln, err := n.o.Listen(n.o.PeerListen)
	if err != nil {
		return nil, fmt.Errorf("peer port: %w", err)
	}
	p := &peerPort{n: n, ln: ln, raftConns: make(chan net.Conn), conns: map[net.Conn]struct{}{}, seen: map[string]uint64{}}
	return p, nil
}

func (p *peerPort) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			if p.isClosed() || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors, most likely. It passes; exiting would not help.
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

func (p *peerPort) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// track registers a connection, so that close can end it.
func (p *peerPort) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *peerPort) untrack(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	c.Close()
}

// greet reads a caller's greeting and hands the connection to whom it is for.
func (p *peerPort) greet(raw net.Conn) {
	c := raw
	c.SetDeadline(time.Now().Add(peerGreetTime))
	kind, g, c, err := p.readGreeting(c)
	if err == nil {
		err = p.n.admit(kind, &g)
	}
	if err != nil {
		p.n.log.Debug("peer connection refused", "peer", raw.RemoteAddr(), "err", err)
		writeAnswer(c, err)
		p.untrack(raw)
		return
	}
	if writeAnswer(c, nil) != nil {
		p.untrack(raw)
		return
	}
	c.SetDeadline(time.Time{})
	p.note(&g)
	switch kind {
	case peerRaft:
		select {
		case p.raftConns <- &trackedConn{c, func() { p.untrack(raw) }}:
		case <-p.n.ctx.Done():
			p.untrack(raw)
		}
	case peerLink:
		p.n.serveLink(c, g.From)
		p.untrack(raw)
	case peerAsk:
		c.SetDeadline(time.Now().Add(peerGreetTime))
		p.n.answer(c, &g)
		p.untrack(raw)
	}
}

func (p *peerPort) readGreeting(c net.Conn) (kind byte, g greeting, _ net.Conn, err error) {
	var name string
	if t := p.n.o.PeerTLS; t != nil {
		if c, name, err = t.server(c); err != nil {
			return 0, g, c, err
		}
	}
	var k [1]byte
	if _, err = io.ReadFull(c, k[:]); err != nil {
		return 0, g, c, err
	}
	if err = readJSON(c, &g); err != nil {
		return 0, g, c, err
	}
	if name != "" && name != certName(g.From) {
		return 0, g, c, fmt.Errorf("server %d shows the certificate of %s", g.From, name)
	}
	return k[0], g, c, nil
}

// note remembers the highest term a server has shown. A directory restored
// from an old copy shows a lower one later.
func (p *peerPort) note(g *greeting) {
	p.mu.Lock()
	p.seen[g.Birth] = max(p.seen[g.Birth], g.Term)
	p.mu.Unlock()
}

func (p *peerPort) seenTerm(birth string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[birth]
}

func (p *peerPort) close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.ln.Close()
	p.wg.Wait()
}

// trackedConn tells the port when raft is done with a connection.
type trackedConn struct {
	net.Conn
	done func()
}

func (c *trackedConn) Close() error {
	err := c.Conn.Close()
	c.done()
	return err
}

// call opens a connection of the given kind to another server.
func (n *Node) call(ctx context.Context, kind byte, to uint32, addr string) (net.Conn, error) {
	c, err := n.o.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(peerGreetTime)
	}
	c.SetDeadline(deadline)
	if t := n.o.PeerTLS; t != nil {
		if c, err = t.client(c, to); err != nil {
			return nil, err
		}
	}
	b, err := json.Marshal(n.greeting(to))
	if err == nil {
		msg := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(b)))
		_, err = c.Write(append(msg, b...))
	}
	if err == nil {
		err = readAnswer(c)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("server %d at %s: %w", to, addr, err)
	}
	c.SetDeadline(time.Time{})
	return c, nil
}

// errRefused marks the answer of a server that does not want to talk to us.
var errRefused = errors.New("refused")

func writeAnswer(w io.Writer, reason error) error {
	b := []byte{0}
	if reason != nil {
		text := reason.Error()
		b = binary.BigEndian.AppendUint32([]byte{1}, uint32(len(text)))
		b = append(b, text...)
	}
	_, err := w.Write(b)
	return err
}

func readAnswer(r io.Reader) error {
	var b [5]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return err
	}
	if b[0] == 0 {
		return nil
	}
	if _, err := io.ReadFull(r, b[1:]); err != nil {
		return err
	}
	text := make([]byte, min(binary.BigEndian.Uint32(b[1:]), 4096))
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", errRefused, text)
}

// readJSON reads a length and that much JSON.
func readJSON(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > 1<<20 {
		return fmt.Errorf("message of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// frame is one message on a link: kind, length, payload.
func writeFrame(w *bufio.Writer, kind byte, payload []byte) error {
	var head [5]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

func readFrame(r *bufio.Reader) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > peerMaxMessage {
		return 0, nil, fmt.Errorf("message of %d bytes on a link", n)
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(r, payload)
	return head[0], payload, err
}
