package tree_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// writer applies made-up operations to a tree.
type writer struct {
	g      *Gen
	tree   *tree.Tree
	zxid   int64
	reuses bool // requests share memory
	events []tree.Event
}

// told() returns the events of the newest request as text.
func (w *writer) told() (text string) {
	for _, e := range w.events {
		text += fmt.Sprintln(e.Type, e.Path)
	}
	return text
}

func (w *writer) step() {
	c := &tree.Change{Zxid: w.zxid + 1, Time: w.zxid, Session: int64(1 + w.g.IntN(4)), IDs: w.g.Identities()}
	if w.g.IntN(100) == 0 {
		w.tree.CloseSession(c, c.Session)
		w.zxid++
		return
	}
	op, body := w.g.Op()
	_, _, changed := w.tree.Apply(c, op, body, nil)
	if w.reuses {
		jute.Overwrite(body)
	}
	if w.events = c.Events; changed {
		w.zxid++
	}
}

func grown(seed uint64, steps int) *writer {
	w := &writer{g: NewGen(seed), tree: tree.New()}
	for range steps {
		w.step()
	}
	return w
}

// snapshotOf returns the chunks of a snapshot of t, which must not change during the call.
func snapshotOf(t *tree.Tree, n int) (chunks [][]byte) {
	s := t.StartSnapshot()
	defer s.Close()
	for done := false; !done; {
		var b []byte
		b, done = s.Append(nil, n)
		chunks = append(chunks, b)
	}
	return chunks
}

func load(chunks ...[]byte) (*tree.Tree, error) {
	l := tree.NewLoader()
	for _, b := range chunks {
		if err := l.Add(b); err != nil {
			return nil, err
		}
	}
	return l.Finish()
}

func TestSameOperationsGiveTheSameSnapshotBytes(t *testing.T) {
	for seed := range uint64(20) {
		a, b := grown(seed, 500), grown(seed, 500)
		first := bytes.Join(snapshotOf(a.tree, 64), nil)
		must.List(t, first, bytes.Join(snapshotOf(b.tree, 7), nil),
			"seed %d: two trees made the same changes and write different snapshots", seed)
		c := must.Get(load(first))(t)
		must.List(t, first, bytes.Join(snapshotOf(c, 64), nil),
			"seed %d: a restored tree writes another snapshot than it was restored from", seed)
		must.Equal(t, a.tree.Digest(), c.Digest(), "digests or zxids differ: a.tree.Digest()")
		must.Equal(t, a.tree.Zxid(), c.Zxid(), "digests or zxids differ: a.tree.Zxid()")
		must.That(t, a.tree.Digest() != tree.New().Digest(),
			"digests or zxids differ: want a.tree.Digest() != tree.New().Digest()")
	}
}

