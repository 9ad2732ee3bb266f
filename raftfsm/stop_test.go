package raftfsm

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/must"
)

// frozenLog is a log whose writes hang from freeze to thaw.
type frozenLog struct {
	raft.LogStore
	frozen chan struct{} // closed: writes hang
	thaw   chan struct{}
	hangs  atomic.Bool // a write does
}

func (l *frozenLog) StoreLogs(list []*raft.Log) error {
	select {
	case <-l.frozen:
		l.hangs.Store(true)
		<-l.thaw
	default:
	}
	return l.LogStore.StoreLogs(list)
}

func (l *frozenLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// A server whose disk hangs stops when it is told to, within the time it is
// given.
func TestServerWithAFrozenDiskStopsInTime(t *testing.T) {
	stores := disk.NewMemoryStores(true)
	l := &frozenLog{LogStore: stores.Log, frozen: make(chan struct{}), thaw: make(chan struct{})}
	stores.Log = l
	n, w := start(t, Options{Stores: stores})
	eventually(t, "serving", w.serving.Load)
	s := openSession(t, n, 30_000).Session
	close(l.frozen)
	defer close(l.thaw)
	c := &call{make(chan state.Outcome, 1)}
	must.OK(t, n.Propose(state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody("/x", 0)},
		c))
	eventually(t, "the write hangs", l.hangs.Load)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- n.Close(ctx) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not stop")
	}
}

// A crash in the middle of the first start leaves raft's term without its first
// entry. The next start goes on from there.
func TestCrashInTheFirstStartIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	d := must.Get(disk.Open(disk.Options{Server: 1, Dir: dir, LogStore: "wal", SnapshotRetain: 2, Rand: zeros{},
		Logger: quietLog(t, 1), Fatal: func(err error) { t.Error(err) }}))(t)
	id := d.Identity()
	id.Cluster, id.Incarnations = "c", map[uint32]string{1: id.Incarnation}
	must.OK(t, d.SaveIdentity(id))
	must.OK(t, d.Stable().SetUint64([]byte("CurrentTerm"), 1))
	must.OK(t, d.Close())
	n, w := start(t, Options{DataDir: dir})
	eventually(t, "serving", w.serving.Load)
	openSession(t, n, 10_000)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
