package clients

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/clients/budget"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/clients/outbox"
	"github.com/zlockd/zlockd/server/clients/rest"
	"github.com/zlockd/zlockd/server/clients/watchers"
	"github.com/zlockd/zlockd/server/metrics"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/sasl"
)

// Replica is the interface to the replicated state; a raftfsm.Node implements it.
type Replica interface {
	// Propose proposes a request, whose body it copies, and tells the waiter its outcome. It blocks while too
	// many requests are under way. After an error there will be no outcome, and the connection is closed.
	Propose(state.Request, state.Waiter) error
	// View runs f under the read side of the state lock. f must not block.
	View(f func(*state.State))
	// WaitZxid waits until zxid has been applied here.
	WaitZxid(ctx context.Context, zxid int64) bool
	// Zxid is the last zxid applied here.
	Zxid() int64
	// PingOK reports whether the leader has heard this server recently enough to answer the ping of a session
	// with this timeout.
	PingOK(timeout time.Duration) bool
}

// Words answers four-letter words; an admin.Admin implements it.
type Words interface {
	// Answer answers the word with which a connection began. It may read the word's arguments from conn,
	// which the caller closes.
	Answer(conn io.ReadWriter, first [4]byte) error
}

// Server serves clients from a Replica. It learns of changes as the replica's raftfsm.Observer.
type Server struct {
	o     options.Options
	words Words // set before Serve

	start   time.Time // the moment at which the clock now was zero
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup          // every goroutine
	replica atomic.Pointer[Replica] // the state that clients read; nil: no state yet
	used    atomic.Bool             // Use has set replica
	serving atomic.Bool             // whether the replica says that clients may be served
	// readOnly is the argument of the replica's last call of ReadOnly; never true together with serving.
	readOnly atomic.Bool

	metrics metrics.Set
	counts  counts
	log     ends.Log
	// connecting holds a token for each connect request that waits for its outcome.
	connecting chan struct{}
	creating   atomic.Int64 // how many of these create sessions that are not in the state yet
	adminURL   string       // shown to clients that speak HTTP here; set before Serve

	mu        sync.Mutex // held only for operations on the maps below
	listeners map[net.Listener]bool
	conns     map[*conn]struct{}
	added     uint64 // connections so far
	perAddr   map[string]*address
	sessions  map[int64]*conn // the newest connection of each session here
	closed    bool
	// The values of the options; Change replaces them.
	maxConns   int
	mechanisms atomic.Pointer[sasl.Mechanisms]

	changed chan struct{} // closed and replaced when the result of serves may have changed

	watches  watchers.Table
	shares   budget.Shares
	memory   budget.Memory
	heard    heardList
	resting  rest.Rest
	outboxes outbox.Shared

	Observed observe.Clients // statistics for operators

	// batch is when the first reply of the present batch was appended, or 0 if there is none yet. It belongs
	// to the goroutine that applies the log.
	batch time.Duration
}

// New returns a Server that serves no client yet. It can already observe a replica, which the caller then
// passes to Use.
func New(o options.Options) (*Server, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		o:         o,
		shares:    budget.Shares{Bytes: o.MaxWatchBytesPerConn},
		start:     time.Now(),
		listeners: make(map[net.Listener]bool),
		conns:     make(map[*conn]struct{}),
		perAddr:   make(map[string]*address),
		sessions:  make(map[int64]*conn),
		changed:   make(chan struct{}),
	}
	s.Change(o)
	s.Observed.Init(&s.metrics, s.start, o.Now, o.Follow)
	s.log.Init(o.Logger, s.now)
	s.connecting = make(chan struct{}, maxConnecting)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.watches.Init(watchers.Bounds{PerConn: o.MaxWatchesPerConn, All: o.MaxWatches,
		BytesPerConn: o.MaxWatchBytesPerConn, Bytes: o.MaxWatchBytes}, &s.shares, &s.outboxes, s.watchersFrom)
	s.memory.Limit, s.memory.Shares, s.memory.Now, s.memory.Done = o.MaxBuffers, &s.shares, s.now, s.ctx.Done()
	s.memory.Waits = func() { s.metrics.Throttled.Add(1) }
	s.outboxes.Memory, s.outboxes.Metrics, s.outboxes.Now, s.outboxes.Go = &s.memory, &s.metrics, s.now, s.wg.Go
	s.outboxes.MaxBytes, s.outboxes.MaxFrames = o.MaxOutboxBytes, o.MaxOutboxFrames
	s.outboxes.Start(&s.wg)
	s.resting.Start(s.wg.Go)
	return s, nil
}

// Options returns the options given to New, with every default filled in.
func (s *Server) Options() options.Options { return s.o }

// Change applies MaxConns, MaxConnsPerAddr and SASL of o, and reports whether the SASL users have changed.
// Existing connections, and identities that clients have proved, stay.
func (s *Server) Change(o options.Options) (users bool) {
	o.BoundConns()
	s.mu.Lock()
	s.maxConns = o.MaxConns
	s.shares.SetConns(o.MaxConnsPerAddr)
	for _, from := range s.perAddr {
		from.Account.Forgive() // costs from a time without a bound are not a debt
	}
	s.mu.Unlock()
	old := s.mechanisms.Swap(o.SASL)
	return old != nil && o.SASL != nil && !maps.Equal(old.Users, o.SASL.Users)
}

