package disk

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestF5DamagedSnapshotIsRefusedWhole(t *testing.T) {
	store := must.Get(openSnapshotStore(vfs.OS, t.TempDir(), 2))(t)
	sink := must.Get(store.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
	snap := state.New("c").StartSnapshot(state.Position{Index: 5, Term: 2})
	must.OK(t, snap.Write(sink, func(read func()) { read() }))
	must.OK(t, sink.Close())
	path := store.path(sink.ID())
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
func readBack(store *snapshotStore) error {
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

// A server verifies a received snapshot before it publishes it, and does not report a fault in it as a fault
// of its own disk. It does not verify its own snapshots.
func TestF5ReceivedSnapshotIsVerifiedBeforeItIsPublished(t *testing.T) {
	var good bytes.Buffer
	snap := state.New("c").StartSnapshot(state.Position{Index: 5, Term: 2})
	must.OK(t, snap.Write(&good, func(read func()) { read() }))
	rotten := bytes.Clone(good.Bytes())
	rotten[len(rotten)/2] ^= 1
	for _, c := range []struct {
		name    string
		content []byte
		own, ok bool
	}{
		{"whole", good.Bytes(), false, true},
		{"rotten", rotten, false, false},
		{"cut", good.Bytes()[:good.Len()-1], false, false},
		{"longer", append(bytes.Clone(good.Bytes()), 0), false, false},
		{"empty", nil, false, false},
		{"our own is not read twice", rotten, true, true},
	} {
		store := must.Get(openSnapshotStore(vfs.OS, t.TempDir(), 2))(t)
		dog := newWatchdog(quiet, func(err error) { t.Errorf("%s: the server ends: %v", c.name, err) })
		var damaged error
		watched := watchedSnapshots{store, &Disk{dog: dog}, state.CheckSnapshot, func(err error) { damaged = err }}
		sink := must.Get(watched.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
		if c.own {
			Own(sink)
		}
		must.Get(sink.Write(c.content))(t)
		expect.Equal(t, sink.Close() == nil, c.ok, "%s", c.name)
		left, err := filepath.Glob(filepath.Join(store.dir, "*"))
		expect.OK(t, err)
		expect.Equal(t, len(left) == 1, c.ok, "%s: one file is left; the files are %v", c.name, left)
		if !c.ok {
			continue
		}
		_, r := must.Get2(watched.Open(sink.ID()))(t)
		_, err = io.Copy(io.Discard, r)
		bad := bytes.Equal(c.content, rotten)
		expect.Equal(t, err != nil, bad, "%s: reading back fails; the error is %v", c.name, err)
		expect.Equal(t, damaged != nil, bad, "%s: the damage is reported; the report is %v", c.name, damaged)
		expect.OK(t, r.Close())
	}
}

// A complete snapshot in memory replaces an older one, but never a newer one.
func TestSnapshotInMemoryCountsWhenItIsComplete(t *testing.T) {
	store := NewMemoryStores(false).Snapshots
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
func write(t *testing.T, s *snapshotStore, index uint64) (id string) {
	t.Helper()
	sink := must.Get(s.Create(1, index, 2, raft.Configuration{}, 1, nil))(t)
	must.Get(io.WriteString(sink, "content"))(t)
	must.OK(t, sink.Close())
	if err := errors.Join(sink.Close(), sink.Cancel()); err != nil { // the snapshot is closed already
		t.Errorf("closed twice: %v", err)
	}
	return sink.ID()
}

func at(s *snapshotStore) time.Time {
	_, when := s.newest()
	return when
}

func TestOldSnapshotsGoAndTheNewestIsOffered(t *testing.T) {
	s := must.Get(openSnapshotStore(vfs.OS, t.TempDir(), 2))(t)
	list, err := s.List()
	expect.OK(t, err)
	expect.Equal(t, len(list), 0, "snapshots in an empty store")
	expect.That(t, at(s).IsZero(), "an empty store has a snapshot of %v", at(s))
	for index := uint64(8); index <= 12; index++ { // as text 9 would come after 10
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
	s := must.Get(openSnapshotStore(vfs.OS, dir, 2))(t)
	left := must.Get(s.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
	io.WriteString(left, "half")
	cancelled := must.Get(s.Create(1, 6, 2, raft.Configuration{}, 1, nil))(t)
	must.OK(t, cancelled.Cancel())
	list, err := s.List()
	expect.OK(t, err)
	expect.Equal(t, len(list), 0, "snapshots that are offered")
	files, _ := os.ReadDir(dir)
	expect.Equal(t, len(files), 1, "%d files", len(files))
	must.Get(openSnapshotStore(vfs.OS, dir, 2))(t)
	files, _ = os.ReadDir(dir)
	expect.Equal(t, len(files), 0, "files left after the next start")
}

// A failed write of a snapshot must be reported: raft cuts its log after a snapshot.
func TestSnapshotThatFailsIsNone(t *testing.T) {
	for name, spoil := range map[string]func(*snapshotSink){
		"write":  func(s *snapshotSink) { s.f.Close() },
		"rename": func(s *snapshotSink) { os.Remove(s.f.Name()) },
	} {
		s := must.Get(openSnapshotStore(vfs.OS, t.TempDir(), 2))(t)
		sink := must.Get(s.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
		spoil(sink.(*snapshotSink))
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

// A start whose store cannot be opened returns an error that names the store.
func TestStoresThatCannotBeOpenedAreErrors(t *testing.T) {
	for part, want := range map[string]string{"raft/stable.db": "stable store", "raft/log": "log",
		"snapshots": "snapshots"} {
		dir := t.TempDir()
		o := Options{Server: 1, Dir: dir, LogStore: "wal", SnapshotRetain: 2, Rand: rand.Reader,
			Logger: slog.New(slog.DiscardHandler), Fatal: func(error) {}}
		d, err := Open(o)
		must.OK(t, err)
		must.OK(t, d.Close())
		path := filepath.Join(dir, part)
		must.OK(t, os.RemoveAll(path))
		if part == "raft/stable.db" { // a directory where a file must be
			err = os.MkdirAll(filepath.Join(path, "x"), 0o700)
		} else { // a file where a directory must be
			err = os.WriteFile(path, nil, 0o600)
		}
		must.OK(t, err)
		if d, err := Open(o); err == nil {
			d.Close()
			t.Errorf("%s: opened", part)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", part, err)
		}
		// The failed start has released the directory.
		must.OK(t, os.RemoveAll(dir))
		d, err = Open(o)
		if err != nil {
			t.Errorf("%s: afterwards: %v", part, err)
			continue
		}
		d.Close()
	}
}

var quiet = slog.New(slog.DiscardHandler)

// brokenLog is a log store whose writes fail or hang on demand.
type brokenLog struct {
	raft.LogStore
	fail chan error // StoreLogs returns an error from here; a nil channel: it works
}

func (b *brokenLog) StoreLogs(l []*raft.Log) error {
	if b.fail != nil {
		if err := <-b.fail; err != nil {
			return err
		}
	}
	return b.LogStore.StoreLogs(l)
}

func TestR9FirstStorageErrorEndsTheServer(t *testing.T) {
	died := make(chan error, 1)
	g := newWatchdog(quiet, func(err error) { died <- err })
	broken := &brokenLog{raft.NewInmemStore(), make(chan error, 2)}
	s := watchedLog{broken, &Disk{dog: g}}
	broken.fail <- errors.New("no space left on device")
	must.Fails(t, s.StoreLog(&raft.Log{Index: 1}), "the error was swallowed")
	if err := <-died; !strings.Contains(err.Error(), "no space left") {
		t.Errorf("reason is %v", err)
	}
	broken.fail <- nil
	expect.Fails(t, s.StoreLog(&raft.Log{Index: 1}), "a store that failed once was used again")
	expect.Equal(t, s.d.Writing(), 0, "the write under way")
}

// A server alone and in memory keeps no snapshot. If it has others, it keeps one.
func TestSnapshotOfALoneServerInMemoryIsForgotten(t *testing.T) {
	for _, alone := range []bool{false, true} {
		d := must.Get(Open(Options{Server: 1, Alone: alone, Rand: rand.Reader, Logger: quiet}))(t)
		snaps := d.Snapshots(func(io.Reader) error { return nil }, nil)
		sink := must.Get(snaps.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 1, nil))(t)
		expect.Equal(t, Forgets(sink), alone, "forgets")
		Own(sink)
		must.OK(t, sink.Cancel())
	}
}

func TestR2HangingStorageEndsTheServer(t *testing.T) {
	died := make(chan error, 1)
	g := newWatchdog(quiet, func(err error) { died <- err })
	g.deadline = 50 * time.Millisecond
	go g.watch(t.Context())
	broken := &brokenLog{raft.NewInmemStore(), make(chan error)}
	go watchedLog{broken, &Disk{dog: g}}.StoreLog(&raft.Log{Index: 1})
	select {
	case err := <-died:
		expect.Has(t, err.Error(), "hangs", "reason is %v", err)
	case <-time.After(time.Minute):
		t.Fatal("a hanging store went unnoticed")
	}
	broken.fail <- nil
}
