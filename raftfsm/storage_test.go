package raftfsm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var flips = flag.Int("flips", 40, "damaged data directories to start from")

// fillDir makes a data directory with a snapshot and a log after it, and returns the zxid and digest of its
// state.
func fillDir(t *testing.T, dir string) (zxid int64, digest uint64) {
	n, w := start(t, Options{DataDir: dir})
	eventually(t, "serving", w.serving.Load)
	s := openSession(t, n, 60000).Session
	for i := range 120 {
		o, err := propose(n, state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
			Body: createBody(fmt.Sprintf("/n%03d", i), 0)})
		must.OK(t, err, "create")
		must.Equal(t, o.Code, jute.OK, "create: o.Code")
		if i == 60 {
			must.OK(t, n.Snapshot())
		}
	}
	stop(t, n)
	n.View(func(s *state.State) { zxid, digest = s.Zxid(), s.Digest() })
	return zxid, digest
}

// If a byte of the log or of the newest snapshot changes, the server has the same state as before, or
// refuses to run and says why.
func TestR10DamagedDiskIsNoticed(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	good := t.TempDir()
	zxid, digest := fillDir(t, good)
	refused := 0
	for i := range *flips {
		dir := filepath.Join(t.TempDir(), "data")
		must.OK(t, os.CopyFS(dir, os.DirFS(good)))
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
			n.View(func(s *state.State) {
				expect.Equal(t, s.Zxid(), zxid, "flip %d, %s: zxid", i, what)
				expect.Equal(t, s.Digest(), digest, "flip %d, %s: digest", i, what)
			})
		} else {
			refused++
		}
		closeQuietly(n)
	}
	t.Logf("%d of %d damaged directories refused", refused, *flips)
}

func tryStart(t *testing.T, dir string, died chan error) (n *Node, w *watcher, err error) {
	defer func() { // raft and bolt panic at some damage
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	w = new(watcher)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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

// flipByte damages a byte that was written, in the log or the snapshot, and says which.
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
		b := must.Get(os.ReadFile(file))(t)
		at := rng.IntN(len(b))
		if b[at] == 0 && at%16 != 0 { // probably free space: try another byte
			continue
		}
		b[at] ^= 1 << rng.IntN(8)
		must.OK(t, os.WriteFile(file, b, 0o600))
		return fmt.Sprintf("%s at %d", filepath.Base(file), at)
	}
}

func TestTwoProcessesCannotShareADataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, Options{DataDir: dir})
	_, err := Start(context.Background(), Options{DataDir: dir, Observer: new(watcher), Logger: quietLog(t, 1)})
	must.Fails(t, err, "a second start")
	expect.Has(t, err.Error(), "in use by another process")
}

func TestDataDirectoryBelongsToOneServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n, _ := start(t, Options{DataDir: dir, ID: 1})
	stop(t, n)
	_, err := Start(context.Background(), Options{DataDir: dir, ID: 2, Observer: new(watcher),
		Logger: quietLog(t, 2)})
	must.Fails(t, err, "a start under another id")
	expect.Has(t, err.Error(), "belongs to server 1")
}

