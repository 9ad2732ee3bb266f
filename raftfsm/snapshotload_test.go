package raftfsm

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/session"
)

// discard is a snapshot that is written nowhere.
type discard struct{ io.Writer }

func (discard) Close() error  { return nil }
func (discard) ID() string    { return "discard" }
func (discard) Cancel() error { return nil }

// R24: while a snapshot of a large state is written, no entry waits for it.
func TestR24SnapshotKeepsNoWriteWaiting(t *testing.T) {
	const nodes, limit = 200_000, 200 * time.Millisecond
	f := newFSM(1, "c", func(err error) { t.Error(err) })
	f.onOpened, f.onMember, f.onApplied = func(int64, uint32) {}, func() {}, func(uint64, uint64) {}
	index := uint64(0)
	apply := func(list ...Request) {
		var b []byte
		for i := range list {
			b = appendRequest(b, &list[i])
		}
		entry := appendBlock(beginEntry(nil, 0), &block{count: uint32(len(list)), requests: b})
		sealEntry(entry, 1)
		index++
		f.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: entry})
	}
	body := SessionBody{Timeout: 10_000, Owner: 1, Addr: "10.0.0.1"}
	apply(Request{Op: OpCreateSession, Body: body.Append(nil)})
	write := Request{Op: jute.OpCreate}
	f.state.sessions.All(func(s session.Session) { write.Session, write.Gen = s.ID, s.Gen })
	var batch []Request
	for i := range nodes {
		r := write
		r.Body = createBody(fmt.Sprintf("/n%d", i), 0)
		if batch = append(batch, r); len(batch) == 1000 {
			apply(batch...)
			batch = batch[:0]
		}
	}
	if n := f.state.tree.Count(); n < nodes {
		t.Fatalf("%d nodes", n)
	}
	best := time.Hour
	for try := 0; try < 3 && best > limit; try++ { // a busy machine may hold anybody up once
		snap, err := f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- snap.Persist(discard{io.Discard}) }()
		worst, writes := time.Duration(0), 0
		for running := true; running; {
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
				running = false
			default:
				r := write
				r.Op, r.Body = jute.OpSetData, append(jute.AppendBuffer(jute.AppendString(nil, fmt.Sprintf("/n%d", writes%nodes)), []byte("new")), 255, 255, 255, 255)
				began := time.Now()
				apply(r)
				worst = max(worst, time.Since(began))
				writes++
			}
		}
		snap.Release()
		t.Logf("%d writes while the snapshot was written, the slowest %v", writes, worst)
		best = min(best, worst)
	}
	if best > limit {
		t.Errorf("R24: a write took %v", best)
	}
}
