package snapshots

import (
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/sim"
)

func TestF5DamagedSnapshotIsRefusedWhole(t *testing.T) {
	store := must.Get(Open(vfs.OS, t.TempDir(), 2))(t)
	sink := must.Get(store.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
	snap := state.New("c").StartSnapshot(state.Position{Index: 5, Term: 2})
	must.OK(t, snap.Write(sink, func(read func()) { read() }))
	must.OK(t, sink.Close())
	path := store.Path(sink.ID())
	good := must.Get(os.ReadFile(path))(t)
	for at := range good {
		bad := append([]byte(nil), good...)
		bad[at] ^= 0x10
		must.OK(t, os.WriteFile(path, bad, 0o600))
		expect.That(t, readBack(store) != nil, "a flip at %d of %d went unnoticed", at, len(good))
		must.OK(t, os.WriteFile(path, good[:at], 0o600))
		expect.That(t, readBack(store) != nil, "a cut at %d of %d went unnoticed", at, len(good))
	}
}

// readBack reads the newest snapshot as a starting server does.
func readBack(store *Store) error {
	list, err := store.List()
	if err != nil {
		return err
	}
	_, r, err := store.Open(list[0].ID)
	if err != nil {
		return err
	}
	defer r.Close()
	_, _, err = state.ReadSnapshot(r)
	return err
}

// A complete snapshot in memory replaces an older one, but never a newer one.
func TestSnapshotInMemoryCountsWhenItIsComplete(t *testing.T) {
	store := NewMemory()
	for _, c := range []struct {
		index uint64
		whole bool
		want  string // content of the newest snapshot afterwards
	}{{5, true, "up to 5"}, {7, false, "up to 5"}, {9, true, "up to 9"}, {8, true, "up to 9"}} {
		sink := must.Get(store.Create(1, c.index, 2, raft.Configuration{}, 1, nil))(t)
		must.Get(fmt.Fprintf(sink, "up to %d", c.index))(t)
		end := sink.Cancel
		if c.whole {
			end = sink.Close
		}
		before, err := store.List()
		must.OK(t, errors.Join(err, end()))
		if len(before) > 0 {
			expect.That(t, before[0].Index != c.index, "the snapshot up to %d counts before its end", c.index)
		}
		list, err := store.List()
		must.OK(t, err)
		must.Equal(t, len(list), 1, "snapshots")
		_, r := must.Get2(store.Open(list[0].ID))(t)
		b, err := io.ReadAll(r)
		expect.OK(t, err)
		expect.Equal(t, string(b), c.want, "the newest snapshot after the one up to %d", c.index)
		expect.Equal(t, list[0].Size, int64(len(c.want)), "its size")
	}
}

// write writes a snapshot of a few bytes.
func write(t *testing.T, s *Store, index uint64) (id string) {
	t.Helper()
	sink := must.Get(s.Create(1, index, 2, raft.Configuration{}, 1, nil))(t)
	must.Get(io.WriteString(sink, "content"))(t)
	must.OK(t, sink.Close())
	if err := errors.Join(sink.Close(), sink.Cancel()); err != nil { // Cancel after Close changes nothing
		t.Errorf("closed twice: %v", err)
	}
	return sink.ID()
}

func at(s *Store) time.Time {
	_, when := s.Newest()
	return when
}

func TestOldSnapshotsGoAndTheNewestIsOffered(t *testing.T) {
	s := must.Get(Open(vfs.OS, t.TempDir(), 2))(t)
	list, err := s.List()
	expect.OK(t, err)
	expect.Equal(t, len(list), 0, "snapshots in an empty store")
	expect.That(t, at(s).IsZero(), "an empty store has a snapshot of %v", at(s))
	for index := uint64(8); index <= 12; index++ { // compared as text, 9 would come after 10
		write(t, s, index)
	}
	names, err := s.names()
	if expect.OK(t, err) && expect.Equal(t, len(names), 2, "kept files") {
		expect.That(t, strings.HasPrefix(names[0], "00000000000000000012-"), "the newest kept file is %s", names[0])
		expect.That(t, strings.HasPrefix(names[1], "00000000000000000011-"), "the other kept file is %s", names[1])
	}
	list, err = s.List()
	must.OK(t, err)
	must.Equal(t, len(list), 1, "snapshots that are offered")
	must.Equal(t, list[0].Index, 12, "index of the snapshot that is offered")
	must.Equal(t, list[0].Term, 2, "term of the snapshot that is offered")
	must.Equal(t, list[0].Size, int64(len("content")), "size of the snapshot that is offered")
	must.That(t, !at(s).IsZero(), "the snapshot that is offered has no time")
	_, r := must.Get2(s.Open(list[0].ID))(t)
	defer r.Close()
	b, err := io.ReadAll(r)
	expect.OK(t, err)
	expect.Equal(t, string(b), "content", "read back")
	if _, _, err := s.Open("none"); err == nil {
		t.Error("a snapshot that there is not was opened")
	}
}

// A snapshot whose writer did not finish does not count, and the next start removes it.
func TestUnfinishedSnapshotsAreNone(t *testing.T) {
	dir := t.TempDir()
	s := must.Get(Open(vfs.OS, dir, 2))(t)
	left := must.Get(s.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
	io.WriteString(left, "half")
	cancelled := must.Get(s.Create(1, 6, 2, raft.Configuration{}, 1, nil))(t)
	must.OK(t, cancelled.Cancel())
	list, err := s.List()
	expect.OK(t, err)
	expect.Equal(t, len(list), 0, "snapshots that are offered")
	files, _ := os.ReadDir(dir)
	expect.Equal(t, len(files), 1, "%d files", len(files))
	must.Get(Open(vfs.OS, dir, 2))(t)
	files, _ = os.ReadDir(dir)
	expect.Equal(t, len(files), 0, "files left after the next start")
}

// A failed write of a snapshot must be reported: raft cuts its log after a snapshot.
func TestSnapshotThatFailsIsNone(t *testing.T) {
	for name, spoil := range map[string]func(*fileSink){
		"write":  func(s *fileSink) { s.f.Close() },
		"rename": func(s *fileSink) { os.Remove(s.f.Name()) },
	} {
		s := must.Get(Open(vfs.OS, t.TempDir(), 2))(t)
		sink := must.Get(s.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
		spoil(sink.(*fileSink))
		_, err := io.WriteString(sink, "content")
		if name == "write" {
			expect.Fails(t, err, "a write to a closed file")
		}
		expect.Fails(t, sink.Close(), "%s: a snapshot that is not there was closed", name)
		list, err := s.List()
		expect.OK(t, err, "%s", name)
		expect.Equal(t, len(list), 0, "%s: snapshots that are offered", name)
	}
}

// A snapshot returns an error if any of its disk operations fails, because raft cuts its log after a snapshot
// that succeeds.
func TestSnapshotSaysThatAnyOperationFailed(t *testing.T) {
	for nth := 1; ; nth++ {
		power := sim.NewDisk(mathrand.New(mathrand.NewPCG(1, 1)))
		store, err := Open(power.Mount(), "/snapshots", 1)
		must.OK(t, err)
		write(t, store, 4) // the next snapshot replaces this one
		before, done := store.size, 0
		var what sim.DiskOp
		power.OnOp(func(op sim.DiskOp) error {
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
			expect.OK(t, err, "nothing failed in %d operations", done)
			expect.That(t, nth >= 5, "a snapshot has %d operations, want 5 or more", done)
			return
		}
		expect.Is(t, err, errRefused, "%s of %s failed, and what is said", what.Kind, what.Name)
		// The store lists and removes old snapshots only after it has published the new one. So if one of
		// these operations fails, the new snapshot already counts.
		published := what.Kind == "list" || what.Kind == "remove"
		expect.Equal(t, store.size != before, published, "%s of %s failed: the snapshot counts", what.Kind,
			what.Name)
	}
}

// A server ended after it had published a snapshot, but before the snapshot's name was durable. The next
// start uses the snapshot, and must first make sure that a loss of power cannot undo its name.
func TestSnapshotFoundIsDurable(t *testing.T) {
	for seed := range uint64(30) {
		power := sim.NewDisk(mathrand.New(mathrand.NewPCG(seed, 1)))
		fs := power.Mount()
		store, err := Open(fs, "/snapshots", 1)
		if err = errors.Join(err, fs.SyncDir("/")); err != nil { // a starting server does this in openStores
			t.Fatal(err)
		}
		sink := must.Get(store.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
		power.OnOp(func(op sim.DiskOp) error {
			if op.Kind == "syncdir" {
				power.Kill()
				return errRefused
			}
			return nil
		})
		must.Fails(t, sink.Close(), "killed, and closed")
		power.OnOp(nil)
		offered := func() int {
			store := must.Get(Open(power.Mount(), "/snapshots", 1))(t)
			list := must.Get(store.List())(t)
			return len(list)
		}
		before := offered()
		power.PowerLoss()
		after := offered()
		expect.Equal(t, before, 1, "seed %d: snapshots after the start", seed)
		expect.Equal(t, after, 1, "seed %d: snapshots after a loss of power", seed)
	}
}

var errRefused = errors.New("refused by the disk")
