package disk

import (
	"errors"
	"io"
	mathrand "math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/simdisk"
)

var errRefused = errors.New("refused by the disk")

// Raft cuts its log on the word of a snapshot: one operation that fails, whichever
// it is, and there must be an error.
func TestSnapshotSaysThatAnyOperationFailed(t *testing.T) {
	for nth := 1; ; nth++ {
		power := simdisk.New(mathrand.New(mathrand.NewPCG(1, 1)))
		store, err := openSnapshotStore(power.Mount(), "/snapshots", 1)
		must.OK(t, err)
		write(t, store, 4) // makes room for the next one
		before, done := store.size, 0
		var what simdisk.Op
		power.OnOp(func(op simdisk.Op) error {
			if done++; done == nth {
				what = op
				return errRefused
			}
			return nil
		})
		err = func() error {
			sink, err := store.Create(1, 5, 2, raft.Configuration{}, 1, nil)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(sink, "longer content"); err != nil {
				return errors.Join(err, sink.Cancel())
			}
			return sink.Close()
		}()
		power.OnOp(nil)
		if done < nth {
			expect.That(t, err == nil && nth >= 5, "nothing failed in %d operations: %v", done, err)
			return
		}
		expect.Is(t, err, errRefused, "%s of %s failed, and what is said", what.Kind, what.Name)
		// behind it old ones go
		if published := what.Kind == "list" || what.Kind == "remove"; published != (store.size != before) {
			t.Errorf("%s of %s failed: the snapshot counts: %v", what.Kind, what.Name, !published)
		}
	}
}
