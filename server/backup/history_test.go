package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

// written is an answer to a writer. It says that the node `path` has the version `version` from the zxid
// `zxid` on.
type written struct {
	path    string
	zxid    int64
	version int32
}

// versionsAt returns the version that each node had at a zxid, according to the answers to the writers.
func versionsAt(history []written, zxid int64) map[string]int32 {
	versions := map[string]int32{}
	for _, w := range history {
		if v, ok := versions[w.path]; w.zxid <= zxid && (!ok || w.version > v) {
			versions[w.path] = w.version
		}
	}
	return versions
}

// wrong() returns an error if a backup differs from the history at its zxid.
func wrong(history []written, zxid int64, version func(path string) (int32, bool)) error {
	want := versionsAt(history, zxid)
	for _, w := range history {
		v, there := version(w.path)
		if expected, ok := want[w.path]; there != ok || v != expected {
			return fmt.Errorf("zxid 0x%x: %s has version %d (%v), %d (%v) is expected", zxid, w.path, v, there,
				expected, ok)
		}
	}
	return nil
}

// Backups in both formats, taken while sessions write, agree with the answers to the writers.
func TestBackupsUnderLoadHoldTheirZxid(t *testing.T) {
	i := serve(t, 500)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	var history []written
	var wg sync.WaitGroup
	for k := range 8 {
		c := must.Get(zk.Dial(t.Context(), i.ClientAddr(), zk.Options{}))(t)
		t.Cleanup(func() { c.Close(context.Background()) })
		wg.Go(func() { write(ctx, c, k, &mu, &history) })
	}
	type taken struct {
		zxid         int64
		ours, theirs []byte
	}
	var all []taken
	for round := range 20 {
		written := func() int { mu.Lock(); defer mu.Unlock(); return len(history) }
		for end := time.Now().Add(30 * time.Second); written() < 5*round; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("only %d writes", written())
			}
		}
		var b taken
		b.ours, b.zxid = take(t, i, "?format=zlockd")
		all = append(all, b)
		b = taken{}
		b.theirs, b.zxid = take(t, i, "")
		all = append(all, b)
	}
	stop()
	wg.Wait()
	for _, b := range all {
		var version func(string) (int32, bool)
		if b.ours != nil {
			s, _ := must.Get2(state.ReadSnapshot(bytes.NewReader(b.ours)))(t)
			version = func(path string) (int32, bool) { n, ok := s.Tree().Get(path); return n.Version, ok }
		} else {
			r := must.Get(zkfiles.NewSnapshotReader(bytes.NewReader(b.theirs)))(t)
			tree := must.Get(zkfiles.Load(r, b.zxid))(t)
			version = func(path string) (int32, bool) {
				n, ok := tree.Nodes.Get(path)
				return n.Version, ok
			}
		}
		must.OK(t, wrong(history, b.zxid, version))
		// Check that wrong() reports an error for a backup that lacks one change.
		for _, w := range history {
			expect.That(t, w.zxid != b.zxid || wrong(history, b.zxid-1, version) != nil,
				"zxid 0x%x: a backup of the change before would do as well", b.zxid)
		}
	}
}

func take(t *testing.T, i *server.Instance, query string) ([]byte, int64) {
	t.Helper()
	w := ask(handler(i), "GET", query, "digest super:secret")
	var zxid int64
	must.Get(fmt.Sscanf(w.Header().Get("last_zxid"), "0x%x", &zxid))(t)
	return w.Body.Bytes(), zxid
}

// write() creates nodes, changes them, and records the answers. It returns at the first write that fails. No
// other session writes to these nodes, so at most the last write to a node is not recorded.
func write(ctx context.Context, c *zk.Conn, k int, mu *sync.Mutex, history *[]written) {
	for n := 0; ctx.Err() == nil; n++ {
		path := fmt.Sprintf("/w%d-%d", k, n/20)
		var st zk.Stat
		if n%20 == 0 {
			made, err := c.Create(context.Background(), zk.Create{Path: path})
			if err != nil {
				return
			}
			st = made.Stat
		} else {
			var err error
			if st, err = c.Set(context.Background(), path, []byte("x"), -1); err != nil {
				return
			}
		}
		mu.Lock()
		*history = append(*history, written{path, st.Mzxid, st.Version})
		mu.Unlock()
	}
}
