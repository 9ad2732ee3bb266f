package raftfsm

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestLogBehindARestoredSnapshotIsEmpty: what was counted towards the next
// snapshot is in the one that was restored.
func TestLogBehindARestoredSnapshotIsEmpty(t *testing.T) {
	f := newFSM(1, "c", func(err error) { t.Error(err) })
	f.onOpened = func(int64, uint32) {}
	var file bytes.Buffer
	snap := state.New("c").StartSnapshot(state.Position{Index: 7, Term: 3})
	must.OK(t, snap.Write(&file, func(read func()) { read() }))
	snap.Close()
	f.counted.requests.Store(5)
	f.counted.bytes.Store(500)
	must.OK(t, f.Restore(io.NopCloser(&file)))
	n, b := f.counted.requests.Load(), f.counted.bytes.Load()
	expect.That(t, n == 0 && b == 0, "%d requests of %d bytes", n, b)
	expect.That(t, f.index.Load() == 7 && f.term.Load() == 3,
		"it is at %d of term %d", f.index.Load(), f.term.Load())
}

// refusedSink refuses to be the newest snapshot.
type refusedSink struct{ discard }

func (refusedSink) Close() error { return errors.New("a newer one was sent") }

// TestSnapshotThatIsRefusedCountsNothing: a snapshot of another server replaces the state while
// this server writes a snapshot of its own, which is then refused. The log behind the new state is
// empty, and not shorter than that.
func TestSnapshotThatIsRefusedCountsNothing(t *testing.T) {
	f := newFSM(1, "c", func(err error) { t.Error(err) })
	f.onOpened = func(int64, uint32) {}
	f.counted.requests.Store(5)
	f.counted.bytes.Store(500)
	own := must.Get(f.Snapshot())(t)
	defer own.Release()
	var file bytes.Buffer
	sent := state.New("c").StartSnapshot(state.Position{Index: 7, Term: 3})
	must.OK(t, sent.Write(&file, func(read func()) { read() }))
	sent.Close()
	must.OK(t, f.Restore(io.NopCloser(&file)))
	must.Fails(t, own.Persist(refusedSink{discard{io.Discard}}), "it is not refused")
	n, b := f.counted.requests.Load(), f.counted.bytes.Load()
	expect.That(t, n == 0 && b == 0, "%d requests of %d bytes", n, b)
}

// TestOnlyTheLeadersConnectionEndsTheSearch: a connection to a server that does
// not lead says nothing of the leader that was lost.
func TestOnlyTheLeadersConnectionEndsTheSearch(t *testing.T) {
	w := &leaderWatch{leader: 2}
	w.broken()
	w.held(3)
	expect.That(t, !w.lost.IsZero(), "a connection to another server is taken for one to the leader")
	w.held(2)
	expect.That(t, w.lost.IsZero(), "the leader is held and counts as lost")
}