func TestAnyDifferenceShowsInTheDigest(t *testing.T) {
	base := func() (*tree.Tree, *tree.Change) {
		tr := tree.New()
		tr.Apply(&tree.Change{Zxid: 1, Time: 5, Session: 1}, jute.OpCreate, createBody("/a", "x", 0), nil)
		tr.Apply(&tree.Change{Zxid: 1, Time: 5, Session: 1}, jute.OpCreate, createBody("/z", "x", 0), nil)
		return tr, &tree.Change{Zxid: 2, Time: 6, Session: 1}
	}
	data := func(path, data string) []byte {
		return jute.AppendInt(jute.AppendString(jute.AppendString(nil, path), data), -1)
	}
	acl := func(path string, perms int32) []byte {
		list := []jute.ACL{{Perms: perms | jute.PermAdmin, ID: jute.WorldAnyone[0].ID}}
		return jute.AppendInt(jute.AppendACL(jute.AppendString(nil, path), list), -1)
	}
	setTwice := func(t *tree.Tree, c *tree.Change, op jute.OpCode, body []byte) {
		t.Apply(c, op, body, nil)
		t.Apply(c, op, body, nil)
	}
	seen := map[uint64]string{}
	for name, f := range map[string]func(*tree.Tree, *tree.Change){
		"nothing": func(*tree.Tree, *tree.Change) {},
		"create": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpCreate, createBody("/b", "x", 0),
				nil)
		},
		"other name": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpCreate, createBody("/c", "x", 0),
				nil)
		},
		"other data": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpCreate, createBody("/b", "y", 0),
				nil)
		},
		"longer data": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpCreate, createBody("/b", "x\x00", 0),
				nil)
		},
		"ephemeral": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpCreate, createBody("/b", "x", 1),
				nil)
		},
		"other session": func(t *tree.Tree, c *tree.Change) {
			c.Session = 2
			t.Apply(c, jute.OpCreate, createBody("/b", "x", 1), nil)
		},
		"container": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpCreateContainer, createBody("/b", "x", 4), nil)
		},
		"other time": func(t *tree.Tree, c *tree.Change) {
			c.Time++
			t.Apply(c, jute.OpCreate, createBody("/b", "x", 0), nil)
		},
		"other zxid": func(t *tree.Tree, c *tree.Change) {
			c.Zxid++
			t.Apply(c, jute.OpCreate, createBody("/b", "x", 0), nil)
		},
		"delete":       func(t *tree.Tree, c *tree.Change) { t.Apply(c, jute.OpDelete, pathVersion("/a"), nil) },
		"delete other": func(t *tree.Tree, c *tree.Change) { t.Apply(c, jute.OpDelete, pathVersion("/z"), nil) },
		"delete later": func(t *tree.Tree, c *tree.Change) {
			c.Zxid++
			t.Apply(c, jute.OpDelete, pathVersion("/a"),
				nil)
		},
		"setData": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpSetData, jute.AppendInt(jute.AppendString(jute.AppendString(nil, "/a"), "x"), -1), nil)
		},
		"null": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpSetData, jute.AppendInt(jute.AppendInt(jute.AppendString(nil, "/a"), -1), -1), nil)
		},
		"empty": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpSetData, jute.AppendInt(jute.AppendString(jute.AppendString(nil, "/a"), ""), -1), nil)
		},
		"setACL": func(t *tree.Tree, c *tree.Change) {
			t.Apply(c, jute.OpSetACL, jute.AppendInt(jute.AppendACL(jute.AppendString(nil, "/a"), jute.WorldAnyone),
				-1), nil)
		},
		"setData to other data":       func(t *tree.Tree, c *tree.Change) { t.Apply(c, jute.OpSetData, data("/a", "y"), nil) },
		"setData of another node":     func(t *tree.Tree, c *tree.Change) { t.Apply(c, jute.OpSetData, data("/z", "x"), nil) },
		"setACL to another list":      func(t *tree.Tree, c *tree.Change) { t.Apply(c, jute.OpSetACL, acl("/a", 1), nil) },
		"setACL to another of them":   func(t *tree.Tree, c *tree.Change) { t.Apply(c, jute.OpSetACL, acl("/a", 2), nil) },
		"setACL of another node":      func(t *tree.Tree, c *tree.Change) { t.Apply(c, jute.OpSetACL, acl("/z", 1), nil) },
		"setACL later":                func(t *tree.Tree, c *tree.Change) { c.Zxid++; t.Apply(c, jute.OpSetACL, acl("/a", 1), nil) },
		"setACL twice":                func(t *tree.Tree, c *tree.Change) { setTwice(t, c, jute.OpSetACL, acl("/a", 1)) },
		"setData twice":               func(t *tree.Tree, c *tree.Change) { setTwice(t, c, jute.OpSetData, data("/a", "y")) },
		"counter":                     func(t *tree.Tree, c *tree.Change) { t.SetCounter("/a", 5) },
		"another counter":             func(t *tree.Tree, c *tree.Change) { t.SetCounter("/a", 6) },
		"the counter of another node": func(t *tree.Tree, c *tree.Change) { t.SetCounter("/z", 5) },
		"config":                      func(t *tree.Tree, c *tree.Change) { t.SetConfig(c, []byte("x")) },
		"another config":              func(t *tree.Tree, c *tree.Change) { t.SetConfig(c, []byte("y")) },
		"config later":                func(t *tree.Tree, c *tree.Change) { c.Zxid++; t.SetConfig(c, []byte("x")) },
	} {
		tr, c := base()
		f(tr, c)
		other, ok := seen[tr.Digest()]
		expect.That(t, !ok, "%s and %s have the same digest", name, other)
		seen[tr.Digest()] = name
	}
}