// MaxConnsPerAddr returns the bound on connections from one address; negative: no bound.
func (s *Server) MaxConnsPerAddr() int { return s.shares.Conns() }

// Answer sets the answerer of four-letter words, and the URL that the server shows to clients that speak HTTP
// to the client port. Call it before Serve.
func (s *Server) Answer(w Words, adminURL string) { s.words, s.adminURL = w, adminURL }

// Use sets the state that the server serves. Call it once. Until then the server closes connections, as it
// does while the replica does not serve.
func (s *Server) Use(r Replica) {
	s.replica.Store(&r)
	s.used.Store(true)
	s.news()
}

// serves reports whether the server serves clients.
func (s *Server) serves() bool { return s.serving.Load() && s.used.Load() }

// UseMeanwhile sets the state that read-only sessions may read before Use is called. The server calls only
// its View and Zxid.
func (s *Server) UseMeanwhile(r Replica) { s.replica.Store(&r) }

// news wakes WaitServing, because the result of serves may have changed.
func (s *Server) news() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// WaitServing waits until the server serves clients.
func (s *Server) WaitServing(ctx context.Context) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if s.serves() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return net.ErrClosed
		}
	}
}

// now returns the time since the server started. Only differences of such times have a meaning.
func (s *Server) now() time.Duration { return time.Since(s.start) }

// address holds the counts that the connections from one address share.
type address struct {
	watchers.Address
	ids      *[]jute.ID   // the identities of clients without a proved identity
	creating atomic.Int64 // see Server.creating
	conns    map[*conn]struct{}
}

// add registers a connection, unless there are too many.
func (s *Server) add(c *conn) bool {
	problem := s.tryAdd(c)
	if problem != "" { // log without the lock, because the log may be slow
		s.refused(c, "connection refused", problem)
	}
	return problem == ""
}

// refused logs and counts a client that a limit has refused.
func (s *Server) refused(c *conn, what, problem string) {
	s.metrics.ConnectionRejected.Add(1)
	s.Observed.Refuse(c.from.Host, problem)
	s.log.Of(c.from.Host, slog.LevelWarn, what, "reason", problem)
}

func (s *Server) tryAdd(c *conn) (problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.perAddr[c.from.Host]
	switch {
	case s.closed:
		return "server stopping"
	case s.maxConns > 0 && len(s.conns) >= s.maxConns:
		return "too many connections"
	case s.shares.Bound() && from != nil && len(from.conns) >= s.MaxConnsPerAddr():
		return "too many connections from this address"
	}
	s.added++
	c.number = s.added
	s.conns[c] = struct{}{}
	if from == nil {
		from = c.from
		from.ids, from.conns = identity.Unproved(from.Host, s.o.SkipACL), make(map[*conn]struct{})
		s.perAddr[c.from.Host] = from
	}
	from.conns[c] = struct{}{}
	c.from = from
	c.watcher.From = &from.Address
	c.proof.ids.Store(from.ids)
	s.wg.Add(1)
	return ""
}

// remove drops a connection that has ended.
func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.removed = true
	delete(s.conns, c)
	from := s.perAddr[c.from.Host]
	if delete(from.conns, c); len(from.conns) == 0 {
		s.forget(from)
	}
	if s.sessions[c.session] == c {
		delete(s.sessions, c.session)
	}
}

// forget drops an address without connections, if it has no debt. s.mu is locked.
func (s *Server) forget(from *address) {
	if owed := s.shares.Settle(&from.Account, s.now()); owed > 0 && s.ctx.Err() == nil {
		time.AfterFunc(time.Second, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.perAddr[from.Host] == from && len(from.conns) == 0 {
				s.forget(from)
			}
		})
		return
	}
	delete(s.perAddr, from.Host)
}

// claim makes c the connection of a session and returns the one that it replaces. ok is false if c has
// already ended.
func (s *Server) claim(c *conn, id int64) (older *conn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.removed {
		return nil, false
	}
	older = s.sessions[id]
	s.sessions[id] = c
	c.session = id
	s.Observed.SessionCame(id)
	return older, true
}

// connOf returns the connection of a session at this server, or nil if there is none.
func (s *Server) connOf(session int64) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[session]
}

// all returns all present connections, the oldest first.
func (s *Server) all() []*conn {
	s.mu.Lock()
	list := slices.AppendSeq(make([]*conn, 0, len(s.conns)), maps.Keys(s.conns))
	s.mu.Unlock()
	return byAge(list)
}

// watchersFrom returns the connections from one address.
func (s *Server) watchersFrom(host string) (list []*watchers.Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from := s.perAddr[host]; from != nil {
		for c := range from.conns {
			list = append(list, &c.watcher)
		}
	}
	return list
}

// byAge sorts connections by age instead of Go's random order of maps, so that a simulated run can be
// repeated.
func byAge(list []*conn) []*conn {
	slices.SortFunc(list, func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
	return list
}

// maxConnecting bounds how many connect requests are in the stream at a time. After a server's death tens of
// thousands arrive at once, and other requests must not wait for all of them.
const maxConnecting = 256
