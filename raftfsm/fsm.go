package raftfsm

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/tree"
)

// fsm puts the state behind a lock and feeds it from raft. Raft calls Apply,
// Snapshot and Restore from one goroutine.
type fsm struct {
	id     uint32
	stream *stream
	fatal  func(error) // ends the server; see Options.Fatal

	mu    sync.RWMutex // the state lock: written only by Apply and Restore
	state *State
	obs   Observer // nil until the server above is attached

	// What this server itself has applied. AppliedIndex of raft is what raft
	// has handed over, which is not the same thing.
	index   atomic.Uint64
	term    atomic.Uint64
	zxid    atomic.Int64
	dead    atomic.Bool
	config  atomic.Bool // the members have been published in the state
	counted snapshotCounters
	tracker atomic.Pointer[tracker] // of the term this server leads; else nil

	waitMu   sync.Mutex
	advanced chan struct{} // closed and replaced after every entry somebody waits for
	waiting  atomic.Int32

	onOpened  func(nonce int64, birth uint32) // our own stream was opened
	onMember  func()                          // some server's stream was opened
	onApplied func(index, term uint64)        // after each entry, outside the lock
}

// snapshotCounters measure the log since the last snapshot.
type snapshotCounters struct {
	requests, bytes atomic.Int64
}

func newFSM(id uint32, clusterID string, fatal func(error)) *fsm {
	return &fsm{id: id, stream: newStream(), fatal: fatal, state: NewState(clusterID), advanced: make(chan struct{})}
}

// Apply implements raft.FSM.
func (f *fsm) Apply(l *raft.Log) any {
	if f.dead.Load() || l.Type != raft.LogCommand {
		return nil
	}
	f.mu.Lock()
	err := f.state.Apply(l.Data, (*fsmSink)(f))
	f.zxid.Store(f.state.zxid)
	f.config.Store(f.state.configured)
	f.mu.Unlock()
	if err != nil {
		f.stop(fmt.Errorf("apply log entry %d: %w", l.Index, err))
		return nil
	}
	f.advance(l.Index, l.Term)
	f.counted.bytes.Add(int64(len(l.Data)))
	if f.obs != nil {
		f.obs.Applied()
	}
	f.onApplied(l.Index, l.Term)
	return nil
}

// stop ends the server: its state cannot be trusted any more.
func (f *fsm) stop(err error) {
	if !f.dead.Swap(true) {
		f.fatal(err)
	}
}

// advance publishes what has been applied.
func (f *fsm) advance(index, term uint64) {
	f.term.Store(term)
	f.index.Store(index)
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

// view runs fn under the read lock.
func (f *fsm) view(fn func(*State)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	fn(f.state)
}

// fsmSink is the fsm as Apply sees it: events and outcomes go on to the
// observer and to the waiters of our own stream.
type fsmSink fsm

func (f *fsmSink) events(zxid int64, events []tree.Event) {
	if f.obs != nil {
		f.obs.Events(zxid, events)
	}
}

func (f *fsmSink) ended(id int64, cause EndCause, zxid int64) {
	if t := f.tracker.Load(); t != nil {
		t.remove(id)
	}
	if f.obs != nil {
		f.obs.SessionEnded(id, cause, zxid)
	}
}

func (f *fsmSink) attached(s *session.Session, created bool) {
	if t := f.tracker.Load(); t != nil {
		t.touch(s.ID, s.Timeout, 0)
	}
	if f.obs != nil && !created {
		f.obs.SessionMoved(s.ID, s.Gen)
	}
}

func (f *fsmSink) opened(id uint32, nonce int64, birth uint32) {
	if id == f.id {
		f.onOpened(nonce, birth)
	}
	f.onMember()
}

func (f *fsmSink) outcome(origin, birth uint32, seq uint64, o *Outcome) {
	f.counted.requests.Add(1)
	if origin != f.id || birth == 0 {
		return
	}
	if w := f.stream.applied(birth, seq); w != nil {
		w.Done(o)
	}
}

// Restore implements raft.FSM. The new state is built beside the old one and
// swapped in whole; a snapshot that does not hold what it promises ends the
// server, because raft's view and ours would differ from here on.
func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	state, at, err := readSnapshot(r)
	if err == nil && state.clusterID != f.state.clusterID {
		err = fmt.Errorf("it belongs to cluster %s, this server to %s", state.clusterID, f.state.clusterID)
	}
	if err != nil {
		err = fmt.Errorf("restore snapshot: %w", err)
		f.stop(err)
		return err
	}
	f.mu.Lock()
	f.state = state
	f.zxid.Store(state.zxid)
	f.config.Store(state.configured)
	if f.obs != nil {
		f.obs.Reset()
	}
	var unknown []Waiter
	if mark := state.streams[f.id]; mark.birth == f.stream.birthNow() {
		unknown = f.stream.skipTo(mark.last)
	}
	for _, w := range unknown {
		w.Done(&Outcome{Unknown: true})
	}
	f.mu.Unlock()
	f.counted.requests.Store(0)
	f.counted.bytes.Store(0)
	f.advance(at.index, at.term)
	return nil
}