// TestSnapshotBesideWritersAndReaders takes snapshots as a server does: chunks and reads under a read lock,
// changes under the write lock. If these locks do not suffice, the race detector reports a race.
func TestSnapshotBesideWritersAndReaders(t *testing.T) {
	w := grown(programSeed(t), 300)
	for i := range 2000 { // a directory large enough for an index and a kept listing
		w.zxid++
		w.tree.Apply(&tree.Change{Zxid: w.zxid, Session: 9}, jute.OpCreate, createBody(fmt.Sprintf("/big%d", i),
			"x", 0), nil)
	}
	var mu sync.RWMutex
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			g := NewGen(1)
			var b []byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				mu.RLock()
				b, _ = w.tree.AppendData(b[:0], g.Identities(), g.Path())
				b, _ = w.tree.AppendChildrenStat(b[:0], nil, "/")
				b, _ = w.tree.AppendACL(b[:0], g.Identities(), g.Path())
				mu.RUnlock()
			}
		})
	}
	writers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			mu.Lock()
			w.step()
			if i%3 == 0 { // deletes that are scattered over the large directory
				w.zxid++
				w.tree.Apply(&tree.Change{Zxid: w.zxid}, jute.OpDelete, pathVersion(fmt.Sprintf("/big%d", i*7%2000)), nil)
			}
			mu.Unlock()
		}
	})
	for range 20 {
		mu.Lock()
		want := Dump(w.tree)
		s := w.tree.StartSnapshot()
		mu.Unlock()
		l := tree.NewLoader()
		for done := false; !done; {
			var b []byte
			mu.RLock()
			b, done = s.Append(nil, 32)
			mu.RUnlock()
			must.OK(t, l.Add(b))
		}
		mu.Lock()
		s.Close()
		mu.Unlock()
		got := must.Get(l.Finish())(t)
		must.Equal(t, Dump(got), want, "the snapshot")
		must.OK(t, got.Verify())
	}
	close(stop)
	readers.Wait()
	writers.Wait()
}

// A multi that fails takes nodes out and puts them back. A snapshot at that time must neither miss nor repeat
// nodes, even if they change places.
func TestSnapshotBesideFailingMultis(t *testing.T) {
	tr := tree.New()
	zxid := int64(0)
	for i := range 100 {
		zxid++
		tr.Apply(&tree.Change{Zxid: zxid}, jute.OpCreate, createBody(fmt.Sprintf("/n%02d", i), "x", 0), nil)
	}
	want := Dump(tr)
	for _, fails := range []bool{true, false} {
		s := tr.StartSnapshot()
		l := tree.NewLoader()
		for i, done := 0, false; !done; i++ {
			var b []byte
			b, done = s.Append(nil, 3)
			must.OK(t, l.Add(b))
			var m []byte
			for k := range 5 {
				p := fmt.Sprintf("/n%02d", (i*37+k*11)%100)
				m = append(jute.AppendMultiHeader(m, jute.OpDelete, false, -1), pathVersion(p)...)
				m = append(jute.AppendMultiHeader(m, jute.OpCreate, false, -1), createBody(p, "new", 0)...)
			}
			if fails {
				m = append(jute.AppendMultiHeader(m, jute.OpDelete, false, -1), pathVersion("/missing")...)
			}
			m = jute.AppendMultiHeader(m, jute.OpError, true, -1)
			if _, _, changed := tr.Apply(&tree.Change{Zxid: zxid + 1}, jute.OpMulti, m, nil); changed == fails {
				t.Fatal(changed)
			} else if changed {
				zxid++
			}
		}
		s.Close()
		got := must.Get(l.Finish())(t)
		must.Equal(t, Dump(got), want, "the snapshot")
	}
}

func TestSnapshotsAreOneAtATimeAndMayBeLeft(t *testing.T) {
	w := grown(5, 300)
	s := w.tree.StartSnapshot()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a second snapshot was begun")
			}
		}()
		w.tree.StartSnapshot()
	}()
	s.Append(nil, 3)
	s.Close()
	s.Close()
	for range 100 {
		w.step()
	}
	want := Dump(w.tree)
	for range 2 {
		got, err := load(snapshotOf(w.tree, 1)...)
		must.OK(t, err, "the snapshot after an unfinished snapshot is wrong %v", err)
		must.Equal(t, Dump(got), want,
			"the snapshot after an unfinished snapshot is wrong %v: Dump(got)", err)
	}
}

// A chunk of large nodes ends early: the time under the read lock is limited by bytes as well as by nodes.
func TestChunksAreBoundedInBytes(t *testing.T) {
	tr := tree.New()
	for i := range 20 {
		tr.Apply(&tree.Change{Zxid: int64(i + 1)}, jute.OpCreate, createBody(fmt.Sprint("/", i),
			strings.Repeat("x", 100<<10), 0), nil)
	}
	for _, b := range snapshotOf(tr, 1000) {
		expect.That(t, len(b) <= 500<<10, "a chunk of %d bytes", len(b))
	}
}

