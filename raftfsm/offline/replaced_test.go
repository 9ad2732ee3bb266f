package offline

import (
	"crypto/rand"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server may end after it has stored a received snapshot, and before it has emptied its log. If the log's
// entries do not lead to the snapshot, ReadData ignores them, as the server would.
func TestLogThatASnapshotReplacedIsNotRead(t *testing.T) {
	for name, c := range map[string]struct{ term, last uint64 }{
		"another history":  {3, 10},
		"the same history": {5, 12},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			must.OK(t, disk.Found(dir, disk.Founding{Server: 1, Cluster: "c", Index: 10, Term: 5},
				func(w io.Writer) error {
					return state.New("c").StartSnapshot(state.Position{Index: 10, Term: 5}).Write(w,
						func(read func()) { read() })
				}))
			d := must.Get(disk.Open(disk.Options{Server: 1, Dir: dir, LogStore: "wal", SnapshotRetain: 1, Rand: rand.Reader,
				Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) { t.Error(err) }}))(t)
			for i := uint64(9); i <= 12; i++ {
				must.OK(t, d.Log().StoreLog(&raft.Log{Index: i, Term: c.term, Type: raft.LogNoop}))
			}
			must.OK(t, d.Close())
			read := must.Get(ReadData(dir))(t)
			expect.Equal(t, read.Last, state.Position{Index: c.last, Term: 5}, "the last entry that counts")
		})
	}
}
