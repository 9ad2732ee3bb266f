package disk

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/raftfsm/disk/snapshots"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server verifies a snapshot from another server before it publishes the snapshot. The error of a faulty
// snapshot does not say that the server's own disk is damaged. A server does not verify its own snapshots.
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
		dir := t.TempDir()
		store := must.Get(snapshots.Open(vfs.OS, dir, 2))(t)
		dog := newWatchdog(quiet, func(err error) { t.Errorf("%s: the server ends: %v", c.name, err) })
		var damaged error
		watched := watchedSnapshots{store, &Disk{dog: dog}, state.CheckSnapshot, func(err error) { damaged = err }}
		sink := must.Get(watched.Create(1, 5, 2, raft.Configuration{}, 1, nil))(t)
		if c.own {
			Own(sink)
		}
		must.Get(sink.Write(c.content))(t)
		expect.Equal(t, sink.Close() == nil, c.ok, "%s", c.name)
		left, err := filepath.Glob(filepath.Join(dir, "*"))
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
		if part == "raft/stable.db" { // put a directory where a file must be
			err = os.MkdirAll(filepath.Join(path, "x"), 0o700)
		} else { // put a file where a directory must be
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
	fail chan error // if not nil, StoreLogs waits for an error on it, and returns that
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

// A server without a data directory keeps one snapshot, or none if it is the only server.
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

// unreadable is a log whose entries cannot be read.
type unreadable struct{ *raft.InmemStore }

func (unreadable) GetLog(uint64, *raft.Log) error { return syscall.EIO }

// The server ends when its log cannot be read, and raft does not hear of the error, at which it would panic.
func TestLogThatCannotBeReadEndsTheServer(t *testing.T) {
	var why error
	d := &Disk{dog: newWatchdog(quiet, func(err error) { why = err })}
	log := watchedLog{unreadable{raft.NewInmemStore()}, d}
	expect.Fails(t, log.GetLog(1, new(raft.Log)), "before raft runs the caller hears of the error")
	expect.Fails(t, why, "the server ends")
	d.FollowApplied(func() uint64 { return 0 })
	var wg sync.WaitGroup
	returned := false
	wg.Go(func() {
		_ = log.GetLog(1, new(raft.Log))
		returned = true
	})
	wg.Wait()
	expect.That(t, !returned, "raft hears of the error")
}
