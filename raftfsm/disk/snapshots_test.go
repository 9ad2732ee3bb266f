package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/must"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
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

// What another server sends is not published before it was verified, and its
// faults are not taken for those of this server's disk.
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
		store, err := openSnapshotStore(vfs.OS, t.TempDir(), 2)
		must.OK(t, err)
		dog := newWatchdog(quiet, func(err error) { t.Errorf("%s: the server ends: %v", c.name, err) })
		var damaged error
		watched := watchedSnapshots{store, &Disk{dog: dog}, state.CheckSnapshot, func(err error) { damaged = err }}
		sink, err := watched.Create(1, 5, 2, raft.Configuration{}, 1, nil)
		must.OK(t, err)
		if c.own {
			Own(sink)
		}
		must.Get(sink.Write(c.content))(t)
		expect.Equal(t, sink.Close() == nil, c.ok, "%s", c.name)
		left, err := filepath.Glob(filepath.Join(store.dir, "*"))
		expect.That(t, err == nil && (len(left) == 1) == c.ok,
			"%s: left behind: %v %v", c.name, left, err)
		if !c.ok {
			continue
		}
		_, r, err := watched.Open(sink.ID())
		must.OK(t, err)
		_, err = io.Copy(io.Discard, r)
		if bad := bytes.Equal(c.content, rotten); (err != nil) != bad || (damaged != nil) != bad {
			t.Errorf("%s, read back: %v, told %v", c.name, err, damaged)
		}
		expect.OK(t, r.Close())
	}
}

// A snapshot in memory takes the place of the newest when it is complete, and never of a newer one.
func TestSnapshotInMemoryCountsWhenItIsComplete(t *testing.T) {
	store := NewMemoryStores(false).Snapshots
	for _, c := range []struct {
		index uint64
		whole bool
		want  string // content of the newest from then on
	}{{5, true, "up to 5"}, {7, false, "up to 5"}, {9, true, "up to 9"}, {8, true, "up to 9"}} {
		sink, err := store.Create(1, c.index, 2, raft.Configuration{}, 1, nil)
		must.OK(t, err)
		must.Get(fmt.Fprintf(sink, "up to %d", c.index))(t)
		end := sink.Cancel
		if c.whole {
			end = sink.Close
		}
		before, err := store.List()
		must.OK(t, errors.Join(err, end()))
		expect.That(t, len(before) <= 0 || before[0].Index != c.index,
			"the snapshot up to %d counts before its end", c.index)
		list, err := store.List()
		must.That(t, err == nil && len(list) == 1, "%v %v", list, err)
		_, r, err := store.Open(list[0].ID)
		must.OK(t, err)
		if b, err := io.ReadAll(r); string(b) != c.want || err != nil || list[0].Size != int64(len(c.want)) {
			t.Errorf("after %d the newest is %q (%v)", c.index, b, err)
		}
	}
}
