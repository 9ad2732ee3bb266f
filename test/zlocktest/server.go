package zlocktest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/sim"
)

// patience bounds waits for the server. It is generous: reaching it is a failure, however busy
// the machine is.
const patience = 30 * time.Second

// memoryAddr is the address of a server on a network in memory.
const memoryAddr = "127.0.0.1:2181"

// Config describes a server. Start uses the zero Config.
type Config struct {
	// InMemory makes clients connect over a network in memory instead of sockets, as virtual time demands.
	// Only Connect and Dial can do so.
	InMemory bool
	// MinSessionTimeout and MaxSessionTimeout bound the timeouts that clients may ask for;
	// default 4 s and 40 s, as in production.
	MinSessionTimeout, MaxSessionTimeout time.Duration
	// SweepInterval is how often the server removes empty containers and overdue TTL nodes;
	// default 1 minute.
	SweepInterval time.Duration
	// Super is the digest "user:base64(sha1(user:password))" of a user with all rights; default
	// none.
	Super string
	// Logger receives the server's log; default none.
	Logger *slog.Logger
}

// Server is a running zlockd.
type Server struct {
	// Addr is the address for clients.
	Addr string

	t        failer
	config   Config
	stores   *disk.Stores // survives a restart
	network  *sim.Network // nil with sockets
	listener *listener
	instance *server.Instance

	mu      sync.Mutex
	clients []*zk.Conn
}

// failer is the part of testing.TB by which a Server reports failures.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// panicker reports failures without a test.
type panicker struct{}

func (panicker) Helper()                           {}
func (panicker) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (panicker) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Start runs a server until the test ends, and returns when it serves.
func Start(t testing.TB) *Server {
	t.Helper()
	return Config{}.Start(t)
}

// Start runs a server until the test ends, and returns when it serves.
func (c Config) Start(t testing.TB) *Server {
	t.Helper()
	s := c.server(t)
	t.Cleanup(s.Close)
	return s
}

// Open runs a server without a test: in an example, or in a program that is its own test.
// Close ends it. Later failures panic.
func Open() *Server { return Config{}.Open() }

// Open runs a server without a test, as the function Open does.
func (c Config) Open() *Server { return c.server(panicker{}) }

func (c Config) server(t failer) *Server {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s := &Server{t: t, config: c, stores: disk.NewMemoryStores(false), Addr: "127.0.0.1:0"}
	if c.InMemory {
		s.Addr, s.network = memoryAddr, sim.NewNetwork(rand.New(rand.NewPCG(1, 1)), 0)
	}
	s.start()
	return s
}

// start() runs the server at s.Addr.
func (s *Server) start() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	i, err := server.Start(ctx, server.Options{
		ClientAddr: s.Addr, Listen: s.listen,
		MinSessionTimeout: s.config.MinSessionTimeout, MaxSessionTimeout: s.config.MaxSessionTimeout,
		MaxConnsPerAddr: -1, SuperDigest: s.config.Super, SweepInterval: s.config.SweepInterval,
		Logger: s.config.Logger, Test: func(o *raftfsm.Options) { o.Stores = s.stores },
	})
	if err == nil {
		err = i.Ready(ctx)
	}
	if err != nil {
		s.t.Fatalf("zlocktest: start: %v", err)
	}
	s.instance = i
	s.Addr = i.ClientAddr()
}

func (s *Server) listen(addr string) (net.Listener, error) {
	listen := func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	if s.network != nil {
		listen = s.network.Listen
	}
	ln, err := listen(addr)
	if err != nil {
		return nil, err
	}
	s.listener = &listener{Listener: ln}
	return s.listener, nil
}

// Close closes the clients that Connect made, and stops the server. The end of the test calls Close.
func (s *Server) Close() {
	s.mu.Lock()
	clients := s.clients
	s.clients = nil
	s.mu.Unlock()
	for _, c := range clients {
		c.Close()
	}
	s.Stop()
}

// Stop ends the server like an orderly shutdown. It closes connections; clients and sessions
// go on after a Restart.
func (s *Server) Stop() {
	if s.instance == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.instance.Close(ctx); err != nil {
		s.t.Errorf("zlocktest: stop: %v", err)
	}
	s.instance = nil
}

// Restart stops the server unless it is stopped, and starts it again at the same address with
// all its state. Clients reconnect by themselves.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.start()
}

// Dial connects to the server. It is a zk.Dialer: if Connect does not fit, pass Dial to the client by
// zk.WithDialer.
func (s *Server) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	if s.network != nil {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return s.network.Dialer("127.0.0.1")(ctx, memoryAddr)
	}
	return net.DialTimeout(network, addr, timeout)
}

// Connect returns a client with its own session, whose timeout is 10 seconds. The end of the
// test closes it.
func (s *Server) Connect() *zk.Conn {
	s.t.Helper()
	return s.Link().Connect()
}

// KillSession ends a session, such as that of conn.SessionID(), as if its client had been
// silent for too long. The server removes its ephemeral nodes and closes its connection; when
// the client comes back it learns that the session has expired. KillSession returns when all
// of that is done.
func (s *Server) KillSession(id int64) {
	s.t.Helper()
	node := s.instance.Node()
	w := waiter(make(chan state.Outcome, 1))
	if err := node.Propose(state.Request{Session: id, Op: jute.OpCloseSession}, w); err != nil {
		s.t.Fatalf("zlocktest: kill session 0x%x: %v", id, err)
	}
	if o := <-w; o.Unknown {
		s.t.Fatalf("zlocktest: kill session 0x%x: the server is stopping", id)
	}
}

// waiter receives the outcome of one request.
type waiter chan state.Outcome

func (w waiter) Done(o *state.Outcome, _ *state.State) {
	w <- state.Outcome{Refused: o.Refused, Unknown: o.Unknown}
}

// Disconnect breaks every connection, as a failing network does. Sessions stay, and clients
// reconnect by themselves.
func (s *Server) Disconnect() { s.listener.disconnect() }

// Sessions returns the ids of the existing sessions, in order of creation.
func (s *Server) Sessions() []int64 {
	var ids []int64
	s.instance.Node().View(func(st *state.State) {
		st.Sessions().All(func(x session.Session) { ids = append(ids, x.ID) })
	})
	return ids
}

// listener knows the connections it accepted.
type listener struct {
	net.Listener

	mu    sync.Mutex
	conns []net.Conn
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, c)
		l.mu.Unlock()
	}
	return c, err
}

func (l *listener) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}