// A snapshot with a byte cut off or changed gives an error or a sound tree.
func TestLoaderRefusesWhatIsNoSnapshot(t *testing.T) {
	full := bytes.Join(snapshotOf(grown(3, 300).tree, 64), nil)
	for i := range full {
		must.Fails(t, expect.Err(load(full[:i])), "cut off after %d of %d bytes: accepted", i, len(full))
	}
	sound := 0
	for i := range full {
		b := slices.Clone(full)
		b[i] ^= 1 << (i % 8)
		if got, err := load(b); err == nil {
			sound++
			must.OK(t, got.Verify(), "byte %d", i)
		}
	}
	t.Logf("%d of %d changed bytes still give a sound tree", sound, len(full))
}

func TestLoaderNamesWhatIsWrong(t *testing.T) {
	header := func(zxid, nodes int64) []byte {
		return jute.AppendLong(jute.AppendLong(jute.AppendLong([]byte{'H', 1}, zxid), 0), nodes)
	}
	acl := jute.AppendACL([]byte{'A'}, jute.WorldAnyone)
	node := func(path string, acl int32, kind byte, owner int64, zxids ...int64) []byte {
		b := jute.AppendString([]byte{'N', 0, 0, 0, 0}, path)
		b = jute.AppendInt(jute.AppendInt(b, -1), acl)
		for _, z := range append(zxids, 0, 0, 0)[:3] {
			b = jute.AppendLong(b, z)
		}
		b = jute.AppendLong(jute.AppendLong(jute.AppendLong(b, 0), 0), owner)
		return append(jute.AppendInt(jute.AppendInt(jute.AppendInt(b, 0), 0), 0), kind)
	}
	end := func(n int64) []byte { return jute.AppendLong([]byte{'E'}, n) }
	root := node("/", 0, 0, 0)
	zk := slices.Concat(node("/zookeeper", 0, 0, 0), node("/zookeeper/config", 0, 0, 0),
		node("/zookeeper/quota", 0, 0, 0))
	must.Get(load(header(9, 4), acl, root, zk, end(4)))(t)
	for want, chunks := range map[string][][]byte{
		"no header":     {acl},
		"second header": {header(1, 1), header(1, 1)},
		"version 2":     {append([]byte{'H', 2}, header(1, 1)[2:]...)},
		"zxid -1":       {header(-1, 1)},
		"unknown kind":  {header(1, 1), {'X'}},
		"cut short":     {header(1, 1), acl, root[:len(root)-1]},
		"impossible length": {header(1, 1), acl, binary.BigEndian.AppendUint32([]byte{'N', 0, 0, 0, 0},
			0xfffffff0)},
		"no ACL":                   {header(1, 1), jute.AppendACL([]byte{'A'}, nil)},
		"ACL occurs twice":         {header(1, 1), acl, acl},
		"ACL 1 is not known":       {header(1, 1), acl, node("/", 1, 0, 0)},
		"ACL 4294967295":           {header(1, 1), acl, node("/", -1, 0, 0)},
		"shares more":              {header(1, 1), acl, append([]byte{'N', 0, 0, 0, 1}, root[5:]...)},
		"its path shares more":     {header(1, 1), acl, append([]byte{'N', 255, 255, 255, 255}, root[5:]...)},
		"two roots":                {header(1, 1), acl, root, root},
		"root is not a plain node": {header(1, 1), acl, node("/", 0, 1, 5)},
		"no root":                  {header(1, 1), acl, node("/a", 0, 0, 0)},
		"illegal path":             {header(1, 1), acl, root, node("/a//b", 0, 0, 0)},
		"path is too long": {header(1, 1), acl, root, node("/"+strings.Repeat("x", 4*bounds.MaxPath), 0, 0,
			0)},
		"no parent":                     {header(1, 1), acl, root, node("/a/b", 0, 0, 0)},
		"path occurs twice":             {header(1, 1), acl, root, node("/a", 0, 0, 0), node("/a", 0, 0, 0)},
		"parent is ephemeral":           {header(1, 1), acl, root, node("/a", 0, 1, 7), node("/a/b", 0, 0, 0)},
		"zxids 3, 2, 3":                 {header(9, 1), acl, node("/", 0, 0, 0, 3, 2, 3)},
		"zxids 3, 3, 2":                 {header(9, 1), acl, node("/", 0, 0, 0, 3, 3, 2)},
		"zxids 3, 10, 3":                {header(9, 1), acl, node("/", 0, 0, 0, 3, 10, 3)},
		"zxids 3, 3, 10":                {header(9, 1), acl, node("/", 0, 0, 0, 3, 3, 10)},
		"zxids -1":                      {header(9, 1), acl, node("/", 0, 0, 0, -1)},
		"owner 0x1 of a node":           {header(9, 1), acl, node("/", 0, 0, 1)},
		"owner 0x0 of a node":           {header(9, 1), acl, node("/", 0, 1, 0)},
		"owner 0x7 of a node":           {header(9, 1), acl, node("/", 0, 2, 7)},
		"owner 0x10000000000 of":        {header(9, 1), acl, node("/", 0, 3, jute.MaxTTL+1)},
		"owner 0x0 of a node of kind 3": {header(9, 1), acl, node("/", 0, 3, 0)},
		"owner 0x5 of a node of kind 0": {header(9, 1), acl, node("/", 0, 0, 5)},
		"kind 4":                        {header(9, 1), acl, node("/", 0, 4, 0)},
		"no end":                        {header(9, 4), acl, root, zk},
		"ends with 3 nodes":             {header(9, 4), acl, root, zk, end(3)},
		"4 nodes, but the header says":  {header(9, 5), acl, root, zk, end(5)},
		"follow the end":                {header(9, 4), acl, root, zk, end(4), acl},
		"no /zookeeper/quota":           {header(9, 1), acl, root, end(1)},
		"no /:":                         nil,
	} {
		if want == "no /:" {
			chunks, want = [][]byte{header(9, 0), end(0)}, "no /"
		}
		_, err := load(chunks...)
		expect.That(t, err != nil && strings.Contains(err.Error(), want), "want %q, got %v", want, err)
	}
}

