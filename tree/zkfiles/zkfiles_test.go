package zkfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

var (
	world    = jute.WorldAnyone
	parentOf = bounds.ParentPath // for functions with a variable named tree
)

// sample() returns a log with each kind of transaction.
func sample() []*Txn {
	acl := []jute.ACL{{Perms: 5, ID: jute.ID{Scheme: "digest", ID: "a:b"}},
		{Perms: 1, ID: jute.ID{Scheme: "ip", ID: "10.0.0.0/8"}}}
	ops := [][]Op{
		{{Type: OpCreateSession, Timeout: 4000}},
		{{Type: jute.OpCreate, Path: "/a", Data: []byte("x"), ACL: world, Cversion: 1}},
		{{Type: jute.OpCreate2, Path: "/a/e", Data: nil, ACL: acl, Ephemeral: true, Cversion: 1}},
		{{Type: jute.OpCreateTTL, Path: "/t", Data: []byte{}, ACL: world, Cversion: 2, TTL: 5000}},
		{{Type: jute.OpCreateContainer, Path: "/c", Data: []byte{}, ACL: world, Cversion: 3}},
		{{Type: jute.OpSetData, Path: "/a", Data: []byte("yy"), Version: 1}},
		{{Type: jute.OpSetACL, Path: "/a", ACL: acl, Version: 1}},
		{{Type: jute.OpError, Err: -101}},
		{{Type: jute.OpCheck, Path: "/a", Version: 1}, {Type: jute.OpCreate, Path: "/c/1", Data: []byte("q"),
			ACL: world, Cversion: 1}, {Type: jute.OpDelete, Path: "/t"}},
		{{Type: jute.OpError, Err: 0}, {Type: jute.OpError, Err: -110}},
		{{Type: jute.OpDelete, Path: "/c/1"}},
		{{Type: jute.OpDeleteContainer, Path: "/c"}},
		{{Type: jute.OpReconfig, Path: "/zookeeper/config", Data: []byte("m"), Version: -1}},
		{{Type: jute.OpCloseSession, Paths: []string{"/a/e"}}},
	}
	var log []*Txn
	for i, o := range ops {
		x := &Txn{Session: 0x100000000000001, Cxid: int32(i), Zxid: int64(i + 1), Time: int64(1000 + i),
			Type: o[0].Type, Ops: o}
		if i == 8 || i == 9 {
			x.Type = jute.OpMulti
		}
		log = append(log, x)
	}
	return log
}

func encodeLog(log []*Txn, pad int) (b []byte, starts []int) {
	b = AppendLogHeader(nil, 7)
	for _, x := range log {
		starts = append(starts, len(b))
		b = AppendLogEntry(b, x)
	}
	return append(b, make([]byte, pad)...), starts
}

func readLog(b []byte) ([]*Txn, error) {
	r, err := NewLogReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var log []*Txn
	for {
		x, err := r.Next()
		if err == io.EOF {
			return log, nil
		}
		if err != nil {
			return log, err
		}
		log = append(log, x)
	}
}

func TestLogIsReadAsWritten(t *testing.T) {
	for _, pad := range []int{0, 5, 12, 40, 5000} {
		log := sample()
		log[3].Digest = &Digest{Zxid: 4, Version: 2, Sum: 99}
		log[13].Digest = &Digest{Zxid: 14, Version: 2, Sum: 1 << 60}
		b, _ := encodeLog(log, pad)
		got, err := readLog(b)
		must.OK(t, err, "%v", pad)
		expect.That(t, reflect.DeepEqual(got, log), "padded with %d: read %+v", pad, got)
	}
}

// A log that is cut after an entry is whole. A log that is cut at any other byte is torn, even if zeros
// follow.
func TestTornLogIsTold(t *testing.T) {
	b, starts := encodeLog(sample(), 0)
	whole := map[int]int{len(b): len(starts)}
	for i, at := range starts {
		whole[at] = i
	}
	for _, pad := range []int{0, 1000} {
		start := 0 // start of the entry that is cut
		for cut := starts[0]; cut <= len(b); cut++ {
			got, err := readLog(append(bytes.Clone(b[:cut]), make([]byte, pad)...))
			if n, ok := whole[cut]; ok {
				start = cut
				must.That(t, err == nil && len(got) == n,
					"cut at %d, padded with %d: %d entries, %v", cut, pad, len(got), err)
				continue
			}
			// The first bytes of a checksum may be zeros, like the zeros after the last entry.
			if err == nil && len(bytes.Trim(b[start:cut], "\x00")) == 0 {
				continue
			}
			must.Is(t, err, ErrTorn, "cut at %d, padded with %d", cut, pad)
		}
	}
}

