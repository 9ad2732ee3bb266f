package disk

import (
	"crypto/rand"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/simdisk"
)

// A snapshot that the last life published, and did not live to sync its name,
// counts from the next start on, and so must not go with the power.
func TestSnapshotFoundIsDurable(t *testing.T) {
	for seed := range uint64(30) {
		power := simdisk.New(mathrand.New(mathrand.NewPCG(seed, 1)))
		fs := power.Mount()
		store, err := openSnapshotStore(fs, "/snapshots", 1)
		if err = errors.Join(err, fs.SyncDir("/")); err != nil { // as openStores does
			t.Fatal(err)
		}
		sink, err := store.Create(1, 5, 2, raft.Configuration{}, 1, nil)
		must.OK(t, err)
		power.OnOp(func(op simdisk.Op) error {
			if op.Kind == "syncdir" {
				power.Kill()
				return errRefused
			}
			return nil
		})
		must.Fails(t, sink.Close(), "killed, and closed")
		power.OnOp(nil)
		offered := func() int {
			store := must.Get(openSnapshotStore(power.Mount(), "/snapshots", 1))(t)
			list := must.Get(store.List())(t)
			return len(list)
		}
		before := offered()
		power.PowerLoss()
		if after := offered(); before != 1 || after != 1 {
			t.Errorf("seed %d: %d snapshots were offered, and %d after a loss of power", seed, before, after)
		}
	}
}

// keptStable is a stable store that loses nothing.
type keptStable struct{ *raft.InmemStore }

// What a server has once begun on a new directory survives a loss of power: the
// directory itself, who it is, its log and its snapshots.
func TestNewDirectorySurvivesAPowerLoss(t *testing.T) {
	for seed := range uint64(60) {
		power := simdisk.New(mathrand.New(mathrand.NewPCG(seed, 1)))
		stable := keptStable{raft.NewInmemStore()}
		begin := func() *Disk {
			t.Helper()
			d, err := Open(Options{Server: 1, Dir: "/var/lib/zlockd", LogStore: "wal", SnapshotRetain: 2,
				Rand: rand.Reader, Logger: quiet, Fatal: func(error) {},
				Files: &Files{FS: power.Mount(), Stable: stable, Log: seglog.Options{FirstSize: 4096, FullSize: 8192,
					InTurn: true}}})
			must.OK(t, err, "seed %d", seed)
			return d
		}
		must := func(err error) {
			t.Helper()
			must.OK(t, err, "seed %d", seed)
		}
		d := begin()
		must(d.Stable().SetUint64([]byte("CurrentTerm"), 1))
		must(d.Log().StoreLog(&raft.Log{Index: 1, Term: 1}))
		who := d.Identity()
		who.Cluster = "c"
		must(d.SaveIdentity(who))
		sink, err := d.stores.Snapshots.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 1, nil)
		must(err)
		_, err = io.WriteString(sink, "content")
		must(err)
		must(sink.Close())
		must(d.Log().DeleteRange(1, 1))
		power.PowerLoss()
		d = begin()
		if is := d.Identity(); is.Incarnation != who.Incarnation || is.Cluster != who.Cluster ||
			is.Start != who.Start+1 {
			t.Errorf("seed %d: %+v has become of %+v", seed, is, who)
		}
		if _, end, err := d.Promised(); err != nil || end != 1 {
			t.Errorf("seed %d: the log and the snapshots end at %d, %v", seed, end, err)
		}
	}
}
