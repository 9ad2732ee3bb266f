package disk

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

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
	if err := d.CheckLog(8); err != nil {
		t.Errorf("a snapshot up to 8: %v", err)
	}
	if err := d.CheckLog(7); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("a snapshot up to 7: %v", err)
	}
}
