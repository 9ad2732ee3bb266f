package raftfsm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
)

var flips = flag.Int("flips", 40, "damaged data directories to start from")

// fillDir makes a data directory with a snapshot and a log behind it, and
// returns what its server held at the end.
func fillDir(t *testing.T, dir string) (zxid int64, digest uint64) {
	n, w := start(t, Options{DataDir: dir})
	eventually(t, "serving", w.serving.Load)
	s := openSession(t, n, 60000).Session
	for i := range 120 {
		o, err := propose(n, Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody(fmt.Sprintf("/n%03d", i), 0)})
		if err != nil || o.Code != jute.OK {
			t.Fatalf("create: %+v %v", o, err)
		}
		if i == 60 {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop(t, n)
	n.View(func(s *State) { zxid, digest = s.Zxid(), s.Digest() })
	return zxid, digest
}

// TestR10DamagedDiskIsNoticed flips one byte anywhere in the log or the newest
// snapshot. The server must hold exactly what it held before, or refuse with
// a reason.
func TestR10DamagedDiskIsNoticed(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	good := t.TempDir()
	zxid, digest := fillDir(t, good)
	refused := 0
	for i := range *flips {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		what := flipByte(t, rng, dir)
		died := make(chan error, 1)
		n, w, err := tryStart(t, dir, died)
		if err != nil {
			refused++
			continue
		}
		var why error
		eventually(t, what+": serves or stops", func() bool {
			select {
			case why = <-died:
			default:
			}
			return why != nil || w.serving.Load()
		})
		if why == nil {
			n.View(func(s *State) {
				if s.Zxid() != zxid || s.Digest() != digest {
					t.Errorf("flip %d, %s: serves zxid %d digest %x, wrote %d %x", i, what, s.Zxid(), s.Digest(), zxid, digest)
				}
			})
		} else {
			refused++
		}
		closeQuietly(n)
	}
	t.Logf("%d of %d damaged directories refused", refused, *flips)
}

func tryStart(t *testing.T, dir string, died chan error) (n *Node, w *watcher, err error) {
	defer func() { // raft and bolt report some damage by panicking
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	w = new(watcher)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n, err = Start(ctx, Options{DataDir: dir, Observer: w, Logger: quietLog(t, 1), Fatal: func(err error) {
		select {
		case died <- err:
		default:
		}
	}})
	return n, w, err
}

func closeQuietly(n *Node) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	n.Close(ctx)
}

// flipByte damages one byte that was written, in the log or the snapshot.
func flipByte(t *testing.T, rng *rand.Rand, dir string) string {
	var files []string
	filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if strings.HasSuffix(p, ".log") || strings.HasSuffix(p, ".snap") {
			files = append(files, p)
		}
		return err
	})
	for {
		file := files[rng.IntN(len(files))]
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := rng.IntN(len(b))
		if b[at] == 0 && at%16 != 0 { // mostly preallocated space; look for content
			continue
		}
		b[at] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s at %d", filepath.Base(file), at)
	}
}

// brokenLog is a log store whose writes fail or hang on demand.
type brokenLog struct {
	raft.LogStore
	fail chan error // StoreLogs takes its fate from here; nil channel: works
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
	g := newGuard(quietLog(t, 1), func(err error) { died <- err })
	broken := &brokenLog{raft.NewInmemStore(), make(chan error, 2)}
	s := guardedLog{broken, g}
	broken.fail <- errors.New("no space left on device")
	if err := s.StoreLog(&raft.Log{Index: 1}); err == nil {
		t.Fatal("the error was swallowed")
	}
	if err := <-died; !strings.Contains(err.Error(), "no space left") {
		t.Errorf("reason is %v", err)
	}
	broken.fail <- nil
	if err := s.StoreLog(&raft.Log{Index: 1}); err == nil {
		t.Error("a store that failed once was used again")
	}
}

func TestR2HangingStorageEndsTheServer(t *testing.T) {
	died := make(chan error, 1)
	g := newGuard(quietLog(t, 1), func(err error) { died <- err })
	g.deadline = 50 * time.Millisecond
	go g.watch(t.Context())
	broken := &brokenLog{raft.NewInmemStore(), make(chan error)}
	go guardedLog{broken, g}.StoreLog(&raft.Log{Index: 1})
	select {
	case err := <-died:
		if !strings.Contains(err.Error(), "hangs") {
			t.Errorf("reason is %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a hanging store went unnoticed")
	}
	broken.fail <- nil
}

func TestF5DamagedSnapshotIsRefusedWhole(t *testing.T) {
	f := newFSM(1, "c", func(error) {})
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	store, err := openSnapshotStore(t.TempDir(), 2)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := store.Create(1, 5, 2, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Persist(sink); err != nil {
		t.Fatal(err)
	}
	snap.Release()
	path := store.path(sink.ID())
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range good {
		bad := append([]byte(nil), good...)
		bad[at] ^= 0x10
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if readBack(store) == nil {
			t.Errorf("a flip at %d of %d went unnoticed", at, len(good))
		}
		if err := os.WriteFile(path, good[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		if readBack(store) == nil {
			t.Errorf("a cut at %d of %d went unnoticed", at, len(good))
		}
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
	_, _, err = readSnapshot(r)
	return err
}

func TestTwoProcessesCannotShareADataDirectory(t *testing.T) {
	dir := t.TempDir()
	start(t, Options{DataDir: dir})
	_, err := Start(context.Background(), Options{DataDir: dir, Logger: quietLog(t, 1)})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("second start: %v", err)
	}
}

func TestDataDirectoryBelongsToOneServer(t *testing.T) {
	dir := t.TempDir()
	n, _ := start(t, Options{DataDir: dir, ID: 1})
	stop(t, n)
	_, err := Start(context.Background(), Options{DataDir: dir, ID: 2, Logger: quietLog(t, 2)})
	if err == nil || !strings.Contains(err.Error(), "belongs to server 1") {
		t.Errorf("start under another id: %v", err)
	}
}

func raftConfiguration() raft.Configuration { return raft.Configuration{} }
