package zk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/zlockd/zlockd/jute"
)

// State is the state of a Conn's session.
type State uint8

// The states of a session. A Conn begins as Disconnected, changes between Disconnected and Connected, and
// ends as Expired or Closed.
const (
	Disconnected State = iota // there is no connection; the session may still live
	Connected
	Expired // the server ended the session, or refused an identity
	Closed
)

var stateNames = [...]string{"disconnected", "connected", "expired", "closed"}

// String returns the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Session describes a session.
type Session struct {
	ID        int64         // 0: there is no session yet
	Timeout   time.Duration // as the server granted it
	Server    string        // the present or the latest server
	Connected bool
	Password  []byte // with the ID, it lets another Conn continue the session; see [Options.Resume]
}

// Conn is one session with an ensemble, from its beginning to its end, over any number of connections. A Conn
// whose session has expired cannot be used again: the nodes of the session are gone. Only the program knows
// how to continue; it opens another Conn. A Conn is safe for concurrent use.
type Conn struct {
	opt     Options
	root    chroot
	servers []string

	life     context.Context // ends with the session
	endLife  context.CancelFunc
	finished chan struct{} // closed when the goroutine of the connection has ended

	mu       sync.Mutex
	err      error // why the session is over
	closing  bool  // Close was called: the Conn refuses new calls
	link     *link // the link that carries the session now; nil: there is no connection
	server   string
	asked    string // the server that the last handshake went to; empty while a link carries the session
	sid      int64
	password []byte
	timeout  time.Duration
	lost     time.Time // end of the last connection of the session or, if that is later, of a handshake
	auth     []Auth    // the identities that every connection presents
	xid      int32
	zxid     int64   // the highest zxid in an answer so far
	queue    []*call // calls that wait for a connection
	watches  watches
	ready    chan struct{}    // closed while the Conn is connected
	trouble  map[string]error // why each server could not be used; cleared when a link carries the session

	telling sync.Mutex // held while OnState is called
	told    State
}

// tell() reports a state to OnState. After Expired or Closed it reports no other state.
func (c *Conn) tell(s State) {
	c.telling.Lock()
	defer c.telling.Unlock()
	if c.told < Expired {
		c.told = s
		c.opt.OnState(s)
	}
}

// Await waits until the session has a connection. If ctx ends first, the error also says what was
// wrong with each server that the Conn tried.
func (c *Conn) Await(ctx context.Context) error {
	for {
		c.mu.Lock()
		ready := c.ready
		c.mu.Unlock()
		select {
		case <-c.life.Done():
			return c.Err()
		case <-ready:
			return nil
		case <-ctx.Done():
			return errors.Join(ctx.Err(), c.Trouble())
		}
	}
}

// Trouble returns why servers could not be used since the Conn last found a usable server. It returns nil if
// there is no such reason. A server that has not answered a handshake yet counts as a server that could not
// be used.
func (c *Conn) Trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, s := range c.servers {
		err := c.trouble[s]
		if err == nil && s == c.asked {
			err = ErrSilent
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s, err))
		}
	}
	return errors.Join(errs...)
}

// Session describes the session.
func (c *Conn) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Session{ID: c.sid, Timeout: c.timeout, Server: c.server, Connected: c.link != nil,
		Password: slices.Clone(c.password)}
}

// Over returns a channel that closes when the session is over.
func (c *Conn) Over() <-chan struct{} { return c.life.Done() }

// Err returns nil while the session lives or may live, and then ErrSessionExpired, ErrClosed or
// ErrAuthFailed.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Servers returns the addresses of the servers.
func (c *Conn) Servers() []string { return slices.Clone(c.servers) }

// Chroot returns the part of the tree to which all paths are relative. It returns "" if that is the whole
// tree.
func (c *Conn) Chroot() string { return string(c.root) }

// Counters returns the counters of the traffic. If [Options] name counters, it returns those.
func (c *Conn) Counters() *Counters { return c.opt.Counters }

// Watches returns how many watches the session has.
func (c *Conn) Watches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watches.once) + len(c.watches.subs)
}

// Pending returns how many requests have no answer yet, whether they were sent or not.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.queue)
	if c.link != nil {
		n += len(c.link.pending)
	}
	return n
}

// Reconnect replaces the present connection, if there is one, by a new connection.
func (c *Conn) Reconnect() {
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil {
		l.close()
	}
}

// Close ends the session, which removes its ephemeral nodes. The server first answers all earlier requests.
// Close waits until the server confirms the end. If ctx ends first, Close returns the error of ctx. Without a
// connection it does not wait, and the server ends the session when its timeout is over. OnState must not
// call Close.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		<-c.finished
		return nil
	}
	if c.closing { // another call of Close is waiting for the server: wait for its end
		c.mu.Unlock()
		select {
		case <-c.finished:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.closing = true
	var err error
	if l := c.link; l == nil {
		c.mu.Unlock()
	} else {
		bye := &call{}
		bye.end(bye.begin(jute.OpCloseSession, "", 0))
		l.put(bye)
		l.flush() // unlocks c.mu
		select {
		case <-bye.done:
		case <-l.gone:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.end(ErrClosed, Closed)
	<-c.finished
	return err
}

// end() records that the session is over, and ends all calls and watches that wait for it.
func (c *Conn) end(err error, s State) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	waiting := c.queue
	c.queue = nil
	if c.link != nil {
		waiting = append(waiting, c.link.pending...)
		c.link.pending = nil
		c.link.close()
	}
	c.watches.end(c.root)
	for _, r := range waiting {
		r.finish(err)
	}
	c.endLife()
	sid := c.sid
	c.mu.Unlock()
	c.opt.Logger.Debug("session over", "session", fmt.Sprintf("%#x", sid), "err", err)
	c.tell(s)
}

// Open begins a session and returns at once: calls wait for a connection. Servers are given as
// "h1:2181,h2:2181/chroot", in any order; the Conn tries them in random order.
func Open(servers string, opt Options) (*Conn, error) {
	list, root, err := ParseServers(servers)
	if err != nil {
		return nil, err
	}
	if opt, err = opt.withDefaults(); err != nil {
		return nil, err
	}
	c := &Conn{
		opt: opt, root: chroot(root), servers: shuffled(list), auth: slices.Clone(opt.Auth),
		finished: make(chan struct{}), ready: make(chan struct{}),
		watches: watches{once: map[watchKey]*Watch{}}, trouble: map[string]error{},
		password: make([]byte, jute.PasswordSize),
	}
	if opt.Resume.ID != 0 {
		c.sid, c.password = opt.Resume.ID, opt.Resume.Password
	}
	c.life, c.endLife = context.WithCancel(context.Background())
	go c.run()
	return c, nil
}

// Dial does what Open does, and then waits until the session exists and the server has accepted the
// identities of the options.
func Dial(ctx context.Context, servers string, opt Options) (*Conn, error) {
	c, err := Open(servers, opt)
	if err != nil {
		return nil, err
	}
	err = c.Await(ctx)
	if err != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(ended)
		return nil, &dialError{servers, err}
	}
	return c, nil
}

func shuffled(list []string) []string {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
