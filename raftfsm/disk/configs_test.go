package disk

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The index of the newest configuration is known after all that raft does to
// its log.
func TestConfigFollowsTheLog(t *testing.T) {
	d := openTest(t, t.TempDir())
	log := d.Log()
	wants := func(want uint64) {
		t.Helper()
		if got := d.newestConfig(); got != want {
			t.Errorf("the newest configuration is entry %d, want %d", got, want)
		}
	}
	wants(0)
	store := func(index uint64, typ raft.LogType) {
		t.Helper()
		must.OK(t, log.StoreLog(&raft.Log{Index: index, Term: 1, Type: typ, Data: membersAt(index)}))
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
		sink, err := snaps.Create(raft.SnapshotVersionMax, 20, 2, raft.Configuration{
			Servers: []raft.Server{{ID: "1", Address: "a:1"}}}, 17, trans)
		must.OK(t, err)
		must.Get(io.Copy(sink, bytes.NewReader(make([]byte, 100))))(t)
		expect.Equal(t, d.newestConfig(), 0, "before the end")
		if cancel {
			err = sink.Cancel()
		} else {
			err = sink.Close()
		}
		must.OK(t, err)
	}
	expect.Equal(t, d.newestConfig(), 17, "the newest configuration is entry")
}

// newestConfig is the index of the newest configuration.
func (d *Disk) newestConfig() uint64 {
	if len(d.configs.list) == 0 {
		return 0
	}
	return d.configs.list[len(d.configs.list)-1].index
}

// membersAt is a configuration that differs from entry to entry.
func membersAt(index uint64) []byte {
	at := raft.ServerAddress(fmt.Sprint("a:", index))
	return raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "1", Address: at}}})
}

// Members are paired with the index of their own entry, also while the entry of
// the next ones is on its way to the disk (R21).
func TestR21MembersHaveTheIndexOfTheirEntry(t *testing.T) {
	d := &Disk{}
	a := []raft.Server{{ID: "1", Address: "a:1"}, {ID: "2", Address: "a:2"}}
	b := []raft.Server{{ID: "1", Address: "a:1"}}
	for i, servers := range [][]raft.Server{a, b, a} {
		d.configs.add(config{index: uint64(i + 1), servers: servers})
	}
	expect.Equal(t, d.ConfigOf(b), 2, "the members of entry 2 have index")
	expect.Equal(t, d.ConfigOf(a), 3, "the members of entries 1 and 3 have index")
	expect.Equal(t, d.ConfigOf(nil), UnknownConfig, "members that no entry has have index")
	for _, test := range []struct {
		after uint64
		id    raft.ServerID
		addr  raft.ServerAddress
		want  bool
	}{{3, "2", "", true}, {2, "2", "a:2", true}, {1, "2", "", false}, {1, "1", "", true},
		{1, "1", "a:9", false}} {
		expect.Equal(t, d.StaysMember(test.after, test.id, test.addr), test.want,
			"server %s after entry %d at %q", test.id, test.after, test.addr)
	}
	d.configs.add(config{index: 9, servers: a, gap: true})
	expect.That(t, !d.StaysMember(3, "1", "") && d.StaysMember(9, "1", ""),
		"what a snapshot hides is taken for known")
}

func openTest(t *testing.T, dir string) *Disk {
	t.Helper()
	d := must.Get(open(dir))(t)
	t.Cleanup(func() { d.Close() })
	return d
}
