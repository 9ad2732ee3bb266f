package raftfsm

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Snapshot implements raft.FSM. It only notes where the state stands; the
// nodes are read later, while writes go on.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.dead.Load() {
		return nil, errors.New("this server has stopped")
	}
	select {
	case f.walking <- struct{}{}:
	default:
		return nil, errors.New("a backup is being taken")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, _, open := f.state.Staged(); open { // what is kept beside the state would be lost
		<-f.walking
		return nil, errors.New("a restore is under way")
	}
	snap := &fsmSnapshot{f: f, zxid: f.state.Zxid(),
		state: f.state.StartSnapshot(state.Position{Index: f.index.Load(), Term: f.term.Load()})}
	snap.counted.requests.Store(f.counted.requests.Load())
	snap.counted.bytes.Store(f.counted.bytes.Load())
	return snap, nil
}

// fsmSnapshot is a point in time of the state, being written.
type fsmSnapshot struct {
	f       *fsm
	zxid    int64
	state   *state.Snapshot
	counted snapshotCounters
	sink    raft.SnapshotSink // nil until it is written
}

// Persist implements raft.FSMSnapshot.
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	s.sink = sink
	disk.Own(sink)
	if !disk.Forgets(sink) {
		if err := s.state.Write(sink, s.read); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	if err := sink.Close(); err != nil {
		return err
	}
	// The entries that the snapshot covers no longer count towards the next one. Until Release no
	// snapshot of another server is installed, so both counters still count what they counted when it
	// was begun.
	s.f.counted.requests.Add(-s.counted.requests.Load())
	s.f.counted.bytes.Add(-s.counted.bytes.Load())
	if !disk.Forgets(sink) {
		s.f.noteSnapshot(s.zxid, time.Now())
	}
	return nil
}

func (s *fsmSnapshot) read(fn func()) {
	s.f.mu.RLock()
	defer s.f.mu.RUnlock()
	fn()
}

// Release implements raft.FSMSnapshot. raft calls it when it has noted the snapshot and cut its log.
func (s *fsmSnapshot) Release() {
	disk.Done(s.sink)
	s.f.mu.Lock()
	s.state.Close()
	s.f.mu.Unlock()
	<-s.f.walking
}
