package disk

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func open(dir string) (*Disk, error) {
	return Open(Options{Server: 1, Dir: dir, LogStore: "wal", SnapshotRetain: 2, Rand: rand.Reader,
		Logger: quiet, Fatal: func(error) {}})
}

// filled() is a data directory of a server that has voted and has a log.
func filled(t *testing.T) string {
	dir := t.TempDir()
	d := must.Get(open(dir))(t)
	id := d.Identity()
	id.Cluster = "c"
	must.OK(t, d.SaveIdentity(id))
	must.OK(t, d.Stable().SetUint64([]byte("CurrentTerm"), 3))
	must.OK(t, d.Log().StoreLog(&raft.Log{Index: 1, Term: 3, Type: raft.LogNoop}))
	must.OK(t, d.Close())
	return dir
}

// A server refuses a directory that has lost a part. It must not take it for empty, because it has voted, and
// other servers rely on the entries that it acknowledged.
func TestR6DirectoryWithoutItsPartsIsRefused(t *testing.T) {
	for _, part := range []string{"raft", "raft/stable.db", "raft/log", "snapshots", "identity"} {
		for _, starts := range []int{0, 1} { // number of starts since the directory was filled
			dir := filled(t)
			for range starts {
				d := must.Get(open(dir))(t)
				d.Close()
			}
			must.OK(t, os.RemoveAll(filepath.Join(dir, part)))
			d, err := open(dir)
			if err == nil {
				d.Close()
				t.Errorf("%s removed, %d starts later: opened", part, starts)
			} else if !strings.Contains(err.Error(), "remove the directory") {
				t.Errorf("%s removed: the refusal does not say what to do: %v", part, err)
			}
		}
	}
	// A directory with only one part is refused too.
	for _, left := range []string{"raft", "snapshots"} {
		dir := filled(t)
		for _, part := range []string{"identity", "raft", "snapshots"} {
			if part != left {
				os.RemoveAll(filepath.Join(dir, part))
			}
		}
		if d, err := open(dir); err == nil {
			d.Close()
			t.Errorf("%s alone is left: opened", left)
		}
	}
	// Here the part is empty, not missing.
	dir := filled(t)
	d := must.Get(open(dir))(t)
	d.Close()
	segments, _ := filepath.Glob(filepath.Join(dir, "raft/log/*"))
	for _, f := range segments {
		os.Remove(f)
	}
	if d, err := open(dir); err == nil {
		d.Close()
		t.Errorf("opened without the %d files of its log", len(segments))
	}
}

func TestEveryStartIsAnotherLife(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]bool{}
	for start := uint64(1); start <= 3; start++ {
		d := must.Get(open(dir))(t)
		id := d.Identity()
		expect.Equal(t, id.Start, start, "start %d: id.Start", start)
		expect.That(t, !seen[id.Life], "start %d: %+v: want !seen[id.Life]", start, id)
		seen[id.Life] = true
		d.Close()
	}
}

// After a restart the server reads back an entry with the longest possible request.
func TestLongestEntryIsReadBack(t *testing.T) {
	if testing.Short() {
		t.Skip("some 64 MiB on disk")
	}
	dir := t.TempDir()
	d, err := open(dir)
	must.OK(t, err)
	bl := entries.Block{Origin: 1, Birth: 1, First: 1, Count: 1, Requests: make([]byte, entries.MaxRequest)}
	entry := bl.Append(entries.Begin(nil, 0))
	entries.Seal(entry, 1)
	err = d.Stable().SetUint64([]byte(keyCurrentTerm), 1)
	if err = errors.Join(err, d.Log().StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogCommand,
		Data: entry})); err != nil {
		t.Fatal(err)
	}
	must.OK(t, d.Close())
	d = must.Get(open(dir))(t)
	var got raft.Log
	expect.OK(t, d.Log().GetLog(1, &got))
	expect.That(t, bytes.Equal(got.Data, entry), "an entry of %d bytes is read back as %d, or as others",
		len(entry),
		len(got.Data))
	expect.OK(t, d.Close())
}
