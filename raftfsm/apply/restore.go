package apply

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// Verify reads a snapshot that another server sends, and keeps its state for Restore. Only a snapshot that
// can be read is published and replaces this server's state.
func (f *FSM) Verify(r io.Reader) error {
	f.received.Store(nil)
	restored, at, err := f.read(r)
	if err == nil {
		f.received.Store(&received{restored, at})
	}
	return err
}

// read() reads a snapshot of this cluster.
func (f *FSM) read(r io.Reader) (*state.State, state.Position, error) {
	restored, at, err := state.ReadSnapshot(r)
	if ours := f.o.Cluster; err == nil && restored.ClusterID() != ours {
		err = fmt.Errorf("the snapshot belongs to cluster %s, but this server to cluster %s",
			restored.ClusterID(), ours)
	}
	return restored, at, err
}

// Restore implements raft.FSM. It builds the new state beside the old one, and then replaces the old one as a
// whole. A bad snapshot ends the server, because the state would differ from what raft believes it to be.
// Snapshots from other servers have been verified before, so a bad snapshot comes from this server's own
// disk.
func (f *FSM) Restore(r io.ReadCloser) error {
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
	f.o.Observer.Reset()
	birth, nonce, last := restored.Stream(f.o.ID)
	var unknown []state.Waiter
	if birth == f.Stream.Birth() {
		unknown = f.Stream.SkipTo(last)
	} else {
		// The snapshot covers an entry in which this server's stream was closed or opened. It is unknown
		// which of the stream's requests were applied before that entry.
		unknown = f.Stream.Drain()
	}
	for _, w := range unknown {
		w.Done(&state.Outcome{Unknown: true}, nil)
	}
	if f.Stream.Told(nonce, birth) {
		f.o.Reopen()
	}
	f.at(at.Index, at.Term)
	f.mu.Unlock()
	f.counted.requests.Store(0)
	f.counted.bytes.Store(0)
	f.advance()
	f.noteSnapshot(restored.Zxid(), time.Now())
	if f.replay.to > 0 && f.replay.from == 0 { // the snapshot was found at the start
		f.replay.from = at.Index
		f.o.Measures.SnapshotReadTime.Took(time.Since(began))
	}
	return nil
}

// take() returns the state in the snapshot `r`. If Verify has read a snapshot of the same log position,
// take() returns the state that Verify read, because the position determines the state.
func (f *FSM) take(r io.Reader) (*state.State, state.Position, error) {
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
