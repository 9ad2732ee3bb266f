package disk

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// write writes a snapshot of a few bytes.
func write(t *testing.T, s *snapshotStore, index uint64) (id string) {
	t.Helper()
	sink := must.Get(s.Create(1, index, 2, raft.Configuration{}, 1, nil))(t)
	must.Get(io.WriteString(sink, "content"))(t)
	must.OK(t, sink.Close())
	if err := errors.Join(sink.Close(), sink.Cancel()); err != nil { // nothing is left to do
		t.Errorf("closed twice: %v", err)
	}
	return sink.ID()
}

func at(s *snapshotStore) time.Time {
	_, when := s.newest()
	return when
}

func TestOldSnapshotsGoAndTheNewestIsOffered(t *testing.T) {
	s, err := openSnapshotStore(vfs.OS, t.TempDir(), 2)
	must.OK(t, err)
	if list, err := s.List(); err != nil || len(list) != 0 || !at(s).IsZero() {
		t.Errorf("an empty store offers %v, %v", list, err)
	}
	for index := uint64(8); index <= 12; index++ { // 9 is older than 10
		write(t, s, index)
	}
	names, err := s.names()
	if err != nil || len(names) != 2 || !strings.HasPrefix(names[0], "00000000000000000012-") ||
		!strings.HasPrefix(names[1], "00000000000000000011-") {
		t.Errorf("kept %q, %v", names, err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].Index != 12 || list[0].Term != 2 ||
		list[0].Size != int64(len("content")) || at(s).IsZero() {
		t.Fatalf("offered %+v, %v", list, err)
	}
	_, r, err := s.Open(list[0].ID)
	must.OK(t, err)
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "content" {
		t.Errorf("read back as %q, %v", b, err)
	}
	if _, _, err := s.Open("none"); err == nil {
		t.Error("a snapshot that there is not was opened")
	}
}

// A snapshot whose writer did not come to its end is no snapshot, and is gone
// after the next start.
func TestUnfinishedSnapshotsAreNone(t *testing.T) {
	dir := t.TempDir()
	s := must.Get(openSnapshotStore(vfs.OS, dir, 2))(t)
	left := must.Get(s.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
	io.WriteString(left, "half")
	cancelled := must.Get(s.Create(1, 6, 2, raft.Configuration{}, 1, nil))(t)
	must.OK(t, cancelled.Cancel())
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("offered %v, %v", list, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files, want that of the one under way", len(files))
	}
	must.Get(openSnapshotStore(vfs.OS, dir, 2))(t)
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("%d files left after the next start", len(files))
	}
}

// What could not be written must be said: raft cuts its log on the word of a
// snapshot.
func TestSnapshotThatFailsIsNone(t *testing.T) {
	for name, spoil := range map[string]func(*snapshotSink){
		"write":  func(s *snapshotSink) { s.f.Close() },
		"rename": func(s *snapshotSink) { os.Remove(s.f.Name()) },
	} {
		s := must.Get(openSnapshotStore(vfs.OS, t.TempDir(), 2))(t)
		sink := must.Get(s.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
		spoil(sink.(*snapshotSink))
		if _, err := io.WriteString(sink, "content"); err == nil && name == "write" {
			t.Errorf("%s: content that was not written", name)
		}
		expect.Fails(t, sink.Close(), "%s: a snapshot that is not there was closed", name)
		if list, err := s.List(); err != nil || len(list) != 0 {
			t.Errorf("%s: offered %v, %v", name, list, err)
		}
	}
}

// Stores that cannot be opened are errors, with what it is.
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
		if part == "raft/stable.db" { // a directory cannot be a file
			err = os.MkdirAll(filepath.Join(path, "x"), 0o700)
		} else { // nor a file a directory
			err = os.WriteFile(path, nil, 0o600)
		}
		must.OK(t, err)
		if d, err := Open(o); err == nil {
			d.Close()
			t.Errorf("%s: opened", part)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", part, err)
		}
		// What failed has let go of the directory.
		must.OK(t, os.RemoveAll(dir))
		d, err = Open(o)
		if err != nil {
			t.Errorf("%s: afterwards: %v", part, err)
			continue
		}
		d.Close()
	}
}
