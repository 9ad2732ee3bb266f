package apply

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/stream"
	"github.com/zlockd/zlockd/tree"
)

// Observer receives every change. Its methods, except Applied, are called with the state lock held: they must
// not block, do I/O or call back.
type Observer interface {
	// Events reports the changes made by one zxid, in order, before the
	// outcome of the request that made them is delivered.
	Events(zxid int64, events []tree.Event)
	// SessionEnded reports that a session and its ephemerals are gone.
	SessionEnded(*state.Ending)
	// SessionMoved reports a new attach generation: connections of the session
	// with an older one must be closed.
	SessionMoved(id int64, gen uint32)
	// Reset reports that the state was replaced as a whole: every client
	// connection must be closed and every watch forgotten.
	Reset()
	// Applied is called at the end of a batch, after the lock is released. It may flush the outboxes.
	Applied()
}

// Options are what New needs. Functions that are nil do nothing.
type Options struct {
	ID       uint32
	Cluster  string // the cluster to which the state belongs
	Observer Observer
	Measures signal.Set
	Log      *slog.Logger
	Ctx      context.Context  // ends a snapshot that is being written; nil: a snapshot is never interrupted
	Now      func() time.Time // this server's clock; nil: time.Now
	Fatal    func(error)      // ends the server because its state cannot be trusted any longer
	// Durable waits until an entry is on this server's disk. The leader writes an entry while its followers
	// write it, so raft may pass an entry to Apply that this server could still lose. No client may hear of
	// such an entry.
	Durable func(index uint64) error
	Logged  uint64 // index of the newest entry found on the disk

	Reopen func() // called when this server's stream must be opened again; must not block
	Opened func() // called when any server's stream is opened; must not block
}

// FSM holds the state and its lock, and implements raft.FSM. Raft calls Apply, Snapshot and Restore from one
// goroutine.
type FSM struct {
	o Options

	// Stream holds this server's requests until they are applied.
	Stream *stream.Stream

	replaced bool // the entry being applied has replaced the state by a backup

	mu    sync.RWMutex // the state lock; only Apply and Restore write under it
	state *state.State

	// `walking` holds a token while a snapshot or a backup is open, because only one can be open at a time.
	// Raft never waits for the token.
	walking chan struct{}

	// index and term are those of the newest log entry that this server has applied. Raft's AppliedIndex also
	// counts entries that raft has passed on and that are not applied yet.
	index  atomic.Uint64
	term   atomic.Uint64
	zxid   atomic.Int64
	dead   atomic.Bool
	config atomic.Bool // the state contains the list of members
	low    atomic.Bool // a disk had little free space when the leader sealed the newest entry
	// true if the leader refused requests that need more room when it sealed the newest entry
	full    atomic.Bool
	ahead   atomic.Int64                           // in ms; see Ahead
	counted struct{ requests, bytes atomic.Int64 } // what the log has gained since the last snapshot
	// deadlines of the term in which this server leads; otherwise nil
	leads atomic.Pointer[Deadlines]

	passedOn atomic.Bool // see PassedOn

	received atomic.Pointer[received] // set by Verify for Restore; otherwise nil

	waitMu   sync.Mutex
	advanced chan struct{} // closed and replaced after each entry, if `waiting` is not 0
	waiting  atomic.Int32

	replay   replay
	snapshot atomic.Pointer[status.Snapshot] // the newest snapshot; nil: there is none
}

// New returns the state of a server that has applied nothing yet.
func New(o Options) *FSM {
	if o.Ctx == nil {
		o.Ctx = context.Background()
	}
	if o.Durable == nil {
		o.Durable = func(uint64) error { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Reopen == nil {
		o.Reopen = func() {}
	}
	if o.Opened == nil {
		o.Opened = func() {}
	}
	return &FSM{o: o, Stream: stream.New(), state: state.New(o.Cluster), advanced: make(chan struct{}),
		walking: make(chan struct{}, 1), replay: replay{to: o.Logged, began: time.Now()}}
}

// replay is the part of the log that was found on the disk at the start. Before raft runs, the start sets it;
// later only the goroutine that applies the log changes it.
type replay struct {
	from, to uint64 // indexes of the snapshot and the newest entry found; `to` is 0 once that entry is applied
	began    time.Time
}

// The type received is the state in a snapshot that another server sent.
type received struct {
	state *state.State
	at    state.Position
}
