package zk

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// stagger is how long the Conn waits for one server before it also tries the next server.
const stagger = 200 * time.Millisecond

// run() is the goroutine of the connection: it connects, reads, and connects again
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

// leaving() reports whether the Conn needs no more connections. It is true as soon as Close has begun, and
// not only when the end of the session is recorded: between the two, a new connection would ask for a session
// that the server has ended.
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

// connect() tries every server once, beginning with the server whose index is `first`, and returns the link
// to the server that first accepts the session. It opens connections in parallel, and begins each a moment
// after the previous one. It makes the handshakes one after another, because only one server can take over a
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

// note() records why a server could not be used.
func (c *Conn) note(server string, err error) {
	c.mu.Lock()
	c.trouble[server] = err
	c.mu.Unlock()
	c.opt.Logger.Debug("server cannot be used", "server", server, "err", err)
	c.opt.OnTrouble(server, err)
}

// race() opens connections to all servers until ctx ends, and sends one result for each server. It begins
// each connection a moment after the previous one, or at once when `kick` says that an earlier server could
// not be used.
func (c *Conn) race(ctx context.Context, first int, kick <-chan struct{}, results chan<- opened) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	for i := range c.servers {
		if i > 0 {
			t := time.NewTimer(stagger)
			select {
			case <-t.C:
			case <-kick:
			case <-ctx.Done(): // dial() then fails at once
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

// dialAny opens a connection to one of the addresses of a host name. It looks them up for each attempt.
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
