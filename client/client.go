package client

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/internal/take"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Client owns a session with an ensemble, and makes locks. It is safe for concurrent use; a process
// needs only one.
type Client struct {
	locks    options // default options of the client's locks
	events   func(Event)
	notifier notifier
	keeper   *session.Keeper // the client's sessions, one after another
	take     *take.Client    // what all requests for locks share
}

// Dial connects to one of the servers, given as "h1:2181,h2:2181/chroot", and waits until the session is
// usable or ctx ends. A server that is down, or whose name cannot be resolved, does not matter while another
// server answers. While no server answers, the client logs the reasons (see [WithLogger]); when ctx ends, the
// error contains them.
func Dial(ctx context.Context, servers string, opts ...Option) (*Client, error) {
	o, err := clientOptions(opts)
	if err != nil {
		return nil, err
	}
	c := newClient(o)
	k, err := session.New(servers, c.locks.Options)
	if err != nil {
		return nil, hold.PublicErr(ctx, err)
	}
	c.keep(k)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := c.keeper.Begin(cancel); err != nil {
		return nil, hold.PublicErr(ctx, err)
	}
	go c.notifier.run(c.keeper.Done()) // Close must not wait for run(): the event function may call Close
	if err := c.keeper.Greet(ctx); err != nil {
		if errors.Is(context.Cause(ctx), zk.ErrAuthFailed) {
			err = hold.PublicErr(ctx, err)
		}
		return nil, hold.ErrorAt("connect to "+servers, err)
	}
	return c, nil
}

// newClient returns a client that has no keeper yet.
func newClient(o options) *Client {
	c := &Client{events: o.events, locks: o, notifier: notifier{calls: make(chan notice, maxEvents)}}
	c.locks.events = nil // the client's function is in c.events, and must not be called twice
	c.locks.Moved = func(from, to session.State) {
		c.notifier.add(Event{Kind: EventState, From: State(from), To: State(to)}, c.events)
	}
	c.locks.LeftBehind = func(nodes int) {
		c.notifier.add(Event{Kind: EventLeftBehind, Pending: nodes}, c.events)
	}
	return c
}

// keep() gives the client the keeper of its sessions.
func (c *Client) keep(k *session.Keeper) {
	c.keeper, c.take = k, take.New(k, ownerOf(c.locks.name), lostError)
}

// Close ends all attempts and leases. Attempts under way end with ErrClosed, and leases are lost with the
// reason Closed. The client removes abandoned nodes until ctx ends, or until the session is over according to
// the client's own clock. Then the client closes the session, and the server removes the nodes that are left.
// Close returns the error of ctx if ctx ended before all nodes were removed. The client is closed in any
// case.
func (c *Client) Close(ctx context.Context) error {
	return c.keeper.Close(ctx)
}

// Session describes the client's session.
type Session struct {
	ID         int64
	Timeout    time.Duration // as the server granted it
	Margin     time.Duration
	ValidUntil time.Time // when leases end, unless a heartbeat is answered before that
	Server     string    // the server to which the client is connected, or the last one
}

// Session describes the present session. Its ID is 0 before the first session and after the last one.
func (c *Client) Session() Session {
	e, conn := c.keeper.Present()
	s := Session{Server: conn.Session().Server}
	if e != nil && !e.Ended() {
		s.ID, s.Timeout = e.ID(), e.Timeout()
		s.Margin = c.keeper.Margin(s.Timeout)
		s.ValidUntil = e.ValidUntil()
	}
	return s
}

// Conn returns the connection of the present session. Without a session it waits. Use the connection for
// requests that are not about locks, and to read the counters of the traffic. The connection works until the
// session ends; a later call returns the connection of the next session. Only the client closes the
// connection.
func (c *Client) Conn(ctx context.Context) (*zk.Conn, error) {
	e, _ := c.keeper.Present()
	if e != nil && !e.Ended() && c.keeper.Calls().Err() == nil {
		return e.Conn(), nil
	}
	ctx, end := c.keeper.During(ctx)
	defer end()
	e, err := c.keeper.Await(ctx)
	if err != nil {
		return nil, hold.PublicErr(ctx, err)
	}
	return e.Conn(), nil
}

// State is the state of a client's session.
type State uint8

const (
	// StateConnecting: there is no session yet.
	StateConnecting = State(session.Connecting)
	// StateReady: the server answers; locks can be granted.
	StateReady = State(session.Ready)
	// StateSuspended: there is no usable connection, but the session may live.
	// Leases stay valid until their deadline.
	StateSuspended = State(session.Suspended)
	// StateLost: the session is over, or was not confirmed in time. Leases are lost.
	StateLost = State(session.Lost)
	// StateClosed: Close was called.
	StateClosed = State(session.Over)
)

// String returns the state in lower case.
func (s State) String() string { return session.State(s).String() }

// State returns the state of the session.
func (c *Client) State() State { return State(c.keeper.State()) }

// Servers returns the addresses given to Dial.
func (c *Client) Servers() []string { return c.keeper.Servers() }

// steadily() runs f in a session that a heartbeat has confirmed. It runs f again after lost replies and lost
// sessions, so f must be safe to repeat. Each error that it returns contains `path`.
func (c *Client) steadily(ctx context.Context, path string, f func(*session.Epoch) error) error {
	if err := checkPath(path); err != nil {
		return hold.ErrorAt(path, err)
	}
	ctx, end := c.keeper.During(ctx)
	defer end()
	err := session.Again(ctx, func() error {
		e, err := c.keeper.Await(ctx)
		if err == nil {
			err = f(e)
		}
		if errors.Is(err, ErrSessionExpired) && ctx.Err() == nil {
			return session.ErrAgain
		}
		return err
	})
	return hold.ErrorAt(path, hold.PublicErr(ctx, err))
}

// ask() describes a call for a lock. It refuses options that cannot work together.
func (c *Client) ask(path string, cfg *options, mode fence.Mode, try bool) (take.Ask, error) {
	a := take.Ask{Path: path, Mode: mode, Try: try, Terms: &cfg.Terms, Tell: c.teller(path, cfg)}
	return a, hold.ErrorAt(path, cfg.check(path))
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
