package zk

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// stagger is how long the Conn waits for one server before it also tries the next server.
const stagger = 200 * time.Millisecond

// run is the goroutine of the connection: it connects, reads, and connects again
// until the session is over.
func (c *Conn) run() {
	defer close(c.finished)
	failed := 0 // how many rounds there were since the last usable server
	next := 0   // index of the server to try first
	for c.life.Err() == nil {
		l, at, err := c.connect(next)
		switch {
		case errors.Is(err, ErrSessionExpired), errors.Is(err, ErrAuthFailed):
			c.end(err, Expired)
			return
		case err != nil:
			failed++
		default:
			next = at + 1
			if !c.attach(l) {
				l.close()
				return
			}
			go l.ping()
			err = l.read()
			if c.detach(l, err) {
				failed = 0
			} else {
				// A server may accept connections and close them at once, or send a bad answer on each. Count
				// that as a failure, so that the Conn does not ask it in a tight loop.
				failed++
			}
		}
		if c.leaving() {
			return
		}
		if round := failed - 1; round > 0 {
			pause(c.life, backoff(round, 50*time.Millisecond, time.Second))
		}
	}
}

// leaving reports whether the Conn needs no more connections. Close ends the session first and records that a
// moment later. A connection that is made between these two moments would ask for a session that no longer
// exists.
func (c *Conn) leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing || c.err != nil
}

// backoff returns the time to wait before attempt n (1, 2, …). The time doubles from `first` up to `last`. Up
// to a quarter of it is added or subtracted at random.
func backoff(n int, first, last time.Duration) time.Duration {
	d := last
	if n < 16 {
		d = min(last, first<<(n-1))
	}
	return d*3/4 + rand.N(d/2+1)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// opened is a connection before its handshake, or the reason why the dial failed.
type opened struct {
	conn net.Conn
	at   int // index of the server
	err  error
}

// connect tries every server once, beginning with the server whose index is `first`, and returns the link to
// the server that first accepts the session. It opens connections in parallel, and begins each a moment after
// the previous one. It makes the handshakes one after another, because only one server can take over a
// session.
func (c *Conn) connect(first int) (*link, int, error) {
	ctx, cancel := context.WithCancel(c.life)
	results := make(chan opened, len(c.servers))
	var racing, asking sync.WaitGroup
	kick := make(chan struct{}, len(c.servers))
	racing.Go(func() { c.race(ctx, first, kick, results) })
	defer func() {
		cancel()
		racing.Wait()
		asking.Wait()
		close(results)
		for o := range results {
			if o.conn != nil {
				o.conn.Close()
			}
		}
	}()
	var last error
	for range c.servers {
		o := <-results
		if o.err == nil {
			var l *link
			if l, o.err = c.greet(o.conn, c.servers[o.at]); o.err == nil {
				return l, o.at, nil
			}
			o.conn.Close()
			if c.outlived() && c.takesNew(ctx, c.servers[o.at]) {
				o.err = ErrSessionExpired
			}
		}
		if errors.Is(o.err, ErrSessionExpired) || errors.Is(o.err, ErrAuthFailed) {
			return nil, 0, o.err
		}
		if c.life.Err() != nil {
			return nil, 0, c.life.Err()
		}
		last = o.err
		kick <- struct{}{}
		asking.Go(func() { c.note(c.servers[o.at], c.why(ctx, c.servers[o.at], o.err)) })
	}
	asking.Wait()
	return nil, 0, last
}

// note records why a server could not be used.
func (c *Conn) note(server string, err error) {
	c.mu.Lock()
	c.trouble[server] = err
	c.mu.Unlock()
	c.opt.Logger.Debug("server cannot be used", "server", server, "err", err)
	c.opt.OnTrouble(server, err)
}

// race opens connections to all servers until ctx ends, and sends one result for each server. It begins each
// connection a moment after the previous one, or at once when kick says that an earlier server could not be
// used.
func (c *Conn) race(ctx context.Context, first int, kick <-chan struct{}, results chan<- opened) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	for i := range c.servers {
		if i > 0 {
			t := time.NewTimer(stagger)
			select {
			case <-t.C:
			case <-kick:
			case <-ctx.Done(): // dial then fails at once
			}
			t.Stop()
		}
		at := (first + i) % len(c.servers)
		attempts.Go(func() {
			conn, err := c.dial(ctx, c.servers[at])
			results <- opened{conn, at, err}
		})
	}
}