// A changed byte in a log is found. It never makes the log end earlier without an error.
func TestFlippedByteInLogIsFound(t *testing.T) {
	b, starts := encodeLog(sample(), 600)
	end := len(b) - 600
	for at := range end {
		if at >= 8 && at < 16 {
			continue // the id of the database may have any value
		}
		for _, x := range []byte{1, 0x80, 0xff, b[at], b[at] ^ 'B'} {
			if x == 0 {
				continue
			}
			bad := bytes.Clone(b)
			bad[at] ^= x
			log, err := readLog(bad)
			must.Fails(t, err, "byte %d changed by %#x: %d entries and no error", at, x, len(log))
			must.That(t, !errors.Is(err, ErrTorn) || at >= starts[len(starts)-1],
				"byte %d changed by %#x is taken for a torn end: %v", at, x, err)
		}
	}
}

// snapshotOf returns the snapshot of a tree.
func snapshotOf(t testing.TB, tree *Tree) []byte {
	t.Helper()
	var b bytes.Buffer
	w := must.Get(NewSnapshotWriter(&b, -1, tree.Sessions, tree.Nodes.ACLs()))(t)
	for _, p := range paths(tree) {
		must.OK(t, w.Node(p, node(tree, p)))
	}
	must.OK(t, w.Close(tree.Zxid))
	return b.Bytes()
}

// paths() returns all paths, sorted: parents come before their children.
func paths(t *Tree) (list []string) {
	t.Nodes.Walk(func(path string, _ tree.Info) bool { list = append(list, path); return true })
	slices.Sort(list)
	return list
}

// node() returns the node at a path. It returns nil if there is no such node.
func node(t *Tree, path string) *tree.Info {
	n, there := t.Nodes.Get(path)
	if !there {
		return nil
	}
	return &n
}

func load(b []byte, zxid int64) (*Tree, error) {
	r, err := NewSnapshotReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return Load(r, zxid)
}

// same() returns an error if two trees differ.
func same(a, b *Tree) error {
	if !reflect.DeepEqual(a.Sessions, b.Sessions) || a.Zxid != b.Zxid || a.Nodes.Count() != b.Nodes.Count() ||
		a.sum != b.sum {
		return fmt.Errorf("zxid %d and %d, %d and %d nodes, digests %x and %x", a.Zxid, b.Zxid, a.Nodes.Count(),
			b.Nodes.Count(), a.sum, b.sum)
	}
	for _, p := range paths(a) {
		if x, y := node(a, p), node(b, p); !reflect.DeepEqual(x, y) {
			return fmt.Errorf("%s: %+v and %+v", p, x, y)
		}
	}
	return nil
}

func TestSnapshotIsReadAsWritten(t *testing.T) {
	tree := NewTree()
	log := sample()
	for i := -1; i < len(log); i++ {
		if i >= 0 {
			must.OK(t, tree.Apply(log[i]))
		}
		got, err := load(snapshotOf(t, tree), tree.Zxid)
		if err == nil {
			err = same(tree, got)
		}
		must.OK(t, err, "after %d transactions", i+1)
		expect.That(t, got.Whole(), "after %d transactions: not whole", i+1)
	}
}

func TestEveryByteOfSnapshotCounts(t *testing.T) {
	tree := NewTree()
	for _, x := range sample()[:8] {
		tree.Apply(x)
	}
	b := snapshotOf(t, tree)
	for at := range b {
		bad := bytes.Clone(b)
		bad[at] ^= 1 << (at % 8)
		must.Fails(t, expect.Err(load(bad, tree.Zxid)), "byte %d of %d changed and no error", at, len(b))
		_, err := load(b[:at], tree.Zxid)
		// A snapshot of an older release ends after its first seal.
		must.That(t, err != nil || bytes.HasSuffix(b[:at], []byte("\x00\x00\x00\x01/")),
			"cut at byte %d of %d and no error", at, len(b))
		must.That(t, err == nil || errors.Is(err, ErrTorn), "cut at byte %d of %d: %v", at, len(b), err)
	}
}

