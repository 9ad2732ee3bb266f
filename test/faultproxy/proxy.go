package faultproxy

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/wire"
)

// Proxy forwards connections to one server.
type Proxy struct {
	l    net.Listener
	done chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	target []string // addresses of the servers, used in turn, one for each connection
	conns  map[*pair]struct{}
	n      int
	rules  []*Armed
	frames []Frame
	keep   bool
	refuse bool
	stash  []byte
	hole   chan struct{} // not nil during a blackhole; closed when it ends

	session wire.Session // the latest session that a client got
}

// New starts a proxy in front of target on a free port.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{l: l, target: []string{target}, done: make(chan struct{}), conns: map[*pair]struct{}{}}
	p.wg.Add(1)
	go p.accept()
	return p, nil
}

// Addr is the address for clients.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	select {
	case <-p.done:
		p.mu.Unlock()
		return
	default:
	}
	close(p.done)
	p.mu.Unlock()
	p.l.Close()
	p.Cut()
	p.wg.Wait()
}

// SetTarget sends new connections to these servers, to each in turn.
func (p *Proxy) SetTarget(addrs ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = append([]string(nil), addrs...)
}

// Cut closes all present connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
}

// Refuse makes new connections fail at once, until Refuse is called with false.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Blackhole stops everything: connections stay open and the proxy accepts new ones, but nothing passes. The
// proxy drops what arrives. When the blackhole ends, the proxy closes all connections that it affected.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.hole == nil:
		p.hole = make(chan struct{})
	case !on && p.hole != nil:
		close(p.hole)
		p.hole = nil
	}
}

// Record starts a new record of frames.
func (p *Proxy) Record() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep, p.frames = true, nil
}

// Frames returns the frames since Record.
func (p *Proxy) Frames() []Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Frame(nil), p.frames...)
}

// Count returns how many frames since Record satisfy f.
func (p *Proxy) Count(f func(Frame) bool) int {
	n := 0
	for _, x := range p.Frames() {
		if f(x) {
			n++
		}
	}
	return n
}

// Connections returns how many connections the proxy has accepted.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			p.serve(c)
		}()
	}
}

// pair is a client's connection and its connection to the server.
type pair struct {
	p              *Proxy
	n              int
	client, server net.Conn
	done           chan struct{}
	once           sync.Once

	mu      sync.Mutex
	ops     map[int32]Frame // requests without a reply so far, by xid
	swallow map[int32]bool  // whether to drop the reply, by xid
	refused map[int32]int32 // the codes with which to answer requests, by their xids
}

