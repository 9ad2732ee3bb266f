package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Snapshot implements raft.FSM. It only notes the log position of the state; the nodes are read later, while
// writes continue.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
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
	if _, _, open := f.state.Staged(); open { // the snapshot would lack the staged backup
		<-f.walking
		return nil, errors.New("a restore is under way")
	}
	return f.hold(), nil
}

// hold() begins a snapshot of the state as it is now. The caller holds the state lock and the token in
// `walking`.
func (f *FSM) hold() *snapshot {
	at := state.Position{Index: f.index.Load(), Term: f.term.Load()}
	return &snapshot{f: f, state: f.state.StartSnapshot(at), requests: f.counted.requests.Load(),
		bytes: f.counted.bytes.Load()}
}

// snapshot is the state at one point in time, while it is written.
type snapshot struct {
	f               *FSM
	state           *state.Snapshot
	requests, bytes int64             // the values of FSM.counted when this snapshot began
	sink            raft.SnapshotSink // nil before Persist is called
	reading         time.Duration     // the time spent reading since the last pause
}

// Persist implements raft.FSMSnapshot.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	s.sink = sink
	disk.Own(sink)
	if !disk.Forgets(sink) {
		if err := s.state.Write(disk.Until(s.f.o.Ctx, sink), s.read); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	if err := sink.Close(); err != nil {
		return err
	}
	// The entries that the snapshot covers no longer count towards the next snapshot. Only a snapshot from
	// another server resets the counters, and raft installs no such snapshot before Release, so the counters
	// still include these entries.
	s.f.counted.requests.Add(-s.requests)
	s.f.counted.bytes.Add(-s.bytes)
	if !disk.Forgets(sink) {
		s.f.noteSnapshot(s.state.Zxid(), time.Now())
	}
	return nil
}

// After the writer of a snapshot has read for readRest, it pauses for as long as it has read. So a snapshot
// takes at most half of one processor's time, and holds the state lock for at most half of the time.
const readRest = time.Millisecond

func (s *snapshot) read(fn func()) {
	begin := time.Now()
	func() {
		s.f.mu.RLock()
		defer s.f.mu.RUnlock()
		fn()
	}()
	if s.reading += time.Since(begin); s.reading >= readRest {
		time.Sleep(min(s.reading, 50*readRest)) // bounded, because a read seems long if the process was stopped
		s.reading = 0
	}
}

// Release implements raft.FSMSnapshot. Raft calls it after it has noted the snapshot and cut its log.
func (s *snapshot) Release() {
	disk.Done(s.sink)
	s.f.mu.Lock()
	s.state.Close()
	s.f.mu.Unlock()
	<-s.f.walking
}

// Backup is the state at one moment. It can be written once, while writes continue.
type Backup struct {
	Zxid int64
	ACLs [][]jute.ACL // the access control lists of its nodes

	snap *snapshot
}

// Backup returns a backup of the present state. If a snapshot or another backup is under way, it waits until
// that is done or ctx ends. The caller closes the Backup.
func (f *FSM) Backup(ctx context.Context) (*Backup, error) {
	select {
	case f.walking <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.New("a snapshot or another backup is being written; try again")
	}
	if f.dead.Load() {
		<-f.walking
		return nil, errors.New("this server has stopped")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	snap := f.hold()
	return &Backup{Zxid: snap.state.Zxid(), ACLs: f.state.Tree().ACLs(), snap: snap}, nil
}

// Write writes the backup. It takes the state lock for a few nodes at a time, so that writes continue.
func (b *Backup) Write(w io.Writer) error { return b.snap.state.Write(w, b.snap.read) }

// Close releases the state.
func (b *Backup) Close() { b.snap.Release() }