// TestFuzzySnapshot takes a snapshot as ZooKeeper does: node by node while transactions are applied. The
// snapshot and the log from its zxid on give the right tree.
func TestFuzzySnapshot(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tree := NewTree()
		gen := &generator{rng: rng, tree: tree}
		var log []*Txn
		step := func() {
			x := gen.next()
			log = append(log, x)
			must.OK(t, tree.Apply(x))
		}
		for range 60 {
			step()
		}
		fuzzy := emptyTree()
		fuzzy.Zxid = tree.Zxid
		var walk func(path string)
		walk = func(path string) {
			n := node(tree, path)
			if n == nil {
				return
			}
			var children []string
			for _, p := range paths(tree) {
				if p != "/" && parentOf(p) == path {
					children = append(children, p)
				}
			}
			must.OK(t, fuzzy.put(path, n))
			for range rng.IntN(3) {
				step()
			}
			for _, c := range children {
				walk(c)
			}
		}
		for id, timeout := range tree.Sessions {
			fuzzy.Sessions[id] = timeout
		}
		walk("/")
		fuzzy.expected = &Digest{Zxid: tree.Zxid, Version: 2, Sum: tree.sum}
		fuzzy.exact = tree.Zxid == fuzzy.Zxid
		for range 20 {
			step()
			log[len(log)-1].Digest = &Digest{Zxid: tree.Zxid, Version: 2, Sum: tree.sum}
		}
		for _, x := range log {
			must.OK(t, fuzzy.Apply(x), "seed %d", seed)
		}
		must.OK(t, same(tree, fuzzy), "seed %d", seed)
	}
}

// A snapshot may hold a node and its child, although the log after it deletes the node and creates it again.
// The child must then belong to the new node, with each kind of create.
func TestFuzzySnapshotOfANodeThatIsMadeAgain(t *testing.T) {
	for _, kind := range []jute.OpCode{jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL} {
		tree, fuzzy := NewTree(), NewTree()
		var log []*Txn
		for _, op := range []Op{
			{Type: kind, Path: "/a", ACL: world, TTL: 1, Cversion: 1},
			{Type: jute.OpDelete, Path: "/a"},
			{Type: kind, Path: "/a", ACL: world, TTL: 1, Cversion: 2},
			{Type: kind, Path: "/a/b", ACL: world, TTL: 1, Cversion: 1},
		} {
			x := &Txn{Zxid: tree.Zxid + 1, Time: 1000 + tree.Zxid, Type: op.Type, Ops: []Op{op}}
			must.OK(t, tree.Apply(x))
			x.Digest = &Digest{Zxid: tree.Zxid, Version: 2, Sum: tree.sum}
			log = append(log, x)
		}
		for _, path := range []string{"/a", "/a/b"} {
			must.OK(t, fuzzy.put(path, node(tree, path)))
		}
		fuzzy.expected, fuzzy.exact = log[3].Digest, false
		for _, x := range log {
			must.OK(t, fuzzy.Apply(x), "%v", kind)
		}
		must.OK(t, same(tree, fuzzy), "%v", kind)
	}
}

// generator makes transactions that a ZooKeeper with this tree could log.
type generator struct {
	rng  *rand.Rand
	tree *Tree
}

func (g *generator) next() *Txn {
	x := &Txn{Session: 1<<56 | int64(1+g.rng.IntN(3)), Zxid: g.tree.Zxid + 1, Time: 1000 + g.tree.Zxid}
	all := paths(g.tree)
	path := all[g.rng.IntN(len(all))]
	n := node(g.tree, path)
	_, alive := g.tree.Sessions[x.Session]
	switch k := g.rng.IntN(20); {
	case !alive:
		x.Ops = []Op{{Type: OpCreateSession, Timeout: 1000}}
	case k == 0:
		own := g.tree.Nodes.SomeEphemeralsOf(x.Session, 100)
		x.Ops = []Op{{Type: jute.OpCloseSession, Paths: own}}
	case k < 4 && len(path) > 11 && path[:11] != "/zookeeper/" || k < 6 && len(all) > 30:
		leaf := path != "/" && !(len(path) >= 10 && path[:10] == "/zookeeper")
		for _, p := range all {
			leaf = leaf && (p == "/" || parentOf(p) != path)
		}
		if !leaf {
			x.Ops = []Op{{Type: jute.OpError, Err: -111}}
			break
		}
		x.Ops = []Op{{Type: jute.OpDelete, Path: path}}
	case k < 9:
		x.Ops = []Op{{Type: jute.OpSetData, Path: path, Data: []byte{byte(g.tree.Zxid)}, Version: n.Version + 1}}
	case k < 11:
		x.Ops = []Op{{Type: jute.OpSetACL, Path: path, ACL: []jute.ACL{{Perms: int32(k), ID: world[0].ID}},
			Version: n.Aversion + 1}}
	case n.Kind == tree.EphemeralNode:
		x.Ops = []Op{{Type: jute.OpError, Err: -108}}
	default:
		child := path + "/" + string(rune('a'+g.rng.IntN(6)))
		if path == "/" {
			child = child[1:]
		}
		if node(g.tree, child) != nil {
			x.Ops = []Op{{Type: jute.OpError, Err: -110}}
			break
		}
		op := Op{Type: jute.OpCreate, Path: child, Data: []byte("d"), ACL: world, Cversion: n.Counter + 1,
			Ephemeral: k == 12}
		x.Ops = []Op{op}
		if k > 17 { // created and deleted with one zxid
			x.Type = jute.OpMulti
			x.Ops = append(x.Ops, Op{Type: jute.OpDelete, Path: child})
		}
	}
	if x.Type == 0 {
		x.Type = x.Ops[0].Type
	}
	return x
}

