package peer

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// raftConns holds the connections on which this server's raft sends requests to other servers. A connection
// carries one request at a time.
type raftConns struct {
	p *Port

	mu     sync.Mutex
	idle   map[uint32]conns     // the most recently used connection is the last
	busy   map[*raftConn]uint64 // the number of the request that is under way on a connection
	asked  uint64               // how many requests there were so far
	closed bool
}

// raftConn is a connection for requests of raft. While it is busy it belongs to its caller.
type raftConn struct {
	net.Conn
	to   uint32
	addr string
	used bool // whether the connection has carried an answer
	r    *bufio.Reader
	buf  []byte // reused for messages of the usual length
}

// rpcTimeout bounds a raft request. A snapshot has this time for each of its pieces, on average.
const rpcTimeout = 10 * time.Second

const (
	// idleConns is how many idle connections to a server are kept: raft sends entries and heartbeats at the
	// same time, and the leader sends nudges; see followers.News.
	idleConns   = 3
	keptMessage = 1 << 20
)

// call() sends one request and then, if `behind` is not nil, the bytes that can be read from `behind`. It
// waits for the answer at most for the time `limit`.
func (a *raftConns) call(to uint32, addr string, limit time.Duration, request, answer any,
	behind io.Reader) (used bool, err error) {
	c, err := a.take(to, addr)
	if err != nil {
		return false, err
	}
	used = c.used
	why, err := c.exchange(limit, request, answer, behind)
	c.used = true
	a.done(c, err)
	if err == nil && why != "" {
		err = errors.New(why)
	}
	return used, err
}

func (c *raftConn) exchange(limit time.Duration, request, answer any,
	behind io.Reader) (why string, err error) {
	c.SetDeadline(time.Now().Add(limit))
	c.buf = appendRequest(c.buf[:0], request)
	if len(c.buf)-4 > maxRequest {
		return "", errCoding // the other server could not read the request
	}
	if _, err := c.Write(c.buf); err != nil {
		return "", err
	}
	if behind != nil {
		if _, err := io.Copy(c, behind); err != nil {
			return "", err
		}
	}
	if cap(c.buf) > keptMessage {
		c.buf = nil
	}
	if c.buf, err = readFrame(c.r, maxAnswer, c.buf); err != nil {
		return "", err
	}
	return parseAnswer(c.buf, answer)
}

// connEnded reports whether err means that a connection ended. In that case the other server may or may not
// have handled the request.
func connEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// take() returns a connection to a server. The connection belongs to the caller until done() is called.
func (a *raftConns) take(to uint32, addr string) (*raftConn, error) {
	a.mu.Lock()
	idle := a.idle[to]
	if n := len(idle); n > 0 && idle[n-1].addr == addr {
		c := idle[n-1]
		a.idle[to] = idle[:n-1]
		a.asked++
		a.busy[c] = a.asked
		a.mu.Unlock()
		return c, nil
	}
	delete(a.idle, to) // the idle connections lead to the server's former address
	a.mu.Unlock()
	idle.close()
	ctx, cancel := context.WithTimeout(a.p.ctx, rpcTimeout)
	defer cancel()
	nc, err := a.p.Call(ctx, Raft, to, addr)
	if err != nil {
		return nil, err
	}
	c := &raftConn{Conn: nc, to: to, addr: addr, r: bufio.NewReader(nc)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		nc.Close()
		return nil, net.ErrClosed
	}
	a.asked++
	a.busy[c] = a.asked
	return c, nil
}

// done() takes a connection back from its caller. If a request has failed, done() also closes the idle
// connections to the same server, because a restart of that server breaks all of them.
func (a *raftConns) done(c *raftConn, err error) {
	a.mu.Lock()
	delete(a.busy, c)
	idle := a.idle[c.to]
	if err == nil && !a.closed && len(idle) < idleConns {
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

// close() ends all connections, including those with a request under way.
func (a *raftConns) close() {
	var ended conns
	a.mu.Lock()
	a.closed = true
	for _, id := range slices.Sorted(maps.Keys(a.idle)) {
		ended = append(ended, a.idle[id]...)
	}
	ended = append(ended, inOrder(a.busy)...)
	a.idle = nil
	a.mu.Unlock()
	ended.close()
}

// inOrder returns connections in the order of their numbers, so that a simulated run can be repeated. Go's
// order of a map is random.
func inOrder[C comparable](numbers map[C]uint64) []C {
	byNumber := func(a, b C) int { return cmp.Compare(numbers[a], numbers[b]) }
	return slices.SortedFunc(maps.Keys(numbers), byNumber)
}

// conns is a list of connections.
type conns []*raftConn

// The caller of close must hold no lock: with TLS, close tells the other server that the connection ends, and
// waits for seconds if that server does not read.
func (list conns) close() {
	for _, c := range list {
		c.Close()
	}
}
