package disk

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/seglog"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/sim"
)

// The type synced records the directories that were synced.
type synced struct {
	vfs.FS
	dirs []string
}

func (s *synced) SyncDir(dir string) error {
	s.dirs = append(s.dirs, dir)
	return s.FS.SyncDir(dir)
}

// When a directory was made from a source, the operator may delete the source. So the new directory, and
// parents that were made for it, must survive a loss of power.
func TestFoundDirectoryIsDurable(t *testing.T) {
	s := &synced{FS: osFiles.FS}
	osFiles.FS = s
	defer func() { osFiles.FS = s.FS }()
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b")
	must.OK(t, Found(dir, Founding{Server: 1, Cluster: "c", Index: 1, Term: 1}, func(w io.Writer) error {
		_, err := io.WriteString(w, "content")
		return err
	}))
	for _, want := range []string{top, filepath.Join(top, "a"), dir, filepath.Join(dir, "raft"),
		filepath.Join(dir, "snapshots")} {
		expect.That(t, slices.Contains(s.dirs, want), "the names in %s may go with the power", want)
	}
}

func openDir(t *testing.T, path string) *dataDir {
	t.Helper()
	d := must.Get(openDataDir(path, osFiles))(t)
	t.Cleanup(func() { d.close() })
	return d
}

func TestIdentityIsKept(t *testing.T) {
	d := openDir(t, t.TempDir())
	made, err := d.loadIdentity(3, rand.Reader)
	must.OK(t, err)
	must.Equal(t, made.Server, 3, "made.Server")
	must.Equal(t, len(made.Incarnation), 32, "len(made.Incarnation)")
	made.Cluster, made.Incarnations, made.Peers = "c", map[uint32]string{3: made.Incarnation}, map[uint32]string{
		3: "a:1"}
	must.OK(t, d.saveIdentity(made))
	again, err := d.loadIdentity(3, rand.Reader)
	expect.OK(t, err)
	expect.That(t, reflect.DeepEqual(again, made), "%+v is read back as %+v", made, again)
	_, err = d.loadIdentity(4, rand.Reader)
	if expect.Fails(t, err, "the identity of server 3 at server 4") {
		expect.Has(t, err.Error(), "belongs to server 3")
	}
}

// An identity that was cut short is refused: with half of it a server would vote as another server.
func TestIdentityCutShortIsDamaged(t *testing.T) {
	d := openDir(t, t.TempDir())
	id := Identity{Server: 3, Incarnation: "i", Cluster: "c"}
	must.OK(t, d.saveIdentity(id))
	whole := must.Get(os.ReadFile(d.sub(identityFile)))(t)
	for n := range len(whole) - 1 { // without its last byte, a newline, the identity is still whole
		must.OK(t, os.WriteFile(d.sub(identityFile), whole[:n], 0o600))
		got, err := d.loadIdentity(3, rand.Reader)
		if expect.Fails(t, err, "%d of %d bytes", n, len(whole)) {
			expect.Has(t, err.Error(), "is damaged", "%d of %d bytes", n, len(whole))
		}
		expect.That(t, reflect.DeepEqual(got, Identity{}), "%d of %d bytes are read as %+v", n, len(whole), got)
	}
	for _, text := range []string{`{"server":3}`, `{"server":3,"incarnation":""}`, `[]`} {
		os.WriteFile(d.sub(identityFile), []byte(text), 0o600)
		_, err := d.loadIdentity(3, rand.Reader)
		if expect.Fails(t, err, "%s", text) {
			expect.Has(t, err.Error(), "is damaged", "%s", text)
		}
	}
}

// After a received snapshot, a log in bolt has an old entry, a hole, and the entries after the snapshot. The
// check of the log accepts this hole. It refuses an entry that is missing in the log and in the snapshot.
func TestCheckAcceptsAHoleThatASnapshotCovers(t *testing.T) {
	log := raft.NewInmemStore()
	for _, i := range []uint64{3, 9, 10} {
		must.OK(t, log.StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogNoop}))
	}
	d := &Disk{stores: &Stores{Log: log}}
	expect.OK(t, d.CheckLog(8), "a snapshot up to 8")
	expect.Is(t, d.CheckLog(7), raft.ErrLogNotFound, "a snapshot up to 7")
}