func TestGapIsRefused(t *testing.T) {
	for _, c := range []struct {
		last, next int64
		gap        bool
	}{{4, 5, false}, {4, 6, true}, {4, 1<<32 | 1, false}, {4, 1<<32 | 2, true}, {1<<32 | 9, 3<<32 | 1, false}} {
		tree := NewTree()
		tree.Zxid = c.last
		err := tree.Apply(&Txn{Zxid: c.next, Type: jute.OpError, Ops: []Op{{Type: jute.OpError}}})
		var gap *GapError
		expect.Equal(t, errors.As(err, &gap), c.gap, "%x behind %x: %v", c.next, c.last, err)
	}
}

func TestDigestThatDiffersIsRefused(t *testing.T) {
	tree := NewTree()
	x := sample()[1]
	x.Zxid = 1
	x.Digest = &Digest{Zxid: 1, Version: 2, Sum: 12345}
	expect.Fails(t, tree.Apply(x), "a transaction with another digest was applied")
}

// Password uses the numbers of java.util.Random. For seed 0 every Java has this sequence: -1155484576,
// -723955400, 1033096058, -1690734402.
func TestPassword(t *testing.T) {
	var want []byte
	for _, v := range []int32{-1155484576, -723955400, 1033096058, -1690734402} {
		u := uint32(v)
		want = append(want, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	if got := Password(0xb3415c00); !bytes.Equal(got[:], want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		owner int64
		kind  tree.NodeKind
		ttl   int64
		known bool
	}{{0, tree.PlainNode, 0, true}, {0x100000000000001, tree.EphemeralNode, 0, true},
		{-0x100000000000001 + 1<<56, tree.PlainNode, 0, false},
		{containerOwner, tree.ContainerNode, 0, true},
		{-1<<56 | 5, tree.TTLNode, 5, true}, {-1<<56 | jute.MaxTTL, tree.TTLNode, jute.MaxTTL, true},
		{-0x7000000000000001, tree.EphemeralNode, 0, true}} {
		i := tree.Info{Stat: jute.Stat{EphemeralOwner: 7}}
		known := SetOwner(&i, c.owner)
		expect.Equal(t, known, c.known, "%#x: known", uint64(c.owner))
		expect.Equal(t, i.Kind, c.kind, "%#x: i.Kind", uint64(c.owner))
		expect.Equal(t, i.TTL, c.ttl, "%#x: i.TTL", uint64(c.owner))
		expect.That(t, !known || owner(&i) == c.owner,
			"%#x: %v, %+v: want !known || owner(&i) == c.owner", uint64(c.owner), known, i)
	}
}

// The blocks of TestUnsnap are made by hand from the description of the format. Another test, with a real
// ZooKeeper, has the library's own blocks.
func TestUnsnap(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"\x00", ""},
		{"\x0b\x28hello world", "hello world"},
		{"\x0a\x00a\x22\x01\x00", "aaaaaaaaaa"},         // copies its own output; the distance has two bytes
		{"\x08\x08abc\x05\x03", "abcabcab"[:8]},         // a copy of 5 bytes; one byte of distance
		{"\x08\x08abc\x13\x03\x00\x00\x00", "abcabcab"}, // a copy of 5 bytes; four bytes of distance
		{"\x43\xf0\x3f" + string(bytes.Repeat([]byte("x"), 64)) + "\x08abc", string(bytes.Repeat([]byte("x"), 64)) +
			"abc"},
	} {
		got, err := unsnap(nil, []byte(c.in))
		expect.That(t, err == nil && string(got) == c.want, "%q: %q, %v", c.in, got, err)
	}
	for _, bad := range []string{"", "\x05", "\x05\x10abc", "\x04\x05\x01", "\x04\x00a\x01\x09", "\x02\x08abc",
		"\xff\xff\xff\xff\x7f"} {
		if got, err := unsnap(nil, []byte(bad)); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}
