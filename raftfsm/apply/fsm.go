package apply

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/raftfsm/stream"
	"github.com/zlockd/zlockd/session"
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

// Apply implements raft.FSM.
func (f *FSM) Apply(l *raft.Log) any {
	if f.dead.Load() || l.Type != raft.LogCommand {
		return nil
	}
	onDisk := trace.StartRegion(context.Background(), "wait until the entry is on the disk")
	if err := f.o.Durable(l.Index); err != nil {
		f.dead.Store(true) // the disk has reported why, or the server is closing
		return nil
	}
	onDisk.End()
	began, before := time.Now(), f.counted.requests.Load()
	f.mu.Lock()
	applying := trace.StartRegion(context.Background(), "apply")
	if trace.IsEnabled() {
		signal.Step("entry", "entry %d is applied", l.Index)
	}
	err := f.state.Apply(l.Data, (*sink)(f))
	applying.End()
	f.zxid.Store(f.state.Zxid())
	f.config.Store(f.state.Configured())
	if err == nil {
		f.at(l.Index, l.Term)
	}
	f.mu.Unlock()
	if err != nil {
		f.stop(fmt.Errorf("apply log entry %d: %w", l.Index, err))
		return nil
	}
	f.low.Store(state.Low(l.Data))
	f.full.Store(state.IsFull(l.Data))
	f.ahead.Store(state.EntryTime(l.Data) - f.o.Now().UnixMilli())
	if f.replaced {
		f.replaced = false
		f.o.Log.Warn("the state was replaced by a backup; all clients were cut off", "zxid",
			fmt.Sprintf("0x%x", f.zxid.Load()))
	}
	f.advance()
	f.counted.bytes.Add(int64(len(l.Data)))
	f.o.Observer.Applied()
	f.measureApplied(l, began, f.counted.requests.Load()-before)
	return nil
}

// stop ends the server: its state cannot be trusted any more.
func (f *FSM) stop(err error) {
	if !f.dead.Swap(true) {
		f.o.Fatal(err)
	}
}

// sink is the FSM as Apply sees it: events and outcomes go on to the
// observer and to the waiters of our own stream.
type sink FSM

func (f *sink) Events(zxid int64, events []tree.Event) {
	if len(events) == 2 && events[0].Type == jute.EventDeleted && f.leads.Load() != nil {
		dir, _ := f.state.Tree().Get(events[1].Path)
		f.passedOn.Store(f.passedOn.Load() || dir.NumChildren > 0)
	}
	f.o.Observer.Events(zxid, events)
}

func (f *sink) Ended(e *state.Ending) {
	f.passedOn.Store(false) // the client does not queue again
	if t := f.leads.Load(); t != nil {
		t.Remove(e.Session.ID)
	}
	f.o.Observer.SessionEnded(e)
}

func (f *sink) Attached(s *session.Session, created bool) {
	if t := f.leads.Load(); t != nil {
		t.Touch(s.ID, s.Timeout)
	}
	if !created {
		f.o.Observer.SessionMoved(s.ID, s.Gen)
	}
}

func (f *sink) Opened(id uint32, nonce int64, birth uint32) {
	if id == f.o.ID && f.Stream.Told(nonce, birth) {
		f.o.Reopen()
	}
	f.o.Opened()
}

func (f *sink) Replaced() {
	if t := f.leads.Load(); t != nil {
		t.replace(f.state.Sessions())
	}
	f.o.Observer.Reset()
	f.replaced = true
}

func (f *sink) Outcome(origin, birth uint32, seq uint64, o *state.Outcome) {
	f.counted.requests.Add(1)
	if origin != f.o.ID || birth == 0 {
		return
	}
	if w := f.Stream.Applied(birth, seq); w != nil {
		// The events are out by now: a client that saw the zxid before them would miss them. The outcome
		// comes after, so that no later reply has a lower zxid.
		f.zxid.Store(f.state.Zxid())
		w.Done(o, f.state)
	}
}
