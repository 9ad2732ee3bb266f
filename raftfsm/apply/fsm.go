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

// Observer is told of every change, with the state lock held; none of its methods but Applied may block, do
// I/O or call back.
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
	// Applied is called after the lock was released at the end of a batch:
	// the time to flush outboxes.
	Applied()
}

// Options are what New needs. Functions that are nil do nothing.
type Options struct {
	ID       uint32
	Cluster  string // to which the state belongs
	Observer Observer
	Measures signal.Set
	Log      *slog.Logger
	Ctx      context.Context  // ends a snapshot that is being written; nil: nothing does
	Now      func() time.Time // this server's clock; nil: time.Now
	Fatal    func(error)      // ends the server, whose state cannot be trusted any more
	// Durable waits until an entry is on this server's disk. The leader's own write goes on beside
	// those of the followers, so raft may hand over an entry that this server could still forget; no
	// client may hear of it before.
	Durable func(index uint64) error
	Logged  uint64 // index of the newest entry found on the disk

	Reopen func() // called when our own stream needs another birth; must not block
	Opened func() // called when any server's stream is opened; must not block
}

// FSM is the state behind its lock, as raft feeds it. Raft calls Apply,
// Snapshot and Restore from one goroutine.
type FSM struct {
	o Options

	// Stream holds the requests of this server until they are applied.
	Stream *stream.Stream

	replaced bool // by the entry being applied: the state, by a backup

	mu    sync.RWMutex // the state lock: written only by Apply and Restore
	state *state.State

	// walking holds a token while a snapshot or a backup is open: there can be
	// only one at a time. Raft never waits for it.
	walking chan struct{}

	// The newest log entry that this server has applied. Raft's AppliedIndex also counts entries that raft
	// has handed over and that are not applied yet.
	index   atomic.Uint64
	term    atomic.Uint64
	zxid    atomic.Int64
	dead    atomic.Bool
	config  atomic.Bool                            // the members have been published in the state
	low     atomic.Bool                            // a disk was low when the leader sealed the newest entry
	full    atomic.Bool                            // requests that need more room were refused then
	ahead   atomic.Int64                           // see Ahead, in ms
	counted struct{ requests, bytes atomic.Int64 } // of the log since the last snapshot
	leads   atomic.Pointer[Deadlines]              // of the term this server leads; else nil

	passedOn atomic.Bool // see PassedOn

	received atomic.Pointer[received] // by Verify, for Restore; else nil

	waitMu   sync.Mutex
	advanced chan struct{} // closed and replaced after each entry while waiting is not 0
	waiting  atomic.Int32

	replay   replay
	snapshot atomic.Pointer[status.Snapshot] // the newest; nil: none
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

// replay is the part of the log that was found on the disk at the start. It is written before raft
// runs, then by the goroutine that applies the log.
type replay struct {
	from, to uint64 // from the snapshot to the newest entry; to is 0 once that entry is applied
	began    time.Time
}

// received is the state in a snapshot that another server sent.
type received struct {
	state *state.State
	at    state.Position
}
