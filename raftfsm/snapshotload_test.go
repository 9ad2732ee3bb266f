package raftfsm

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// discard is a snapshot that is written nowhere.
type discard struct{ io.Writer }

func (discard) Close() error  { return nil }
func (discard) ID() string    { return "discard" }
func (discard) Cancel() error { return nil }

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// R24: while a snapshot of a large state is written, entries are applied. Each
// piece of it is written only after another entry has been applied.
func TestR24SnapshotKeepsNoWriteWaiting(t *testing.T) {
	const nodes = 200_000
	f := newFSM(1, "c", func(err error) { t.Error(err) })
	f.onOpened, f.onMember = func(int64, uint32) {}, func() {}
	index := uint64(0)
	apply := func(list ...state.Request) {
		var b []byte
		for i := range list {
			b = list[i].Append(b)
		}
		bl := state.Block{Count: uint32(len(list)), Requests: b}
		entry := bl.Append(state.BeginEntry(nil, 0))
		state.SealEntry(entry, 1)
		index++
		f.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: entry})
	}
	body := state.SessionBody{Timeout: 10_000, Owner: 1, Addr: "10.0.0.1"}
	apply(state.Request{Op: state.OpCreateSession, Body: body.Append(nil)})
	write := state.Request{Op: jute.OpCreate}
	f.state.Sessions().All(func(s session.Session) { write.Session, write.Gen = s.ID, s.Gen })
	var batch []state.Request
	for i := range nodes {
		r := write
		r.Body = createBody(fmt.Sprintf("/n%d", i), 0)
		if batch = append(batch, r); len(batch) == 1000 {
			apply(batch...)
			batch = batch[:0]
		}
	}
	n := f.state.Tree().Count()
	must.That(t, n >= nodes, "%d nodes", n)
	snap, err := f.Snapshot()
	must.OK(t, err)
	written, entries := 0, 0
	sink := discard{writerFunc(func(p []byte) (int, error) {
		r := write
		r.Op, r.Body = jute.OpSetData,
			append(jute.AppendBuffer(jute.AppendString(nil, fmt.Sprintf("/n%d", entries)), []byte("new")), 255, 255,
				255, 255)
		applied := make(chan struct{})
		go func() {
			defer close(applied)
			apply(r)
		}()
		select {
		case <-applied:
		case <-time.After(time.Minute):
			return 0, errors.New("an entry waits for the snapshot")
		}
		entries++
		written += len(p)
		return len(p), nil
	})}
	must.OK(t, snap.Persist(sink), "R24")
	// However slow the disk, then, an entry waits at most until one piece is read.
	if piece := written / entries; entries < 100 || piece > 256<<10 {
		t.Errorf("R24: %d entries between the pieces of %d bytes", entries, written)
	}
	snap.Release()
	snap, err = f.Snapshot()
	must.OK(t, err)
	defer snap.Release()
	reads := 0
	must.OK(t, snap.(*fsmSnapshot).state.Write(io.Discard, func(read func()) { reads++; read() }))
	expect.That(t, reads >= nodes/1000, "R24: the state is locked %d times for %d nodes", reads, nodes)
}

// A leader that gives up sending a snapshot sends it again. The first may still
// arrive, on a connection that was held up, when the follower has gone on from
// the second: it has told the leader of entries that must not be lost.
func TestF5LateSnapshotTakesNothingBack(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	lead := c.leader()
	behind := lead%3 + 1
	from, to := c.nodes[lead], c.nodes[behind]
	c.create(lead, "/before")
	must.OK(t, from.Snapshot())
	snaps := from.disk.Snapshots(nil, func(error) {})
	list, err := snaps.List()
	must.That(t, err == nil && len(list) == 1, "%v %v", list, err)
	c.create(lead, "/after")
	eventually(t, "the follower has both", func() bool { return c.has(behind, "/after") })
	index, last := to.fsm.index.Load(), to.raft.LastIndex()
	meta, r, err := snaps.Open(list[0].ID)
	must.OK(t, err)
	defer r.Close()
	var resp raft.InstallSnapshotResponse
	err = from.raft.Trans.InstallSnapshot(peer.ServerID(to.id), raft.ServerAddress(to.o.Peers[to.id]),
		&raft.InstallSnapshotRequest{
			RPCHeader: from.raft.Header(), SnapshotVersion: meta.Version, Term: from.raft.CurrentTerm(),
			LastLogIndex: meta.Index, LastLogTerm: meta.Term, Size: meta.Size,
			Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex},
		&resp, r)
	expect.That(t, err == nil && resp.Success,
		"the leader is not told that the follower has it: %+v, %v", resp, err)
	expect.That(t, c.has(behind, "/after") && to.fsm.index.Load() >= index,
		"the follower has gone back to entry %d, from %d", to.fsm.index.Load(), index)
	if end, err := to.disk.Log().LastIndex(); err != nil || end < last {
		t.Errorf("its log ends at entry %d, and it had %d (%v)", end, last, err)
	}
	c.create(behind, "/goes-on")
	c.sameDigest()
}
