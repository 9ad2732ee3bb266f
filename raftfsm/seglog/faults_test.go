package seglog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
	"github.com/zlockd/zlockd/test/sim"
)

// Each case leaves out a sync that the log needs. The test with random operations must then find a lost
// entry.
func TestModelFindsWhatIsNotSynced(t *testing.T) {
	for what, lie := range map[string]func(*liar){
		"no append is synced":        func(l *liar) { l.noDatasync = true },
		"no file is synced":          func(l *liar) { l.noSync = true },
		"no directory is synced":     func(l *liar) { l.noSyncDir = true },
		"what is cached is believed": func(l *liar) { l.noForget = true },
		"Open syncs neither of these": func(l *liar) {
			l.openOnly, l.noSync, l.noDatasync, l.noSyncDir = true, true,
				true, true
		},
		"Open syncs no file":          func(l *liar) { l.openOnly, l.noSync = true, true },
		"Open does not sync the name": func(l *liar) { l.openOnly, l.noSyncDir = true, true },
	} {
		t.Run(what, func(t *testing.T) {
			for seed := uint64(1); seed <= 20_000; seed++ {
				err := runModel(seed, func(fs vfs.FS) vfs.FS {
					l := &liar{FS: fs}
					lie(l)
					return l
				})
				if err != nil {
					t.Logf("found by seed %d: %v", seed, err)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// liar is a file system that reports syncs as done, but did not make them.
type liar struct {
	vfs.FS
	noSync, noDatasync, noSyncDir, noForget, openOnly, opened bool
}

func (l *liar) lies(about bool) bool { return about && !(l.openOnly && l.opened) }

func (l *liar) SyncDir(dir string) error {
	if l.lies(l.noSyncDir) {
		return nil
	}
	return l.FS.SyncDir(dir)
}

func (l *liar) Create(name string) (vfs.File, error) { return l.wrap(l.FS.Create(name)) }
func (l *liar) Open(name string) (vfs.File, error)   { return l.wrap(l.FS.Open(name)) }

func (l *liar) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return liarFile{f, l}, nil
}

type liarFile struct {
	vfs.File
	l *liar
}

func (f liarFile) Sync() error {
	if f.l.lies(f.l.noSync) {
		return nil
	}
	return f.File.Sync()
}

func (f liarFile) Datasync() error {
	if f.l.lies(f.l.noDatasync) {
		return nil
	}
	return f.File.Datasync()
}

func (f liarFile) Forget() error {
	if f.l.lies(f.l.noForget) {
		return nil
	}
	return f.File.Forget()
}

// The disk is full for a while. The log still stores each entry of that time, because it has prepared its
// next segment before. The test fills the disk at every place of a segment.
func TestDiskThatWasFullForAWhileEndsNothing(t *testing.T) {
	const segment, size = 16 << 10, 500
	for from := uint64(2); from < 24; from++ {
		d := sim.NewDisk(rand.New(rand.NewPCG(1, from)))
		fs := d.Mount()
		must.OK(t, fs.MkdirAll("/log"))
		l := must.Get(Open("/log", Options{FS: fs, FirstSize: segment, FullSize: segment, InTurn: true}))(t)
		put := func(index uint64, what string) {
			t.Helper()
			must.OK(t, l.StoreLog(&raft.Log{Index: index, Term: 1, Data: make([]byte, size)}),
				"full from entry %d on: entry %d, %s", from, index, what)
		}
		index := uint64(1)
		for ; index < from; index++ {
			put(index, "before")
		}
		d.Limit(d.Used() + size) // no room for another segment
		for ; index < from+4; index++ {
			put(index, "while it is full")
		}
		d.Limit(1 << 40)
		for ; index < 200; index++ {
			put(index, "with room again")
		}
		must.OK(t, l.Close())
	}
}

// Open of a log with a torn last write fails if any of its disk operations fails.
func TestOpenFailsWithItsDisk(t *testing.T) {
	d := sim.NewDisk(rand.New(rand.NewPCG(1, 1)))
	fs, o := d.Mount(), Options{FirstSize: 4 << 10, FullSize: 4 << 10, InTurn: true}
	must.OK(t, fs.MkdirAll("/log"))
	o.FS = fs
	l := must.Get(Open("/log", o))(t)
	must.OK(t, l.StoreLog(&raft.Log{Index: 1, Term: 1}))
	at := int64(l.segments[0].end)
	must.OK(t, l.Close())
	f := must.Get(fs.Open("/log/" + segmentName(1)))(t)
	torn := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 1000), ^uint32(1000))
	must.OK(t, expect.Err(f.WriteAt(torn, at)))
	must.OK(t, f.Close())
	failed := errors.New("the disk is broken")
	for nth := 0; ; nth++ {
		ops := 0
		d.OnOp(func(sim.DiskOp) error {
			if ops++; ops == nth+1 {
				return failed
			}
			return nil
		})
		l, err := Open("/log", o)
		d.OnOp(func(sim.DiskOp) error { return nil })
		if err == nil {
			must.OK(t, l.Close())
			must.That(t, ops <= nth, "operation %d of %d failed, and the log was opened", nth+1, ops)
			must.That(t, nth > 5, "Open has %d operations, want more than 5", nth)
			return
		}
		must.Is(t, err, failed, "operation %d", nth+1)
	}
}

// A read hangs on the disk. No append, truncation or other read waits for it. When it goes on, it reports
// that its entry has been deleted.
func TestReadThatHangsHoldsUpNothing(t *testing.T) {
	for _, kind := range []string{"open", "read"} {
		rng := rand.New(rand.NewPCG(6, 1))
		disk := sim.NewDisk(rng)
		l := must.Get(Open("log", Options{FS: disk.Mount(), FirstSize: 4 << 10, FullSize: 4 << 10}))(t)
		m := &model{first: 1, entries: batch(rng, 1, 100, 900)}
		must.OK(t, l.StoreLogs(m.entries[:5]))
		for i := 5; i < 100; i += 5 { // more segments than the log keeps open
			must.OK(t, l.StoreLogs(m.entries[i:i+5]))
		}
		hangs, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		disk.OnOp(func(op sim.DiskOp) error {
			first := false
			if op.Kind == kind {
				once.Do(func() { first = true })
			}
			if first {
				close(hangs)
				<-goOn
			}
			return nil
		})
		got := make(chan error, 1)
		var out raft.Log
		go func() { got <- l.GetLog(1, &out) }()
		<-hangs
		more := batch(rng, 101, 20, 900)
		must.OK(t, l.Append(more[:10], false))
		must.OK(t, l.Wait(110))
		must.OK(t, l.StoreLogs(more[10:]))
		must.OK(t, l.DeleteRange(1, 60))
		m.first, m.entries = 61, append(m.entries[60:], more...)
		m.same(t, l)
		close(goOn)
		expect.Equal(t, <-got, raft.ErrLogNotFound, "%s: a deleted entry is %+v", kind, out)
		m.same(t, l)
		must.OK(t, l.Close())
	}
}

// BenchmarkAppendsBesideRemovals measures the longest append while a hundred segments are removed.
func BenchmarkAppendsBesideRemovals(b *testing.B) {
	const segment, many = 1 << 20, 100
	var longest, whole time.Duration
	for b.Loop() {
		l := must.Get(Open(b.TempDir(), Options{FirstSize: segment, FullSize: segment}))(b)
		index := uint64(1)
		put := func(size int) {
			must.OK(b, l.StoreLog(&raft.Log{Index: index, Term: 1, Data: make([]byte, size)}))
			index++
		}
		for range many {
			put(segment * 3 / 4)
		}
		last, removed := index-2, make(chan time.Duration)
		go func() {
			began := time.Now()
			_ = l.DeleteRange(1, last)
			removed <- time.Since(began)
		}()
		for done := false; !done; {
			began := time.Now()
			put(100)
			longest = max(longest, time.Since(began))
			select {
			case d := <-removed:
				done, whole = true, whole+d
			default:
			}
		}
		must.OK(b, l.Close())
	}
	b.ReportMetric(float64(longest.Microseconds())/1e3, "longest-ms")
	b.ReportMetric(float64(whole.Microseconds())/1e3/float64(b.N), "removal-ms")
}

// contents() returns each file of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries := must.Get(os.ReadDir(dir))(t)
	for _, e := range entries {
		b := must.Get(os.ReadFile(filepath.Join(dir, e.Name())))(t)
		files[e.Name()] = string(b)
	}
	return files
}

// Scan reads a log with a cut tail and a torn end. It finds what Open finds, and changes nothing.
func TestScanReadsWhatOpenReads(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	dir := t.TempDir()
	l := open(t, dir)
	must.OK(t, l.StoreLogs(batch(rng, 1, 20, 300)))
	must.OK(t, l.DeleteRange(11, 20))
	must.OK(t, l.StoreLogs(batch(rng, 11, 5, 3000)))
	must.OK(t, l.DeleteRange(1, 3))
	must.OK(t, l.Close())
	names := must.Get(filepath.Glob(filepath.Join(dir, "*.log")))(t)
	last := names[len(names)-1]
	b := must.Get(os.ReadFile(last))(t)
	whole := len(bytes.TrimRight(b[:len(b)-endSize], "\x00"))
	for _, cut := range []int{0, 2000} {
		torn := bytes.Clone(b)
		clear(torn[whole-cut:])
		must.OK(t, os.WriteFile(last, torn, 0o600))
		before := contents(t, dir)
		var got []*raft.Log
		at := must.Get(Scan(dir, func(l *raft.Log, _ string) error { got = append(got, l); return nil }))(t)
		expect.Equal(t, at != "", cut > 0, "%d bytes cut: torn at %v", cut, at)
		after := contents(t, dir)
		expect.Equal(t, len(before), len(after), "files came or went")
		for name := range before {
			expect.Equal(t, before[name], after[name], "%s was changed", name)
		}
		l := open(t, dir)
		m := &model{first: got[0].Index, entries: got}
		m.same(t, l)
		must.OK(t, l.Close())
	}
	b[len(b)/2%whole] ^= 1
	must.OK(t, os.WriteFile(last, b, 0o600))
	expect.Fails(t, expect.Err(Scan(dir, func(*raft.Log, string) error { return nil })),
		"a changed byte went unnoticed")
}

// Scan finds a log in a directory of any name. It fails if the directory does not exist.
func TestScanFindsItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data[1]*?")
	must.OK(t, os.Mkdir(dir, 0o700))
	l := open(t, dir)
	must.OK(t, l.StoreLogs(batch(rand.New(rand.NewPCG(1, 1)), 1, 3, 30)))
	must.OK(t, l.Close())
	n := 0
	must.Get(Scan(dir, func(*raft.Log, string) error { n++; return nil }))(t)
	expect.Equal(t, n, 3, "entries of 3")
	expect.Fails(t, expect.Err(Scan(dir+"x", func(*raft.Log, string) error { return nil })),
		"no directory, and no error")
}

// A file without its end, as from an unfinished copy, is damaged. It does not pass for a shorter log.
func TestSegmentCutShortIsDamaged(t *testing.T) {
	race.Alone(t)
	dir := t.TempDir()
	l := open(t, dir)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range uint64(20) {
		must.OK(t, l.StoreLogs(batch(rng, i+1, 1, 300)))
	}
	must.OK(t, l.Close())
	names := must.Get(filepath.Glob(filepath.Join(dir, "*.log")))(t)
	file := names[len(names)-1]
	whole := must.Get(os.ReadFile(file))(t)
	step := 8
	if testing.Short() {
		step = 40
	}
	for n := 0; n < len(whole); n += step {
		must.OK(t, os.WriteFile(file, whole[:n], 0o600))
		l, err := Open(dir, Options{})
		if err == nil {
			l.Close()
			t.Fatalf("%d of %d bytes: opened", n, len(whole))
		}
		must.Fails(t, expect.Err(Scan(dir, func(*raft.Log, string) error { return nil })),
			"%d of %d bytes: scanned", n, len(whole))
		if n == 2000 {
			n = len(whole) - 1000
		}
	}
	must.OK(t, os.WriteFile(file, whole, 0o600))
	must.OK(t, open(t, dir).Close())
}

// While old segments are removed, an append waits for the removal of one of them at most.
func TestAppendsGoOnBetweenRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 1))
		disk := sim.NewDisk(rng)
		l := must.Get(Open("log", Options{FS: disk.Mount(), FirstSize: 4 << 10, FullSize: 4 << 10, InTurn: true}))(t)
		m := &model{first: 1, entries: batch(rng, 1, 100, 900)}
		for i := 0; i < 100; i += 5 {
			must.OK(t, l.StoreLogs(m.entries[i:i+5]))
		}
		more := batch(rng, 101, 1, 900)
		removals, before := 0, 0
		appended := make(chan error, 1)
		disk.OnOp(func(op sim.DiskOp) error {
			switch {
			case op.Kind == "remove":
				if removals++; removals == 1 {
					go func() { appended <- l.StoreLogs(more) }()
					synctest.Wait() // until the append waits
				}
			case op.Kind == "write" && before == 0:
				before = removals
			}
			return nil
		})
		must.OK(t, l.DeleteRange(1, 60))
		must.OK(t, <-appended)
		m.first, m.entries = 61, append(m.entries[60:], more...)
		m.same(t, l)
		expect.Equal(t, before, 1, "removals before the append")
		expect.That(t, removals > 5, "%d segments were removed, want more than 5", removals)
		must.OK(t, l.Close())
	})
}