func (c *pair) close() {
	c.once.Do(func() {
		close(c.done)
		c.client.Close()
		if c.server != nil {
			c.server.Close()
		}
	})
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	target, refuse, hole := p.target[p.n%len(p.target)], p.refuse, p.hole
	p.mu.Unlock()
	if refuse {
		client.Close()
		return
	}
	c := &pair{p: p, client: client, done: make(chan struct{}), ops: map[int32]Frame{}}
	if hole == nil {
		server, err := net.DialTimeout("tcp", target, time.Second)
		if err != nil {
			client.Close()
			return
		}
		c.server = server
	}
	p.mu.Lock()
	p.n++
	c.n = p.n
	p.conns[c] = struct{}{}
	select {
	case <-p.done: // Close was called before c was in p.conns
		c.close()
	default:
		if p.refuse { // Refuse() came after the first check, and a Cut() may have missed c
			c.close()
		}
	}
	p.mu.Unlock()
	defer func() {
		c.close()
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
	if hole != nil {
		c.keepOpen(hole)
		return
	}
	p.wg.Go(func() { c.pump(c.server, c.client, false) })
	c.pump(c.client, c.server, true)
}

// keepOpen keeps a connection open until the hole is closed.
func (c *pair) keepOpen(hole chan struct{}) {
	select {
	case <-hole:
	case <-c.done:
	}
}

// pump() forwards frames in one direction.
func (c *pair) pump(from, to net.Conn, requests bool) {
	defer c.close()
	for first := true; ; first = false {
		b, err := readFrame(from)
		if err != nil {
			return
		}
		f := c.describe(b, requests, first)
		c.p.mu.Lock()
		hole := c.p.hole
		c.p.mu.Unlock()
		if hole != nil {
			c.keepOpen(hole)
			return
		}
		if f.Kind == Reply && c.isSwallowed(f.Xid) {
			continue
		}
		if code, ok := c.refusal(f); ok {
			if _, err := to.Write(failed(b, code)); err != nil {
				return
			}
			continue
		}
		r := c.p.note(f)
		do := Pass
		if r != nil {
			if r.rule.Then != nil {
				r.rule.Then()
			}
			do = r.rule.Do
			r.once.Do(func() { close(r.acted) })
		}
		switch do {
		case Drop:
			continue
		case CutBefore:
			return
		case Refused:
			b = c.inPlace(f.Xid, r.rule.Code)
		case Stash:
			c.p.mu.Lock()
			c.p.stash = b
			c.p.mu.Unlock()
			return
		case Unstash:
			if err := c.unstash(to); err != nil {
				return
			}
		case Delay:
			t := time.NewTimer(r.rule.For)
			select {
			case <-t.C:
			case <-c.done:
				t.Stop()
				return
			}
		case Hold:
			select {
			case <-r.release:
			case <-c.done:
				return // the connection has ended, though the other side may not know: drop the held frame
			}
		case Fail:
			b = failed(b, r.rule.Code)
		}
		if _, err := to.Write(b); err != nil || do == CutAfter {
			return
		}
	}
}

// failed() returns only the header of a reply, with an error code.
func failed(b []byte, code int32) []byte {
	binary.BigEndian.PutUint32(b, jute.ReplyHeaderSize)
	binary.BigEndian.PutUint32(b[16:], uint32(code))
	return b[:4+jute.ReplyHeaderSize]
}

// In place of a request that the proxy refuses, inPlace returns a read that the server gets. The reply to
// this read comes in its turn, and the proxy replaces it by the refusal.
func (c *pair) inPlace(xid, code int32) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ops, xid)
	if c.refused == nil {
		c.refused = map[int32]int32{}
	}
	c.refused[xid] = code
	b, at := jute.BeginFrame(nil)
	b = jute.AppendInt(jute.AppendInt(b, xid), int32(jute.OpExists))
	b = jute.AppendBool(jute.AppendString(b, "/"), false)
	jute.EndFrame(b, at)
	return b
}

// refusal() returns the code with which the proxy refuses the request of this reply. `ok` is false if the
// proxy lets the request through.
func (c *pair) refusal(f Frame) (code int32, ok bool) {
	if f.Kind != Reply {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	code, ok = c.refused[f.Xid]
	delete(c.refused, f.Xid)
	return code, ok
}

// unstash() sends the stashed request, if there is one, with a new xid.
func (c *pair) unstash(to net.Conn) error {
	c.p.mu.Lock()
	b := c.p.stash
	c.p.stash = nil
	c.p.mu.Unlock()
	if b == nil {
		return nil
	}
	const xid = 0x7ffffff0
	binary.BigEndian.PutUint32(b[4:], xid)
	c.mu.Lock()
	if c.swallow == nil {
		c.swallow = map[int32]bool{}
	}
	c.swallow[xid] = true
	c.mu.Unlock()
	_, err := to.Write(b)
	return err
}

func (c *pair) isSwallowed(xid int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.swallow[xid]
}

// describe() parses a frame. For a reply, the operation and the path come from its request.
func (c *pair) describe(b []byte, requests, first bool) Frame {
	var f Frame
	switch {
	case first && requests:
		f = Frame{Kind: Request, Op: OpConnect}
	case first:
		f = Frame{Kind: Reply, Op: OpConnect}
		if s, err := wire.DecodeSession(bytes.Clone(b[4:])); err == nil {
			c.p.mu.Lock()
			c.p.session = s
			c.p.mu.Unlock()
		}
	case requests:
		f = parseRequest(b)
		if f.Op != OpPing {
			c.mu.Lock()
			c.ops[f.Xid] = f
			c.mu.Unlock()
		}
	default:
		f = parseReply(b)
		if f.Kind == Reply && f.Op != OpPing {
			c.mu.Lock()
			q := c.ops[f.Xid]
			delete(c.ops, f.Xid)
			c.mu.Unlock()
			f.Op, f.Path = q.Op, q.Path
		}
	}
	f.Conn, f.Size, f.At = c.n, len(b), time.Now()
	return f
}
