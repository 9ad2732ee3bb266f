package disk

import (
	"bytes"
	"io"
	"testing"

	"github.com/hashicorp/raft"
)

// The index of the newest configuration is known after all that raft does to
// its log.
func TestConfigFollowsTheLog(t *testing.T) {
	d := openTest(t, t.TempDir())
	log := d.Log()
	wants := func(want uint64) {
		t.Helper()
		if got := d.Config(); got != want {
			t.Errorf("the newest configuration is entry %d, want %d", got, want)
		}
	}
	wants(0)
	store := func(index uint64, typ raft.LogType) {
		t.Helper()
		if err := log.StoreLog(&raft.Log{Index: index, Term: 1, Type: typ}); err != nil {
			t.Fatal(err)
		}
	}
	for index := uint64(1); index <= 9; index++ {
		typ := raft.LogNoop
		if index == 1 || index == 4 || index == 8 {
			typ = raft.LogConfiguration
		}
		store(index, typ)
	}
	wants(8)
	if err := log.DeleteRange(1, 5); err != nil { // behind a snapshot
		t.Fatal(err)
	}
	wants(8)
	if err := log.DeleteRange(8, 9); err != nil { // of another leader's
		t.Fatal(err)
	}
	wants(4)
	store(8, raft.LogNoop)
	wants(4)
	store(9, raft.LogConfiguration)
	wants(9)
}

// A snapshot that another server sent brings its configuration when it is
// published, and not before.
func TestConfigComesWithASnapshot(t *testing.T) {
	d := openTest(t, t.TempDir())
	read := func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	snaps := d.Snapshots(read, func(error) {})
	_, trans := raft.NewInmemTransport("here")
	for _, cancel := range []bool{true, false} {
		sink, err := snaps.Create(raft.SnapshotVersionMax, 20, 2, raft.Configuration{Servers: []raft.Server{{ID: "1", Address: "a:1"}}}, 17, trans)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(sink, bytes.NewReader(make([]byte, 100))); err != nil {
			t.Fatal(err)
		}
		if got := d.Config(); got != 0 {
			t.Errorf("before the end: %d", got)
		}
		if cancel {
			err = sink.Cancel()
		} else {
			err = sink.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := d.Config(); got != 17 {
		t.Errorf("the newest configuration is entry %d", got)
	}
}

func openTest(t *testing.T, dir string) *Disk {
	t.Helper()
	d, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
