// Package applied has the state of a server to which a test gives the entries of a log.
package applied

import (
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// State is the FSM of server 1 in cluster "c".
type State struct {
	*apply.FSM
	Ear    *Ear
	Fatals []error // the errors that ended the server
	Disk   error   // why an entry cannot become durable
	Last   uint64  // index of the newest entry that Entry or Block applied
}

// New returns a State without entries.
func New() *State { return With(apply.Options{ID: 1, Cluster: "c"}) }

// With returns a state with options o. The state's Ear is the observer unless o has another observer.
func With(o apply.Options) *State {
	a := &State{Ear: new(Ear)}
	if o.Observer == nil {
		o.Observer = a.Ear
	}
	o.Log = slog.New(slog.DiscardHandler)
	o.Fatal = func(err error) { a.Fatals = append(a.Fatals, err) }
	o.Durable = func(uint64) error { return a.Disk }
	a.FSM = apply.New(o)
	return a
}

// Entry applies one entry with a request.
func (a *State) Entry(r state.Request) { a.Block(entries.Block{Count: 1, Requests: r.Append(nil)}) }

// Block applies one entry with a block of requests.
func (a *State) Block(bl entries.Block) {
	a.Last++
	a.Apply(Logged(a.Last, bl))
}

// State returns the state, for a test in which no other goroutine uses the state.
func (a *State) State() (s *state.State) {
	a.View(func(is *state.State) { s = is })
	return s
}

// Sessions lists the sessions of the state.
func (a *State) Sessions() (list []session.Session) {
	a.View(func(s *state.State) { s.Sessions().All(func(one session.Session) { list = append(list, one) }) })
	return list
}

// At applies an entry without requests at a position in the log.
func At(f *apply.FSM, index, term uint64) {
	l := Logged(index, entries.Block{})
	l.Term = term
	f.Apply(l)
}

// Logged returns a log entry with one block. It returns nil if the block has no requests.
func Logged(index uint64, bl entries.Block) *raft.Log {
	entry := entries.Begin(nil, 0)
	if bl.Count > 0 {
		entry = bl.Append(entry)
	}
	entries.Seal(entry, 1)
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: entry}
}

// NewSession is the request of a client for a session.
func NewSession() state.Request {
	body := state.SessionBody{Timeout: 10_000, Owner: 1, Addr: "10.0.0.1"}
	return state.Request{Op: state.OpCreateSession, Body: body.Append(nil)}
}

// OpenStream opens the first stream of server 1.
func OpenStream() state.Request {
	m := state.Member{ID: 1, Incarnation: "a"}
	return state.Request{Op: state.OpOpenStream, Body: jute.AppendLong(m.Append(nil), 1)}
}

// Create is the body of a request that creates a node.
func Create(path string, flags int32) []byte {
	b := jute.AppendString(nil, path)
	b = jute.AppendBuffer(b, []byte("data"))
	b = jute.AppendACL(b, jute.WorldAnyone)
	return jute.AppendInt(b, flags)
}

// CreateTTL is the body of a request that creates a node with a time to live.
func CreateTTL(path string, ttl time.Duration) []byte {
	return jute.AppendLong(Create(path, jute.FlagPersistentTTL), ttl.Milliseconds())
}

// Ear is an observer that counts resets.
type Ear struct {
	mu     sync.Mutex
	resets int
}

// Events implements apply.Observer.
func (*Ear) Events(int64, []tree.Event) {}

// SessionEnded implements apply.Observer.
func (*Ear) SessionEnded(*state.Ending) {}

// SessionMoved implements apply.Observer.
func (*Ear) SessionMoved(int64, uint32) {}

// Applied implements apply.Observer.
func (*Ear) Applied() {}

// Reset implements apply.Observer.
func (e *Ear) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resets++
}

// Resets returns how often Reset was called. A server calls it when it cuts off all its clients.
func (e *Ear) Resets() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.resets
}
