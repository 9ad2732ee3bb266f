package disk

import (
	"bytes"
	"crypto/rand"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A follower ends after it has published its leader's snapshot, but before it has emptied its log. After a
// restart it accepts the leader's next entries, whatever its log held. It keeps entries that agree with the
// snapshot, and drops those of another history.
func TestSnapshotIsPublishedAndTheLogNotEmptied(t *testing.T) {
	for _, kind := range []string{"wal", "bolt"} {
		for _, c := range []struct {
			name     string
			from     uint64 // first entry of term 3 in the log; earlier entries have term 2
			snapTerm uint64 // the term of entry 10, where the snapshot ends
			last     uint64 // the last entry in the log after the start
		}{
			{"entries of another term up to the snapshot and beyond", 9, 5, 0},
			{"the last entry of the snapshot alone", 10, 5, 0},
			{"the same history", 11, 2, 12},
		} {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				dir := t.TempDir()
				d := must.Get(Open(Options{Server: 1, Dir: dir, LogStore: kind, SnapshotRetain: 2, Rand: rand.Reader,
					Logger: quiet, Fatal: func(err error) { t.Error(err) }}))(t)
				must.OK(t, d.Stable().SetUint64([]byte(keyCurrentTerm), 5))
				for i := uint64(1); i <= 12; i++ {
					l := &raft.Log{Index: i, Term: 2, Type: raft.LogNoop}
					if i >= c.from {
						l.Term = 3
					}
					must.OK(t, d.Log().StoreLog(l))
				}
				var content bytes.Buffer
				must.OK(t, state.New("c").StartSnapshot(state.Position{Index: 10, Term: c.snapTerm}).Write(&content,
					func(read func()) { read() }))
				sink := must.Get(d.Snapshots(state.CheckSnapshot, func(error) {}).Create(raft.SnapshotVersionMax, 10,
					c.snapTerm, raft.Configuration{}, 1, nil))(t)
				must.Get(sink.Write(content.Bytes()))(t)
				must.OK(t, sink.Close())
				must.OK(t, d.Close())

				v := startVoter(t, dir, kind)
				defer v.stop()
				expect.Equal(t, must.Get(v.d.Log().LastIndex())(t), c.last, "the last entry in the log")
				tr, head := v.from("2")
				var resp raft.AppendEntriesResponse
				entry := &raft.Log{Index: 11, Term: 5, Type: raft.LogNoop}
				must.OK(t, tr.AppendEntries("1", v.here, &raft.AppendEntriesRequest{RPCHeader: head, Term: 5,
					PrevLogEntry: 10, PrevLogTerm: c.snapTerm, Entries: []*raft.Log{entry}}, &resp))
				expect.That(t, resp.Success, "the follower refuses the entry behind the snapshot")
			})
		}
	}
}

// A snapshot up to entry 100 has replaced a log up to entry 102. Until other entries are stored, the log
// returns a stand-in for each entry from 100 to 102.
func TestLogAnswersForAllThatASnapshotReplaced(t *testing.T) {
	var c covered
	c.snapshot(100, 5, config{})
	c.emptied(102)
	for index, want := range map[uint64]bool{99: false, 100: true, 101: true, 102: true, 103: false} {
		var l raft.Log
		expect.Equal(t, c.get(index, &l), want, "entry %d", index)
	}
	c.stored()
	expect.That(t, !c.get(101, new(raft.Log)), "entry 101 is still known when others were stored")
}

// The log returns a stand-in for the last entry of each of the newest two snapshots: a leader may still
// compare its log with the older one.
func TestLogAnswersForTheLastTwoSnapshots(t *testing.T) {
	var c covered
	c.snapshot(50, 2, config{})
	c.snapshot(100, 5, config{})
	c.snapshot(100, 5, config{}) // a snapshot is recorded twice: when it is published and when it is opened
	for index, term := range map[uint64]uint64{50: 2, 100: 5} {
		var l raft.Log
		must.That(t, c.get(index, &l), "entry %d, the end of a snapshot, is not known", index)
		expect.Equal(t, l.Term, term, "the term of entry %d", index)
		expect.Equal(t, l.Type, StandIn, "the type of entry %d", index)
	}
	c.snapshot(150, 6, config{})
	expect.That(t, !c.get(50, new(raft.Log)), "the end of the snapshot before the last two is still known")
}