// Bolt does not notice that an entry has changed on the disk, so the server checks it.
func TestCheckFindsADamagedEntry(t *testing.T) {
	dir := t.TempDir()
	open := func() (*Disk, error) {
		return Open(Options{Server: 1, Dir: dir, LogStore: "bolt", SnapshotRetain: 1, Rand: rand.Reader,
			Logger: slog.New(slog.DiscardHandler), Fatal: func(error) {}})
	}
	command := entries.Begin(nil, 0)
	entries.Seal(command, 1)
	members := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "1", Address: "a:1"}}})
	for _, l := range []raft.Log{{Index: 1, Type: raft.LogCommand, Data: command},
		{Index: 1, Type: raft.LogConfiguration, Data: members}} {
		d := must.Get(open())(t)
		must.OK(t, d.Stable().SetUint64([]byte(keyCurrentTerm), 1))
		for _, whole := range []bool{true, false} {
			l.Data = slices.Clone(l.Data)
			if l.Term = 1; !whole {
				l.Data[0] ^= 0x40
			}
			must.OK(t, d.stores.Log.StoreLog(&l))
			expect.Equal(t, d.CheckLog(0) == nil, whole, "%s, whole %v", l.Type, whole)
			expect.Equal(t, d.Log().GetLog(1, new(raft.Log)) == nil, whole, "%s read, whole %v", l.Type, whole)
		}
		must.OK(t, d.Close())
		s := must.Get(OpenStopped(dir))(t)
		_, err := s.Entries(func(*raft.Log, string) error { return nil })
		expect.Fails(t, err, "%s of a stopped server", l.Type)
		must.OK(t, s.Close())
	}
}

// The type replacing lists the parts of a directory that are durable, each time they change.
type replacing struct {
	vfs.FS
	dir  string
	last []string   // durable names
	all  [][]string // a list for each sync that changed the names
}

func (r *replacing) SyncDir(dir string) error {
	if names, err := r.FS.List(dir); err == nil && dir == r.dir && !slices.Equal(names, r.last) {
		r.last, r.all = names, append(r.all, names)
	}
	return r.FS.SyncDir(dir)
}

// While a directory is replaced, its identity becomes durable last. If power fails before that, the
// directory has no identity, and the replacement can continue.
func TestReplacedIdentityIsDurableLast(t *testing.T) {
	r := &replacing{FS: osFiles.FS, dir: filepath.Join(t.TempDir(), "d")}
	f := Founding{Server: 1, Cluster: "c", Index: 1, Term: 1}
	write := func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }
	must.OK(t, Found(r.dir, f, write))
	was := must.Get(readIdentity(vfs.ReadOnly, r.dir))(t)
	osFiles.FS = r
	defer func() { osFiles.FS = r.FS }()
	must.OK(t, Replace(r.dir, "old", was, f, write))
	has := func(names []string, parts ...string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !slices.Contains(names, p) })
	}
	moved := -1 // number of the sync after which the old parts are gone
	for i, names := range r.all {
		if !has(names, identityFile) && moved < 0 {
			moved = i
		}
		if moved >= 0 && has(names, identityFile) {
			must.That(t, i > moved+1, "the identity is durable together with the first new part: %q", r.all)
			must.That(t, has(r.all[i-1], "raft", "snapshots"), "the identity is durable before the other parts: %q",
				r.all)
			return
		}
	}
	t.Fatalf("the identity never becomes durable: %q", r.all)
}

var errRefused = errors.New("refused by the disk")

// keptStable is a stable store that survives a loss of power.
type keptStable struct{ *raft.InmemStore }

// Once a server has started on a new directory, all of its parts survive a loss of power: the directory, its
// identity, its log and its snapshots.
func TestNewDirectorySurvivesAPowerLoss(t *testing.T) {
	for seed := range uint64(60) {
		power := sim.NewDisk(mathrand.New(mathrand.NewPCG(seed, 1)))
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
		is := d.Identity()
		expect.Equal(t, is.Incarnation, who.Incarnation, "seed %d: is.Incarnation", seed)
		expect.Equal(t, is.Cluster, who.Cluster, "seed %d: is.Cluster", seed)
		expect.Equal(t, is.Start, who.Start+1, "seed %d: is.Start", seed)
		_, end, err := d.Promised()
		expect.OK(t, err, "seed %d", seed)
		expect.Equal(t, end, 1, "seed %d: the last entry in the log and the snapshots", seed)
	}
}
