package tickets

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// Node is this server's part in the cluster, with the calls that tickets need. raftfsm.Node implements it.
type Node interface {
	Propose(state.Request, state.Waiter) error
	View(f func(*state.State))
	// AllowTickets allows tickets in the cluster, if they are not allowed yet.
	AllowTickets(context.Context) error
	// Touch records that a ticket was heard from. It does so only if this server leads, and otherwise returns
	// false.
	Touch(id int64) bool
	// Acknowledged waits for the leader's acknowledgements of touches. For each, it calls enough() with the time
	// at which this server had sent them, until enough() returns true.
	Acknowledged(ctx context.Context, enough func(sent time.Time) bool) error
	// Current waits until this server has applied every change that was acknowledged before the call, by any
	// server.
	Current(context.Context) error
}

// Options configure a Server.
type Options struct {
	ID      uint32 // the server's id
	SkipACL bool
	Max     time.Duration // the longest time for which a caller may ask
	Tokens  *Tokens       // nil: certificates identify callers; without TLS, nothing does
	TLS     bool          // the port has TLS
	Now     func() time.Time
	// Audit, unless nil, is called for each draw, for each ticket that is opened or given back, and for each
	// unknown token. `result` is one of the audit log's results.
	Audit func(operation string, ids []jute.ID, ip, path, result string)
	// KnownHost reports whether a request may name this server by `host`.
	KnownHost func(host string) bool
}

// Server serves tickets from a node. The node tells it of changes; see Events, Ended and Reset.
type Server struct {
	o    Options
	node atomic.Pointer[Node]

	tokens atomic.Pointer[Tokens]
	armed  atomic.Int64 // how many paths are in `watched`; Events reads it without a lock

	requests, refused  atomic.Int64
	draws, drawRefused atomic.Int64

	mu        sync.Mutex    // guards the fields below, and is held only briefly
	off       chan struct{} // closed while the server does not serve
	closed    bool
	watched   map[string][]*wait
	waits     map[*wait]struct{}
	waitsOf   map[string]int
	renewals  map[*renewal]struct{}
	confirmed map[int64]time.Time // by ticket: a time at which the leader had surely heard of the ticket
	opened    paces               // limits how fast each identity may open tickets and rates
	asked     paces               // limits how fast an identity, or an address without one, may send requests
	working   map[string]int      // how many requests are being answered, by identity
	lines     map[rate]*line
}

// The type wait is a request that waits for a change.
type wait struct {
	id       int64
	identity string
	wake     chan struct{}
	paths    []string
	touched  time.Time
	every    time.Duration // time between two touches; 0: this wait does not keep the ticket alive
}

// New returns a server. It serves no request before Use is called.
func New(o Options) *Server {
	s := &Server{o: o, off: make(chan struct{}), watched: map[string][]*wait{}, waits: map[*wait]struct{}{},
		waitsOf: map[string]int{}, renewals: map[*renewal]struct{}{}, confirmed: map[int64]time.Time{},
		opened: paces{}, asked: paces{}, working: map[string]int{}, lines: map[rate]*line{}}
	close(s.off)
	s.tokens.Store(o.Tokens)
	return s
}

// Use gives the server the node whose state it serves.
func (s *Server) Use(n Node) { s.node.Store(&n) }

// Waits returns how many requests wait.
func (s *Server) Waits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits)
}

// Requests returns how many requests came, and how many of them the server refused because of a bound or a
// missing right.
func (s *Server) Requests() (all, refused int64) { return s.requests.Load(), s.refused.Load() }

// Draws returns how many draws this server granted, and how many requests for draws it refused.
func (s *Server) Draws() (granted, refused int64) { return s.draws.Load(), s.drawRefused.Load() }

// Serving notes whether the node serves. When it does not, all waits end.
func (s *Server) Serving(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.off:
		if on && !s.closed {
			s.off = make(chan struct{})
		}
	default:
		if !on {
			close(s.off)
		}
	}
}

// Close ends all waits and refuses further ones.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Serving(false)
}

// Events wakes the requests that wait for a change of these nodes.
func (s *Server) Events(events []tree.Event) {
	if s.armed.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range events {
		for _, w := range s.watched[events[i].Path] {
			w.wakeUp()
		}
	}
}

// Ended forgets a ticket.
func (s *Server) Ended(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.confirmed, id)
}

// Reset wakes all waits, because the whole state was replaced. Tickets may have ended without a call of
// Ended.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.confirmed)
	for w := range s.waits {
		w.wakeUp()
	}
}

func (w *wait) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// arm() makes a wait wake at changes of these paths only. The caller holds the state lock.
func (s *Server) arm(w *wait, paths ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range w.paths {
		left := slices.DeleteFunc(s.watched[p], func(o *wait) bool { return o == w })
		if s.watched[p] = left; len(left) == 0 {
			delete(s.watched, p)
		}
	}
	w.paths = w.paths[:0]
	for _, p := range paths {
		if p != "" {
			w.paths = append(w.paths, p)
			s.watched[p] = append(s.watched[p], w)
		}
	}
	s.armed.Store(int64(len(s.watched)))
}

// The type done is a channel that receives an outcome.
type done chan state.Outcome

func (d done) Done(o *state.Outcome, _ *state.State) {
	kept := *o
	kept.Reply = slices.Clone(o.Reply) // the reply is valid only during this call
	d <- kept
}

// errAgain is the error of a request whose outcome is not known.
var errAgain = errors.New("no leader has confirmed this request in time, so the ticket may or may not have " +
	"changed: repeat the request, at any server")

// do() proposes a request and waits for its outcome.
func (s *Server) do(ctx context.Context, r state.Request) (state.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, doTime)
	defer cancel()
	n := *s.node.Load()
	d, failed := make(done, 1), make(chan struct{})
	go func() { // Propose may block while too many requests are under way
		if n.Propose(r, d) != nil {
			close(failed)
		}
	}()
	select {
	case out := <-d:
		if !out.Unknown {
			return out, nil
		}
	case <-failed:
	case <-ctx.Done():
	}
	return state.Outcome{}, errAgain
}

func (s *Server) view(q *Request) (g sight) {
	(*s.node.Load()).View(func(st *state.State) { g = look(st, q.Secret, s.o.Now().UnixMilli(), q.IDs) })
	q.seen += g.seen
	return g
}

// sure() is like view(), but it finds every ticket that any server has answered for: if view() finds none,
// sure() first waits until this server has applied all changes, and then looks again.
func (s *Server) sure(ctx context.Context, q *Request) (sight, error) {
	g := s.view(q)
	if g.lives() || g.over.Why != 0 {
		return g, nil
	}
	ctx, cancel := context.WithTimeout(ctx, doTime)
	defer cancel()
	if err := (*s.node.Load()).Current(ctx); err != nil {
		return g, errAgain
	}
	return s.view(q), nil
}

// Results in the audit log.
const (
	resultDone   = "success"
	resultFailed = "failure"
	resultUnsure = "invoked" // the server does not know whether the request was carried out
)

func (s *Server) audit(operation string, q *Request, result string) {
	if s.o.Audit != nil {
		s.o.Audit(operation, q.IDs, q.Addr, q.Path, result)
	}
}

// end() ends a ticket.
func (s *Server) end(ctx context.Context, q *Request, id int64, why session.TicketEnd) error {
	out, err := s.do(ctx, state.EndTicket(id, why))
	result := resultDone
	switch {
	case err != nil:
		result = resultUnsure
	case out.Refused:
		result = resultFailed
	}
	if why == session.TicketGiven {
		s.audit("endTicket", q, result)
	}
	return err
}
