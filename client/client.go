package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Client is a session with an ensemble, and the source of locks. It is safe for
// concurrent use; a process needs one.
type Client struct {
	opt      options
	servers  []string
	chroot   string
	conn     *zk.Conn
	hosts    *hosts
	wire     *wire
	hub      *hub
	reaper   *reaper
	gates    gates
	rw1      rw1State
	notifier *notifier
	count    counters
	owner    ownerBase

	drain    chan struct{} // closed when Close begins: attempts end
	closing  chan struct{} // closed when Close begins to end the session
	closeOne sync.Once
	beat     chan struct{} // wakes the heartbeat: something about the session changed
	life     context.Context
	endLife  context.CancelFunc
	always   context.Context // never ends, so that what cleans up is not interrupted
	loops    sync.WaitGroup  // heartbeat, reaper, event channel
	work     *tasks          // calls and detached work under way

	noContainers atomic.Bool  // the server refused one
	making       sync.RWMutex // held while a container is being made

	mu       sync.Mutex
	state    State
	ep       *epoch
	attached bool
	draining bool // Close was called: no new attempts
	closed   bool
	changed  chan struct{} // closed and replaced at each change of the above
}

// Dial connects to one of the servers, given as "h1:2181,h2:2181/chroot", and
// waits until the session is usable or ctx ends. A server that is down or cannot
// be resolved does no harm while another one answers.
func Dial(ctx context.Context, servers string, opts ...Option) (*Client, error) {
	o := defaultOptions()
	for _, f := range opts {
		f(&o)
	}
	if err := o.withDefaults(); err != nil {
		return nil, err
	}
	list, chroot, err := parseServers(servers)
	if err != nil {
		return nil, err
	}
	c := &Client{
		opt: o, servers: list, chroot: chroot, hub: newHub(), work: newTasks(), notifier: newNotifier(),
		drain: make(chan struct{}), closing: make(chan struct{}), beat: make(chan struct{}, 1), changed: make(chan struct{}), state: StateConnecting,
	}
	c.life, c.endLife = context.WithCancel(context.Background())
	c.always = context.WithoutCancel(c.life)
	c.owner = newOwnerBase(o.name)
	c.reaper = newReaper(c)
	c.gates.init()
	c.wire = &wire{opt: &c.opt, count: &c.count, hub: c.hub}
	c.hosts = newHosts(list, c.closing)
	conn, events, err := zk.Connect(list, o.timeout,
		zk.WithHostProvider(c.hosts),
		zk.WithLogger(zkLogger{c}), zk.WithLogInfo(false),
		zk.WithEventCallback(c.event),
		zk.WithDialer(func(network, addr string, _ time.Duration) (c2 netConn, err error) { return c.wire.dial(network, addr) }),
	)
	if err != nil {
		c.endLife()
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c.start(conn, events)
	if err := c.greet(ctx); err != nil {
		// Nothing can be held yet: there is nothing worth waiting for.
		c.shutdown()
		return nil, fmt.Errorf("client: connect to %s: %w", servers, err)
	}
	return c, nil
}

// start runs the client's loops. The connection's own goroutine may have sent
// events before c.conn is set; the callback does not use it.
func (c *Client) start(conn *zk.Conn, events <-chan zk.Event) {
	c.conn = conn
	c.loops.Add(3)
	go func() {
		defer c.loops.Done()
		for range events { // closed when the library's goroutine has ended
		}
	}()
	go func() { defer c.loops.Done(); c.keepAlive() }()
	go func() { defer c.loops.Done(); c.reaper.run() }()
	go c.notifier.run(c.life.Done()) // not waited for: a hook may be the one that closes the client
}

// greet presents the identities and waits for the first heartbeat.
func (c *Client) greet(ctx context.Context) error {
	// With a timeout too short for the margin no heartbeat would ever make the
	// session usable: that is to be said at once.
	first, err := c.anyEpoch(ctx)
	if err != nil {
		return err
	}
	if err := c.opt.checkTimeout(first.sessionTimeout()); err != nil {
		return err
	}
	for i := 0; i < len(c.opt.auth); {
		e, err := c.anyEpoch(ctx)
		if err != nil {
			return err
		}
		cr := c.opt.auth[i]
		_, err = call(ctx, c, e, func() (struct{}, error) { return struct{}{}, c.conn.AddAuth(cr.scheme, cr.secret) })
		switch {
		case err == nil:
			i++
		case ctx.Err() != nil:
			return ctxErr(ctx)
		case isDefinite(err):
			return publicErr(err)
		}
	}
	_, err = c.epoch(ctx)
	return err
}

// Close releases everything: attempts under way end with ErrClosed, leases are
// lost with reason Closed, abandoned nodes are removed until ctx ends, and the
// session is closed, which removes whatever is left. The error is that of ctx if
// it ended before all was clean; the client is closed in any case.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.draining
	if first {
		c.draining = true
		close(c.drain)
	}
	e := c.ep
	c.broadcast()
	c.mu.Unlock()
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
	err := c.reaper.drain(ctx)
	c.shutdown()
	return err
}

