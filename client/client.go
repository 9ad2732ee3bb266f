package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Client owns a session with an ensemble, and makes locks. It is safe for concurrent use; a process
// needs only one.
type Client struct {
	opt         options
	locks       options // what the options of locks begin with
	address     string  // of the servers, as given to Dial
	reaper      reaper
	crowd       crowd
	paces       paces
	named       named
	troubles    troubles
	localQueues localQueues
	notifier    notifier
	count       counters
	owner       recipe.Owner // the part of the record that all nodes of the client share

	// Each context ends, with ErrClosed, before the next: calls when Close begins, cleaning when Close
	// begins to end the session, and then life.
	calls, cleaning, life          context.Context
	endCalls, endCleaning, endLife context.CancelCauseFunc

	closeOne sync.Once
	loops    sync.WaitGroup // heartbeat, event channel
	work     tasks          // detached work under way

	noContainers atomic.Bool             // the server refused one
	refused      context.CancelCauseFunc // ends Dial when the identities are refused

	mu       sync.Mutex
	state    State
	conn     *zk.Conn // of the present session, or of the one being begun
	ep       *epoch   // nil before the first session
	attached bool
	changed  chan struct{} // closed and replaced at each change of the above
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
	c := &Client{
		opt: o, address: servers, notifier: notifier{calls: make(chan notice, maxEvents)},
		changed: make(chan struct{}), state: StateConnecting,
	}
	c.locks = o
	c.locks.events = nil // the client's function is called beside a lock's own
	c.life, c.endLife = context.WithCancelCause(context.Background())
	c.cleaning, c.endCleaning = context.WithCancelCause(c.life)
	c.calls, c.endCalls = context.WithCancelCause(c.cleaning)
	c.owner = ownerOf(o.name)
	addrs, _, err := zk.ParseServers(servers)
	if err != nil {
		return nil, publicErr(ctx, err)
	}
	c.troubles = troubles{c: c, servers: len(addrs), patience: troublePatience, latest: map[string]error{},
		said: map[string]string{}}
	c.named.m = map[taskPath][]*Lease{}
	c.localQueues.m = map[localKey][]chan struct{}{}
	c.reaper.slots = make(chan struct{}, reapParallel)
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

// greet waits until the session is usable.
func (c *Client) greet(ctx context.Context) error {
	// With a timeout too short for the margin no heartbeat makes the session usable: Dial must say so
	// at once.
	err := c.untilSession(ctx, func(e *epoch) (bool, error) {
		if e == nil {
			return false, nil
		}
		return true, c.opt.checkTimeout(e.sessionTimeout())
	})
	if err == nil {
		_, err = c.epoch(ctx)
	}
	return err
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
		e.loseAll(Closed)
	}
	err := c.awaitReaper(ctx, e)
	c.shutdown()
	return err
}

// awaitReaper waits until the abandoned nodes are removed, or ctx ends. Without a server it does
// not wait beyond the end of the session, which removes the nodes.
func (c *Client) awaitReaper(ctx context.Context, e *epoch) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		err := c.reaper.left.wait(bounded)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		c.mu.Lock()
		gone := e != nil && !c.attached && e.outlived()
		c.mu.Unlock()
		if gone {
			return nil
		}
	}
}

// beginDraining ends all attempts; first reports whether this call did it.
func (c *Client) beginDraining() (first bool, e *epoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first = !c.isDraining(); first {
		c.endCalls(ErrClosed)
		c.broadcast()
	}
	return first, c.ep
}

// shutdown closes the session and waits for every goroutine of the client.
func (c *Client) shutdown() {
	c.closeOne.Do(func() {
		_, e := c.beginDraining()
		c.mu.Lock()
		c.endCleaning(ErrClosed)
		conn := c.conn // the last one
		c.mu.Unlock()
		if e != nil {
			e.finish(Closed)
		}
		// A server that does not answer must not delay Close.
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		_ = conn.Close(ctx)
		c.update(func() { c.state = StateClosed })
		_ = c.work.wait(c.life)
		c.endLife(ErrClosed)
		c.loops.Wait()
	})
}

// closePatience bounds the wait for the answer to closing the session.
const closePatience = 500 * time.Millisecond

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

// detached runs f in a goroutine. No caller's context bounds f: it may run until the client begins
// to close the session, and the client waits for it then.
func (c *Client) detached(f func(ctx context.Context)) {
	c.work.add(1)
	go func() {
		defer c.work.add(-1)
		f(c.cleaning)
	}()
}

// during returns a context for a call: it ends with ctx, and when Close begins.
func (c *Client) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.calls, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// isDraining reports whether Close was called.
func (c *Client) isDraining() bool { return c.calls.Err() != nil }

// tasks counts work under way. Unlike a sync.WaitGroup it may grow while a goroutine waits.
type tasks struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed at zero tasks; nil without a waiting goroutine
}

// add changes the number of tasks by n and returns the new number.
func (t *tasks) add(n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += n
	if t.n == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
	return t.n
}

// wait waits until there is no task, or ctx ends.
func (t *tasks) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n > 0 && t.none == nil {
		t.none = make(chan struct{})
	}
	none, idle := t.none, t.n == 0
	t.mu.Unlock()
	if idle {
		return nil
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctxErr(ctx)
	}
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