// dial opens one connection, with TLS if the options say so.
func (c *Conn) dial(ctx context.Context, server string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.AttemptLimit)
	defer cancel()
	conn, err := c.dialAny(ctx, server)
	if err != nil || c.opt.TLS == nil {
		return conn, err
	}
	cfg := c.opt.TLS
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(server)
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, whyTLS(err)
	}
	return secure, nil
}

// dialAny looks up the addresses of a host name again, and opens a connection to one of them.
func (c *Conn) dialAny(ctx context.Context, server string) (net.Conn, error) {
	if c.opt.Dial != nil {
		return c.opt.Dial(ctx, "tcp", server)
	}
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, a := range shuffled(addrs) {
		// The addresses share the time that is left for the attempt.
		d := net.Dialer{}
		if end, ok := ctx.Deadline(); ok && len(addrs) > 1 {
			d.Timeout = time.Until(end) / time.Duration(len(addrs)-i)
		}
		var conn net.Conn
		if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(a, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// greet asks a server to take the session, and presents the identities.
func (c *Conn) greet(conn net.Conn, server string) (*link, error) {
	stop := context.AfterFunc(c.life, func() { conn.Close() })
	defer stop()
	c.mu.Lock()
	sid, zxid, password, auth := c.sid, c.zxid, c.password, slices.Clone(c.auth)
	c.asked = server
	c.mu.Unlock()
	from := &patient{Conn: conn}
	br := bufio.NewReaderSize(from, 16<<10)
	granted, timeout, newPassword, err := c.hello(conn, br, sid, zxid, password)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.sid, c.timeout, c.password, c.server = granted, timeout, newPassword, server
	c.lost = time.Now() // the server has just confirmed the session, even if this connection never carries it
	c.mu.Unlock()
	for _, a := range auth {
		if err := present(conn, br, a); err != nil {
			return nil, err
		}
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	from.silent = timeout * 2 / 3
	return &link{
		c: c, conn: conn, server: server, br: br, silent: from.silent, gone: make(chan struct{}),
		wrote: time.Now(),
	}, nil
}

// hello makes the handshake for a session, or for a new session if sid is 0, and returns what the
// server grants.
func (c *Conn) hello(conn net.Conn, br io.Reader, sid, zxid int64, password []byte) (int64, time.Duration,
	[]byte, error) {
	if err := conn.SetDeadline(time.Now().Add(c.opt.AttemptLimit)); err != nil {
		return 0, 0, nil, err
	}
	wanted := min(c.opt.Timeout/time.Millisecond, math.MaxInt32)
	b, _ := jute.BeginFrame(nil)
	b = jute.AppendLong(jute.AppendInt(b, 0), zxid)
	b = jute.AppendLong(jute.AppendInt(b, int32(wanted)), sid)
	b = jute.AppendBool(jute.AppendBuffer(b, password), false)
	jute.EndFrame(b, 0)
	if _, err := conn.Write(b); err != nil {
		return 0, 0, nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return 0, 0, nil, err
	}
	switch {
	case head[0] == recordAlert:
		return 0, 0, nil, errExpectsTLS
	case string(head[:]) == "HTTP":
		return 0, 0, nil, errHTTP
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 36 || size > 64 {
		return 0, 0, nil, errNotProtocol
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(br, body); err != nil {
		return 0, 0, nil, err
	}
	d := jute.NewDecoder(body)
	d.Int()
	timeout := time.Duration(d.Int()) * time.Millisecond
	granted := d.Long()
	newPassword := d.Buffer()
	if d.Err() != nil || timeout < 0 {
		return 0, 0, nil, errNotProtocol
	}
	if granted == 0 || timeout == 0 {
		return 0, 0, nil, ErrSessionExpired
	}
	return granted, timeout, slices.Clone(newPassword), nil
}

// present() presents one identity and waits for the answer. A server that refuses the identity closes the
// connection. If more requests followed at once, the server's answer could be lost.
func present(conn net.Conn, br *bufio.Reader, a Auth) error {
	r := authCall(a)
	r.stamp(r.xid)
	if _, err := conn.Write(r.frame); err != nil {
		return err
	}
	var head [4 + jute.ReplyHeaderSize]byte
	if _, err := io.ReadFull(br, head[:]); err != nil {
		return err
	}
	d := jute.NewDecoder(head[:])
	size, xid := d.Int(), d.Int()
	d.Long()
	code := jute.ErrCode(d.Int())
	switch {
	case size != jute.ReplyHeaderSize || xid != r.xid:
		return errNotProtocol
	case code != jute.OK:
		return fmt.Errorf("%w: identity of scheme %q", ErrAuthFailed, a.Scheme)
	}
	return nil
}

// attach makes l the link that carries the session. It sends the watches first, and then the waiting calls.
// It returns false if the Conn was closed.
func (c *Conn) attach(l *link) bool {
	c.mu.Lock()
	if c.closing || c.err != nil {
		c.mu.Unlock()
		return false
	}
	c.link = l
	for _, s := range c.watches.again(c.zxid) {
		l.put(c.setWatches(s))
	}
	waiting := c.queue
	c.queue = nil
	for _, r := range waiting {
		l.put(r)
	}
	clear(c.trouble)
	c.asked = ""
	c.opt.Counters.Connections.Add(1)
	close(c.ready) // after the counter has changed, because a caller that waits for ready may read the counter
	l.flush()
	c.opt.Logger.Debug("connected", "server", l.server)
	c.tell(Connected)
	return true
}

// setWatches makes the request that sets watches on a new connection.
func (c *Conn) setWatches(s *jute.SetWatches) *call {
	r := &call{xid: jute.XidSetWatches, inner: true}
	op, lists := jute.OpSetWatches, [][]string{s.Data, s.Exist, s.Child}
	if s.Persistent != nil || s.Recursive != nil {
		op, lists = jute.OpSetWatches2, append(lists, s.Persistent, s.Recursive)
	}
	b := jute.AppendLong(r.begin(op, "", setWatchesLimit), s.RelativeZxid)
	for _, list := range lists {
		b = jute.AppendStrings(b, list)
	}
	r.end(b)
	r.settled = func(err error) {
		if _, refused := errors.AsType[*Error](err); refused {
			c.watches.lost(c.root, s)
			for _, path := range append(s.Persistent, s.Recursive...) {
				c.watches.endSubscriptions(path)
			}
		}
	}
	return r
}

// detach removes a link that has ended. Reads under way will be sent again, and writes fail. The result
// useful is true if the server answered requests of the session and sent no bad answer.
func (c *Conn) detach(l *link, why error) (useful bool) {
	l.close()
	c.mu.Lock()
	var again []*call
	for _, r := range l.pending {
		switch {
		case r.stage == over:
		case r.inner || r.left || !r.repeat:
			r.finish(ErrConnectionLost)
		default:
			r.stage = waiting
			again = append(again, r)
		}
	}
	l.pending, l.out = nil, nil
	c.queue = append(again, c.queue...)
	c.link = nil
	c.lost = time.Now()
	c.ready = make(chan struct{})
	useful = l.useful
	ended := c.err != nil
	c.mu.Unlock()
	close(l.gone)
	if !ended {
		c.opt.Logger.Debug("disconnected", "server", l.server, "err", why)
		c.tell(Disconnected)
	}
	return useful
}