// shutdown closes the session and waits for every goroutine of the client.
func (c *Client) shutdown() {
	c.closeOne.Do(func() {
		c.mu.Lock()
		if !c.draining {
			c.draining = true
			close(c.drain)
		}
		c.closed = true
		attached, e := c.attached, c.ep
		c.mu.Unlock()
		close(c.closing)
		if e != nil {
			e.finish(Closed)
		}
		if !attached {
			c.wire.close() // nobody will answer the closing request
		} else {
			// A server that does not answer the closing request must not keep
			// us: the library's loop ends with its connection.
			defer time.AfterFunc(closePatience, c.wire.close).Stop()
		}
		c.awaitMaking()
		c.conn.Close()
		c.wire.close()
		c.setState(StateClosed)
		c.hub.end()
		c.work.wait()
		c.endLife()
		c.loops.Wait()
	})
}

// awaitMaking waits until no container is being made, see makeContainer.
func (c *Client) awaitMaking() {
	defer time.AfterFunc(closePatience, c.wire.hangUp).Stop()
	c.making.Lock()
	c.making.Unlock() //nolint:staticcheck // to wait is the purpose
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

// Session returns what is known of the present session; its ID is 0 before the
// first one and after the last.
func (c *Client) Session() Session {
	s := Session{Server: c.conn.Server()}
	c.mu.Lock()
	e := c.ep
	c.mu.Unlock()
	if e != nil && !e.ended() {
		s.ID, s.Timeout = e.sid, e.sessionTimeout()
		s.Margin = c.opt.marginFor(s.Timeout)
		s.ValidUntil = e.validUntil()
	}
	return s
}

// SessionID returns the id of the present session, 0 if there is none.
func (c *Client) SessionID() int64 { return c.Session().ID }

// State returns the state of the session.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Servers returns the addresses given to Dial.
func (c *Client) Servers() []string { return append([]string(nil), c.servers...) }

// Chroot returns the part of the tree the client lives in, "" for all of it.
func (c *Client) Chroot() string { return c.chroot }

// detached runs f on its own: it is not bounded by a caller's context, and the
// client waits for it when it is closed.
func (c *Client) detached(f func(ctx context.Context)) {
	c.work.begin()
	go func() {
		defer c.work.end()
		f(c.always)
	}()
}

// isDraining reports whether Close was called.
func (c *Client) isDraining() bool { return isClosed(c.drain) }

// tasks counts work under way. Unlike a sync.WaitGroup it may grow while somebody waits.
type tasks struct {
	mu   sync.Mutex
	cond *sync.Cond
	n    int
}

func newTasks() *tasks {
	t := &tasks{}
	t.cond = sync.NewCond(&t.mu)
	return t
}

func (t *tasks) begin() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *tasks) end() {
	t.mu.Lock()
	t.n--
	if t.n == 0 {
		t.cond.Broadcast()
	}
	t.mu.Unlock()
}

func (t *tasks) wait() {
	t.mu.Lock()
	for t.n > 0 {
		t.cond.Wait()
	}
	t.mu.Unlock()
}

// full maps a client path to the server's.
func (c *Client) full(path string) string {
	if c.chroot == "" {
		return path
	}
	if path == "/" {
		return c.chroot
	}
	return c.chroot + path
}

// own maps a server path to the client's.
func (c *Client) own(path string) string {
	if c.chroot == "" || len(path) < len(c.chroot) {
		return path
	}
	if p := path[len(c.chroot):]; p != "" {
		return p
	}
	return "/"
}

// zkLogger passes the library's words on at debug level: they repeat what the
// session layer reports.
type zkLogger struct{ c *Client }

func (l zkLogger) Printf(format string, args ...any) {
	l.c.opt.log.Debug(fmt.Sprintf(format, args...))
}

// ownerBase is the part of the owner record that all nodes of a client share.
type ownerBase struct {
	host, cmd, user, client string
	pid                     int
}

func newOwnerBase(name string) ownerBase {
	b := ownerBase{cmd: name, pid: os.Getpid(), user: os.Getenv("USER"), client: rand.Text()}
	b.host, _ = os.Hostname()
	if b.cmd == "" {
		b.cmd = filepath.Base(os.Args[0])
	}
	return b
}