// A start that fails says why, and leaves the data directory free for the next start.
func TestStartsThatFail(t *testing.T) {
	t.Parallel()
	members := map[uint32]string{1: freeAddr(t), 2: freeAddr(t)}
	taken := errors.New("the port is taken")
	for name, c := range map[string]struct {
		ready func(t *testing.T, o *Options)
		want  string
	}{
		"options": {func(_ *testing.T, o *Options) { o.LogStore = "paper" }, "is unknown"},
		"no directory can be made": {func(t *testing.T, o *Options) {
			file := filepath.Join(t.TempDir(), "file")
			must.OK(t, os.WriteFile(file, nil, 0o600))
			o.DataDir = filepath.Join(file, "data")
		}, "file"},
		"what is known of others is damaged": {func(t *testing.T, o *Options) {
			n, _ := start(t, *o)
			stop(t, n)
			must.OK(t, os.WriteFile(filepath.Join(o.DataDir, "seen"), []byte("{"), 0o600))
		}, "the record of other servers' progress cannot be read (its file may be removed)"},
		"a snapshot is damaged": {func(t *testing.T, o *Options) {
			n, w := start(t, *o)
			eventually(t, "serving", w.serving.Load)
			openSession(t, n, 30000)
			must.OK(t, n.Snapshot())
			stop(t, n)
			list := must.Get(filepath.Glob(filepath.Join(o.DataDir, "snapshots", "*.snap")))(t)
			spoil(t, list[len(list)-1])
		}, "snapshot"},
		"the first entry is not stored": {func(_ *testing.T, o *Options) {
			o.DataDir, o.Stores = "", disk.NewMemoryStores(true)
			o.Stores.Log = badLog{raft.NewInmemStore()}
		}, "form cluster"},
		"the port is taken": {func(_ *testing.T, o *Options) {
			o.Peers = members
			o.Listen = func(string) (net.Listener, error) { return nil, taken }
		}, taken.Error()},
		"no other server comes": {func(_ *testing.T, o *Options) { o.Peers = members },
			"did not join a cluster: waiting for server 2 at " + members[2]},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{ID: 1, DataDir: t.TempDir()}
			c.ready(t, &o)
			o.Observer, o.Logger = new(watcher), quietLog(t, 1)
			o.Fatal = func(error) {}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o.Waiting = func(string) { cancel() }
			for range 2 { // the second start fails for the same reason, so the first has released the directory
				n, err := Start(ctx, o)
				must.That(t, n == nil, "the start returns a server with the error %v", err)
				must.Fails(t, err, "it starts")
				expect.Has(t, err.Error(), c.want)
			}
		})
	}
}

// The longest request passes the link from a follower to the leader, and each server's log holds it after a
// restart. A request one byte longer is refused at once.
func TestLongestRequestIsReadBackByEveryServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("some 64 MiB in three servers")
	}
	c := newTrio(t, false, nil)
	here := c.leader()%3 + 1
	s := openSession(t, c.nodes[here], 30_000).Session
	overhead := len(createBody("/big", 0)) - len("data")
	create := func(size int) state.Request {
		body := jute.AppendBuffer(jute.AppendString(nil, "/big"), make([]byte, size-overhead))
		body = jute.AppendInt(jute.AppendACL(body, jute.WorldAnyone), 0)
		return state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: body}
	}
	// The longest body leaves room for the other bytes of a request.
	small := create(1000)
	longest := entries.MaxRequest - (len(small.Append(nil)) - 1000)
	expect.Fails(t, expect.Err(propose(c.nodes[here], create(longest+1))),
		"a request too long for a log entry was taken")
	w := &call{make(chan state.Outcome, 1)}
	eventually(t, "the longest request is taken", func() bool { // the server may stop serving for a moment
		err := c.nodes[here].Propose(create(longest), w)
		must.That(t, err == nil || errors.Is(err, ErrClosed), "%v", err)
		return err == nil
	})
	select {
	case o := <-w.ch:
		must.Equal(t, o.Code, jute.OK, "the longest request")
	case <-time.After(2 * time.Minute): // a busy machine takes long for so many bytes
		t.Fatal("the longest request was never applied")
	}
	stop(t, c.nodes[here])
	c.start(here)
	if t.Failed() {
		return
	}
	eventually(t, "it serves again", c.seen[here].serving.Load)
	expect.That(t, c.has(here, "/big"), "the restarted server has lost it")
	c.sameDigest()
}

// badLog is a log that cannot be written.
type badLog struct{ *raft.InmemStore }

var errBadLog = errors.New("the log cannot be written")

func (badLog) StoreLogs([]*raft.Log) error { return errBadLog }
func (badLog) StoreLog(*raft.Log) error    { return errBadLog }

// A server that finds its snapshot damaged writes another one.
func TestDamagedSnapshotIsReplaced(t *testing.T) {
	t.Parallel()
	var m measured
	n, _ := start(t, Options{DataDir: t.TempDir(), Measures: Measures{SnapshotWriteTime: m.kind("write")}})
	a := newAsker(t, n)
	must.OK(t, n.Snapshot())
	written := m.count("write")
	n.upkeep.Damaged(errors.New("rotten"))
	eventually(t, "another is written", func() bool {
		return m.count("write") > written
	})
	expect.Equal(t, int(a.create("/goes-on")), 0)
}
