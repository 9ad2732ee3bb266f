package peer

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// appends are the connections on which this server's raft appends to those of
// the others: one request at a time on each.
type appends struct {
	p *Port

	mu     sync.Mutex
	idle   map[uint32][]*appendConn
	busy   map[*appendConn]struct{}
	closed bool
}

// appendConn is one of them. While it is busy it belongs to its caller.
type appendConn struct {
	net.Conn
	to   uint32
	addr string
	r    *bufio.Reader
	buf  []byte // kept for messages of usual length
}

const (
	// idleAppends is how many connections to a server are kept: raft sends entries
	// and heartbeats beside each other, and there are nudges.
	idleAppends = 3
	keptMessage = 1 << 20
)

// lateHeartbeat is how long a heartbeat waits for raft's main loop. raft takes one
// for a word of this very moment, whenever it was sent: a server that was being sent
// a snapshot by a leader that vanished would believe in it for as long again, and
// keep the others from electing. A leader that lives sends the next one at once.
const lateHeartbeat = 500 * time.Millisecond

// isHeartbeat tells the messages that raft sends beside its log, however it fares.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && len(req.Entries) == 0
}

var errBusy = errors.New("this server is busy")

// call sends one request and reads the answer.
func (a *appends) call(to uint32, addr string, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	c, err := a.take(to, addr)
	if err != nil {
		return err
	}
	why, err := c.exchange(req, resp)
	a.done(c, err)
	if err == nil && why != "" {
		err = errors.New(why)
	}
	return err
}

func (c *appendConn) exchange(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (why string, err error) {
	c.SetDeadline(time.Now().Add(rpcTimeout))
	c.buf = appendRequest(c.buf[:0], req)
	if _, err := c.Write(c.buf); err != nil {
		return "", err
	}
	if cap(c.buf) > keptMessage {
		c.buf = nil
	}
	if c.buf, err = readFrame(c.r, maxAnswer, c.buf); err != nil {
		return "", err
	}
	return parseAnswer(c.buf, resp)
}

// take returns a connection to a server, which is the caller's until done.
func (a *appends) take(to uint32, addr string) (*appendConn, error) {
	var elsewhere conns // where the server was
	a.mu.Lock()
	for n := len(a.idle[to]); n > 0; n-- {
		c := a.idle[to][n-1]
		a.idle[to] = a.idle[to][:n-1]
		if c.addr == addr {
			a.busy[c] = struct{}{}
			a.mu.Unlock()
			elsewhere.close()
			return c, nil
		}
		elsewhere = append(elsewhere, c)
	}
	a.mu.Unlock()
	elsewhere.close()
	ctx, cancel := context.WithTimeout(a.p.ctx, rpcTimeout)
	defer cancel()
	nc, err := a.p.Call(ctx, Append, to, addr)
	if err != nil {
		return nil, err
	}
	c := &appendConn{Conn: nc, to: to, addr: addr, r: bufio.NewReader(nc)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		nc.Close()
		return nil, net.ErrClosed
	}
	a.busy[c] = struct{}{}
	return c, nil
}

// done gives a connection back. When one has failed, the idle ones to the same
// server are given up as well: after its restart all of them are dead.
func (a *appends) done(c *appendConn, err error) {
	a.mu.Lock()
	delete(a.busy, c)
	idle := a.idle[c.to]
	if err == nil && !a.closed && len(idle) < idleAppends {
		a.idle[c.to] = append(idle, c)
		a.mu.Unlock()
		return
	}
	ended := conns{c}
	if err != nil {
		ended = append(ended, idle...)
		delete(a.idle, c.to)
	}
	a.mu.Unlock()
	ended.close()
}

// close ends all connections, also those that somebody waits on.
func (a *appends) close() {
	var ended conns
	a.mu.Lock()
	a.closed = true
	for _, idle := range a.idle {
		ended = append(ended, idle...)
	}
	for c := range a.busy {
		ended = append(ended, c)
	}
	a.idle = nil
	a.mu.Unlock()
	ended.close()
}

// conns are connections that nobody will use any more.
type conns []*appendConn

// close is not called with a lock held: with TLS a connection says that it ends,
// and waits for seconds for a server that takes nothing.
func (list conns) close() {
	for _, c := range list {
		c.Close()
	}
}

// serveAppends hands raft what another server's raft appends, until the
// connection ends.
func (p *Port) serveAppends(c net.Conn) {
	r := bufio.NewReaderSize(c, 64<<10)
	answers := make(chan raft.RPCResponse, 1)
	var out []byte
	for {
		b, err := readFrame(r, maxEntries, nil) // the log keeps the entries
		if err != nil {
			return
		}
		req, err := parseRequest(b)
		if err != nil {
			p.o.Logger.Warn("connection with log entries", "err", err)
			return
		}
		var late <-chan time.Time
		if isHeartbeat(req) {
			late = time.After(lateHeartbeat)
		}
		var answer raft.RPCResponse
		select {
		case p.rpcs <- raft.RPC{Command: req, RespChan: answers}:
			select {
			case answer = <-answers:
			case <-p.ctx.Done():
				return
			}
		case <-late:
			answer.Error = errBusy
		case <-p.ctx.Done():
			return
		}
		resp, ok := answer.Response.(*raft.AppendEntriesResponse)
		why := ""
		if answer.Error != nil {
			why = answer.Error.Error()
		}
		if !ok {
			resp = new(raft.AppendEntriesResponse)
		}
		out = appendAnswer(out[:0], resp, why)
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}
