package raftfsm

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

// fsm puts the state behind a lock and feeds it from raft. Raft calls Apply,
// Snapshot and Restore from one goroutine.
type fsm struct {
	id     uint32
	ctx    context.Context // ends a snapshot that is being written
	stream *stream.Stream
	fatal  func(error) // ends the server; see Options.Fatal
	// durable waits until an entry is on this server's disk. The leader's own write goes on beside
	// those of the followers, so raft may hand over an entry that this server could still forget; no
	// client may hear of it before.
	durable func(index uint64) error

	cluster string      // to which the state belongs
	damaged func(error) // is told of a snapshot found damaged on our disk

	onReplaced func(zxid int64) // the state was restored from a backup
	replaced   bool             // by the entry being applied

	mu    sync.RWMutex // the state lock: written only by Apply and Restore
	state *state.State
	obs   Observer

	// walking holds a token while a snapshot or a backup is open: there can be
	// only one at a time. Raft never waits for it.
	walking chan struct{}

	// How far this server itself has applied the log. Raft's AppliedIndex counts entries that raft has handed
	// over, which may not be applied yet.
	index   atomic.Uint64
	term    atomic.Uint64
	zxid    atomic.Int64
	dead    atomic.Bool
	config  atomic.Bool                            // the members have been published in the state
	low     atomic.Bool                            // a disk was low when the leader sealed the newest entry
	full    atomic.Bool                            // requests that need more room were refused then
	counted struct{ requests, bytes atomic.Int64 } // of the log since the last snapshot
	tracker atomic.Pointer[tracker]                // of the term this server leads; else nil

	passedOn atomic.Bool // a node with siblings was deleted while this server led, perhaps a lock passed on

	received atomic.Pointer[received] // by verify, for Restore; else nil

	waitMu   sync.Mutex
	advanced chan struct{} // closed and replaced after each entry while waiting is not 0
	waiting  atomic.Int32

	reopen   func() // called when our own stream needs another birth; must not block
	onMember func() // called when any server's stream is opened

	measures Measures
	replay   replay
	snapshot atomic.Pointer[status.Snapshot] // the newest; nil: none
}

func newFSM(id uint32, clusterID string, obs Observer, fatal func(error)) *fsm {
	return &fsm{id: id, obs: obs, ctx: context.Background(), stream: stream.New(), fatal: fatal,
		durable: func(uint64) error { return nil }, damaged: func(error) {}, onReplaced: func(int64) {},
		reopen: func() {}, onMember: func() {},
		cluster: clusterID, state: state.New(clusterID), advanced: make(chan struct{}),
		walking: make(chan struct{}, 1)}
}