// A chunk keeps writers waiting only for a short time, however large the tree is and whatever writers do.
func TestAChunkOfASnapshotIsShort(t *testing.T) {
	w := grown(5, 20_000)
	w.tree.SetLimits(0, 0, 0, 0)
	large := strings.Repeat("x", 1<<20)
	for i := range 40 {
		c := &tree.Change{Zxid: w.zxid + 1, IDs: []jute.ID{{Scheme: "super"}}}
		body := jute.AppendString(jute.AppendString(nil, fmt.Sprintf("/large-%d", i)), large)
		body = jute.AppendInt(jute.AppendACL(body, jute.WorldAnyone), 0)
		if _, code, _ := w.tree.Apply(c, jute.OpCreate, body, nil); code == jute.OK {
			w.zxid++
		}
	}
	const most = 64
	s := w.tree.StartSnapshot()
	defer s.Close()
	chunks, longest := 0, 0
	for done := false; !done; chunks++ {
		nodes, gone := s.Marked()
		var b []byte
		b, done = s.Append(nil, most)
		marked, left := s.Marked()
		n := marked - nodes + gone - left
		must.That(t, n <= most, "%d nodes in one chunk", n)
		longest = max(longest, len(b))
		must.That(t, len(b) <= tree.MaxChunk+len(large)+bounds.MaxPath, "a chunk of %d bytes", len(b))
		for range 20 {
			w.step()
		}
	}
	t.Logf("%d chunks, the longest of %d bytes", chunks, longest)
	expect.That(t, chunks >= w.tree.Count()/2/most,
		"the tree was not large enough to tell: want chunks >= w.tree.Count()/2/most")
	expect.That(t, longest >= len(large),
		"the tree was not large enough to tell: want longest >= len(large)")
}

// If a path in a snapshot begins like the path before it, the snapshot does not repeat that beginning.
func TestSnapshotWritesSharedPathsOnce(t *testing.T) {
	tr, prefix := tree.New(), "/"+strings.Repeat("x", 500)
	for i := range int64(1000) {
		c := &tree.Change{Zxid: i + 1}
		_, code, _ := tr.Apply(c, jute.OpCreate, createBody(fmt.Sprintf("%s-%04d", prefix, i), "", 0), nil)
		must.Equal(t, code, jute.OK)
	}
	b := bytes.Join(snapshotOf(tr, 64), nil)
	expect.That(t, len(b) < 1000*len(prefix)/2, "%d bytes for 1000 paths of %d", len(b), len(prefix))
	must.Equal(t, must.Get(load(b))(t).Digest(), tr.Digest())
}
