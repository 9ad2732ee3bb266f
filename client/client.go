package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Client owns a session with an ensemble, and makes locks. It is safe for concurrent use; a process
// needs only one.
type Client struct {
	locks       options // what the options of locks begin with
	events      func(Event)
	paces       paces
	named       named
	localQueues localQueues
	notifier    notifier
	owner       recipe.Owner // the part of the record that all nodes of the client share

	*keeper
}

// Dial connects to one of the servers, given as "h1:2181,h2:2181/chroot", and waits until the
// session is usable or ctx ends. A server that is down or cannot be resolved does no harm while
// another one answers. While no server answers, the client logs the reasons (see [WithLogger]);
// when ctx ends, the error contains them.
func Dial(ctx context.Context, servers string, opts ...Option) (*Client, error) {
	o, err := clientOptions(opts)
	if err != nil {
		return nil, err
	}
	c, err := newClient(servers, o)
	if err != nil {
		return nil, publicErr(ctx, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.refused = cancel
	if err := c.beginSession(); err != nil {
		c.endLife(ErrClosed)
		return nil, publicErr(ctx, err)
	}
	c.loops.Go(c.keepAlive)
	go c.notifier.run(c.life.Done()) // do not wait for it: the function may close the client
	if err := c.greet(ctx); err != nil {
		trouble := c.session().Trouble()
		// Nothing can be held yet: there is nothing worth waiting for.
		c.shutdown()
		if cause := context.Cause(ctx); errors.Is(cause, zk.ErrAuthFailed) {
			err = publicErr(ctx, cause)
		} else if trouble != nil {
			err = fmt.Errorf("%w: %w", err, trouble)
		}
		return nil, errorAt("connect to "+servers, err)
	}
	return c, nil
}

// newClient returns a client that has yet to begin its first session.
func newClient(servers string, o options) (*Client, error) {
	k, err := newKeeper(servers, o.session)
	if err != nil {
		return nil, err
	}
	c := &Client{keeper: k, events: o.events, locks: o, owner: ownerOf(o.name),
		notifier: notifier{calls: make(chan notice, maxEvents)}}
	c.locks.events = nil // the client's function is called beside a lock's own
	c.moved = func(from, to State) {
		c.notifier.add(Event{Kind: EventState, From: from, To: to}, c.events)
	}
	c.behind = func(nodes int) {
		c.notifier.add(Event{Kind: EventLeftBehind, Pending: nodes}, c.events)
	}
	c.named.m = map[taskPath][]*Lease{}
	c.localQueues.m = map[localKey][]chan struct{}{}
	return c, nil
}

// Close releases everything. Attempts under way end with ErrClosed, and leases are lost with reason
// Closed. The client removes abandoned nodes until ctx ends, or the session does by the client's
// own clock. Then it closes the session, which removes the nodes that are left. Close returns the
// error of ctx if ctx ended before all was clean; the client is closed in any case.
func (c *Client) Close(ctx context.Context) error {
	first, e := c.beginDraining()
	if !first {
		select {
		case <-c.life.Done():
			return nil
		case <-ctx.Done():
			return ctxErr(ctx)
		}
	}
	if e != nil {
		e.loseAll(overClosed)
	}
	err := c.awaitReaper(ctx, e)
	c.shutdown()
	return err
}

// Session describes the client's session.
type Session struct {
	ID         int64
	Timeout    time.Duration // as granted by the server
	Margin     time.Duration
	ValidUntil time.Time // when leases end unless a heartbeat is answered before
	Server     string    // the server connected to, or the latest one
}

// Session describes the present session; its ID is 0 before the first session and after the last.
func (c *Client) Session() Session {
	c.mu.Lock()
	conn, e := c.conn, c.ep
	c.mu.Unlock()
	s := Session{Server: conn.Session().Server}
	if e != nil && !e.ended() {
		s.ID, s.Timeout = e.sid, e.sessionTimeout()
		s.Margin = c.opt.marginFor(s.Timeout)
		s.ValidUntil = e.validUntil()
	}
	return s
}

// Conn returns the connection of the present session, at once if there is one: for other requests, and
// for what package zk tells of it, such as its counters. It serves until the session ends; a later call
// returns that of the next session. The client closes it: the caller must not.
func (c *Client) Conn(ctx context.Context) (*zk.Conn, error) {
	c.mu.Lock()
	e, closing := c.ep, c.calls.Err() != nil
	c.mu.Unlock()
	if e != nil && !e.ended() && !closing {
		return e.conn, nil
	}
	ctx, end := c.during(ctx)
	defer end()
	e, err := c.epoch(ctx)
	if err != nil {
		return nil, publicErr(ctx, err)
	}
	return e.conn, nil
}

// State returns the state of the session.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Servers returns the addresses given to Dial.
func (c *Client) Servers() []string {
	servers, _, _ := zk.ParseServers(c.address)
	return servers
}

// ownerOf describes this process.
func ownerOf(cmd string) recipe.Owner {
	o := recipe.Owner{PID: os.Getpid(), Cmd: cmd, User: os.Getenv("USER"), Client: rand.Text()}
	o.Host, _ = os.Hostname()
	if o.Cmd == "" {
		o.Cmd = filepath.Base(os.Args[0])
	}
	return o
}