// Apply implements raft.FSM.
func (f *fsm) Apply(l *raft.Log) any {
	if f.dead.Load() || l.Type != raft.LogCommand {
		return nil
	}
	onDisk := trace.StartRegion(context.Background(), "wait until the entry is on the disk")
	if err := f.durable(l.Index); err != nil {
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
	err := f.state.Apply(l.Data, (*fsmSink)(f))
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
	if f.replaced {
		f.replaced = false
		f.onReplaced(f.zxid.Load())
	}
	f.advance()
	f.counted.bytes.Add(int64(len(l.Data)))
	f.obs.Applied()
	f.measureApplied(l, began, f.counted.requests.Load()-before)
	return nil
}

// stop ends the server: its state cannot be trusted any more.
func (f *fsm) stop(err error) {
	if !f.dead.Swap(true) {
		f.fatal(err)
	}
}

// at records the index and term of the last applied entry. The caller holds the state lock, so that readers
// under the lock see a matching pair.
func (f *fsm) at(index, term uint64) {
	f.term.Store(term)
	f.index.Store(index)
}

// advance wakes the goroutines that wait for an entry to be applied.
func (f *fsm) advance() {
	if f.waiting.Load() == 0 {
		return
	}
	f.waitMu.Lock()
	close(f.advanced)
	f.advanced = make(chan struct{})
	f.waitMu.Unlock()
}

// wait blocks until done reports true, looking again after every entry, or
// until stop is closed.
func (f *fsm) wait(stop <-chan struct{}, done func() bool) bool {
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	for {
		f.waitMu.Lock()
		advanced := f.advanced
		f.waitMu.Unlock()
		if done() {
			return true
		}
		select {
		case <-advanced:
		case <-stop:
			return false
		}
	}
}

// fsmSink is the fsm as Apply sees it: events and outcomes go on to the
// observer and to the waiters of our own stream.
type fsmSink fsm

func (f *fsmSink) Events(zxid int64, events []tree.Event) {
	if len(events) == 2 && events[0].Type == jute.EventDeleted && f.tracker.Load() != nil {
		dir, _ := f.state.Tree().Get(events[1].Path)
		f.passedOn.Store(f.passedOn.Load() || dir.NumChildren > 0)
	}
	f.obs.Events(zxid, events)
}

func (f *fsmSink) Ended(e *state.Ending) {
	f.passedOn.Store(false) // the client does not queue again
	if t := f.tracker.Load(); t != nil {
		t.remove(e.Session.ID)
	}
	f.obs.SessionEnded(e)
}

func (f *fsmSink) Attached(s *session.Session, created bool) {
	if t := f.tracker.Load(); t != nil {
		t.touch(s.ID, s.Timeout)
	}
	if !created {
		f.obs.SessionMoved(s.ID, s.Gen)
	}
}

func (f *fsmSink) Opened(id uint32, nonce int64, birth uint32) {
	if id == f.id && f.stream.Told(nonce, birth) {
		f.reopen()
	}
	f.onMember()
}

func (f *fsmSink) Replaced() {
	if t := f.tracker.Load(); t != nil {
		t.replace(f.state.Sessions())
	}
	f.obs.Reset()
	f.replaced = true
}

func (f *fsmSink) Outcome(origin, birth uint32, seq uint64, o *state.Outcome) {
	f.counted.requests.Add(1)
	if origin != f.id || birth == 0 {
		return
	}
	if w := f.stream.Applied(birth, seq); w != nil {
		// The events are out by now: a client that saw the zxid before them would miss them. The outcome
		// comes after, so that no later reply has a lower zxid.
		f.zxid.Store(f.state.Zxid())
		w.Done(o, f.state)
	}
}

// received is the state in a snapshot that another server sent.
type received struct {
	state *state.State
	at    state.Position
}

// verify reads a snapshot that another server sends, and keeps its state for Restore. The snapshot
// is published, and becomes this server's, only if it can be read.
func (f *fsm) verify(r io.Reader) error {
	f.received.Store(nil)
	restored, at, err := f.read(r)
	if err == nil {
		f.received.Store(&received{restored, at})
	}
	return err
}

// read reads a snapshot of this cluster.
func (f *fsm) read(r io.Reader) (*state.State, state.Position, error) {
	restored, at, err := state.ReadSnapshot(r)
	if ours := f.cluster; err == nil && restored.ClusterID() != ours {
		err = fmt.Errorf("it belongs to cluster %s, this server to %s", restored.ClusterID(), ours)
	}
	return restored, at, err
}

// Restore implements raft.FSM. It builds the new state beside the old one and swaps it in whole. A bad
// snapshot ends the server, because raft's view and the state would differ from then on. Snapshots from other
// servers have been verified before, so a bad one comes from this server's own disk.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	began := time.Now()
	restored, at, err := f.take(r)
	if err != nil {
		err = fmt.Errorf("restore snapshot: %w", err)
		f.stop(err)
		return err
	}
	f.mu.Lock()
	f.state = restored
	f.zxid.Store(restored.Zxid())
	f.config.Store(restored.Configured())
	f.obs.Reset()
	birth, nonce, last := restored.Stream(f.id)
	var unknown []state.Waiter
	if birth == f.stream.Birth() {
		unknown = f.stream.SkipTo(last)
	} else {
		// Our stream was taken away or opened in an entry that the snapshot covers. It is unknown which of
		// its requests were applied before that entry.
		unknown = f.stream.Drain()
	}
	for _, w := range unknown {
		w.Done(&state.Outcome{Unknown: true}, nil)
	}
	if f.stream.Told(nonce, birth) {
		f.reopen()
	}
	f.at(at.Index, at.Term)
	f.mu.Unlock()
	f.counted.requests.Store(0)
	f.counted.bytes.Store(0)
	f.advance()
	f.noteSnapshot(restored.Zxid(), time.Now())
	if f.replay.to > 0 && f.replay.from == 0 { // found at the start
		f.replay.from = at.Index
		f.measures.SnapshotReadTime.Took(time.Since(began))
	}
	return nil
}

// take returns the state in the snapshot r. It uses the state that verify has read if the snapshot is of the
// same log position: that determines the state.
func (f *fsm) take(r io.Reader) (*state.State, state.Position, error) {
	got := f.received.Swap(nil)
	if got == nil {
		return f.read(r)
	}
	var head bytes.Buffer
	at, err := state.ReadPosition(io.TeeReader(r, &head))
	if err == nil && at == got.at {
		return got.state, at, nil
	}
	return f.read(io.MultiReader(&head, r))
}
