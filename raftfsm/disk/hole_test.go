package disk

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A log in bolt has a hole behind a snapshot that another server sent: it holds an older
// entry, and the entries after the snapshot. The check of the log accepts the hole, and
// refuses a missing entry that no snapshot covers.
func TestCheckAcceptsAHoleThatASnapshotCovers(t *testing.T) {
	log := raft.NewInmemStore()
	for _, i := range []uint64{3, 9, 10} {
		must.OK(t, log.StoreLog(&raft.Log{Index: i, Term: 1}))
	}
	d := &Disk{stores: &Stores{Log: log}}
	expect.OK(t, d.CheckLog(8), "a snapshot up to 8")
	expect.Is(t, d.CheckLog(7), raft.ErrLogNotFound, "a snapshot up to 7")
}
