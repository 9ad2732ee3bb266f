package tree_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// newMaker returns a Maker with the nodes that every tree has.
func newMaker(t testing.TB) *tree.Maker {
	m := tree.NewMaker()
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"} {
		must.OK(t, m.Set(path, &tree.Info{ACL: jute.WorldAnyone}))
	}
	return m
}

// If a Maker gets a node twice, the second content counts, and the tree's counts agree with it.
func TestMakerChangesNodesThatComeAgain(t *testing.T) {
	own := []jute.ACL{entry(jute.PermAll, "digest", "a:b")}
	first := tree.Info{ACL: own, Data: []byte("long data"), Counter: 5, Stat: jute.Stat{Czxid: 1, Mzxid: 2,
		Pzxid: 3, Ctime: 4, Mtime: 5, Version: 6, Aversion: 7}}
	second := tree.Info{ACL: jute.WorldAnyone, Data: []byte("x"), Counter: 6, Stat: jute.Stat{Czxid: 3, Mzxid: 4,
		Pzxid: 5, Ctime: 6, Mtime: 7, Version: 8, Aversion: 9, Cversion: 12, DataLength: 1}}
	for name, x := range map[string]struct{ before, after tree.Info }{
		"other data": {first, second},
		"null data": {first, tree.Info{ACL: own, Stat: jute.Stat{Czxid: 1, Mzxid: 1, Pzxid: 1},
			Kind: tree.PlainNode}},
		"a time to live": {tree.Info{ACL: own, Kind: tree.TTLNode, TTL: 5}, tree.Info{ACL: own, Kind: tree.TTLNode,
			TTL: 6, Data: []byte{}}},
	} {
		m := newMaker(t)
		must.OK(t, m.Set("/n", &x.before), name)
		must.OK(t, m.Set("/n", &x.after), name)
		tr := must.Get(m.Finish(9, 1<<20))(t)
		must.OK(t, tr.Verify(), name)
		got, _ := tr.Get("/n")
		expect.That(t, reflect.DeepEqual(got, x.after), "%s: %+v, want %+v", name, got, x.after)
	}
}

// Maker removes a node with all below it, children first, and reports each as it was. The root stays.
func TestMakerRemovesNodes(t *testing.T) {
	m := newMaker(t)
	paths := []string{"/a", "/a/b", "/a/b/c", "/a/d", "/ab"}
	for i, path := range paths {
		must.OK(t, m.Set(path, &tree.Info{ACL: jute.WorldAnyone, Data: fmt.Append(nil, i), Counter: int32(i)}))
	}
	var gone []string
	remove := func(path string) {
		m.Remove(path, func(path string, i *tree.Info) { gone = append(gone, fmt.Sprintf("%s %s", path, i.Data)) })
	}
	for _, path := range []string{"/", "/none", "/a/none/x"} {
		remove(path)
		if expect.Equal(t, len(gone), 0, "%s: len(gone)", path) {
			expect.Equal(t, m.Count(), 4+len(paths), "%s: m.Count()", path)
		}
	}
	remove("/a")
	before := func(x, y string) bool { return slices.Index(gone, x) < slices.Index(gone, y) }
	expect.That(t, before("/a/b/c 2", "/a/b 1"),
		"a node is reported before its children: %q: want before(\"/a/b/c 2\", \"/a/b 1\")",
		gone)
	expect.That(t, before("/a/b 1", "/a 0"),
		"a node is reported before its children: %q: want before(\"/a/b 1\", \"/a 0\")", gone)
	expect.That(t, before("/a/d 3", "/a 0"),
		"a node is reported before its children: %q: want before(\"/a/d 3\", \"/a 0\")", gone)
	slices.Sort(gone)
	expect.List(t, gone, []string{"/a 0", "/a/b 1", "/a/b/c 2", "/a/d 3"})
	tr := must.Get(m.Finish(0, 1<<20))(t)
	must.OK(t, tr.Verify())
	_, there := tr.Get("/ab")
	expect.That(t, there, "%d nodes are left: want there", tr.Count())
	expect.Equal(t, tr.Count(), 5, "%d nodes are left: tr.Count()", tr.Count())
}

// Maker counts the nodes and bytes of quotas itself, because counts from another source may be wrong.
func TestMakerCountsQuotasAgain(t *testing.T) {
	const limits, stats = "/zookeeper/quota/q/zookeeper_limits", "/zookeeper/quota/q/zookeeper_stats"
	m := newMaker(t)
	for _, x := range [][2]string{{"/q", "12"}, {"/q/a", "345"}, {"/q/a/b", ""}, {"/zookeeper/quota/q", ""},
		{limits, "countHardLimit=9"}, {stats, "count=100,bytes=100"}, {"/free/zookeeper_stats", "mine"}} {
		if parent := bounds.ParentPath(x[0]); parent == "/free" {
			must.OK(t, m.Set(parent, &tree.Info{ACL: jute.WorldAnyone}))
		}
		must.OK(t, m.Set(x[0], &tree.Info{ACL: jute.WorldAnyone, Data: []byte(x[1])}))
	}
	m.Recount()
	tr := must.Get(m.Finish(0, 1<<20))(t)
	must.OK(t, tr.Verify())
	for path, want := range map[string]string{limits: "countHardLimit=9", stats: "count=3,bytes=5",
		"/free/zookeeper_stats": "mine"} {
		got, _ := tr.Get(path)
		expect.Equal(t, string(got.Data), want, path)
	}
	expect.Equal(t, tr.Digest(), 0, "the digest of a tree that no change has made")
}

// Finish refuses nodes beyond each limit, and accepts them at the limit.
func TestMakerHoldsItsBounds(t *testing.T) {
	key := len(jute.AppendACL(nil, jute.WorldAnyone))
	plain := func(data int) *tree.Info {
		return &tree.Info{ACL: jute.WorldAnyone, Data: make([]byte, data), Stat: jute.Stat{Czxid: 1, Mzxid: 1, Pzxid: 1}}
	}
	ephemeral := &tree.Info{ACL: jute.WorldAnyone, Kind: tree.EphemeralNode, Stat: jute.Stat{EphemeralOwner: 7}}
	longest := "/" + strings.Repeat("a", 4*bounds.MaxPath-1)
	for name, x := range map[string]struct {
		path  string
		info  *tree.Info
		below string
		most  int
		zxid  int64
		wrong string
	}{
		"just fits":                {"/nn", plain(100), "", 100 + 3 + key, 1, ""},
		"too large by a byte":      {"/nn", plain(100), "", 100 + 2 + key, 1, `node "/nn": it takes`},
		"the longest path":         {longest, plain(0), "", 1 << 20, 1, ""},
		"too long a path":          {longest + "a", plain(0), "", 1 << 20, 1, "illegal path"},
		"changed by the last zxid": {"/n", plain(0), "", 1 << 20, 1, ""},
		"changed later":            {"/n", plain(0), "", 1 << 20, 0, `node "/n": zxids`},
		"ephemeral":                {"/n", ephemeral, "", 1 << 20, 1, ""},
		"ephemeral with a child":   {"/n", ephemeral, "/n/c", 1 << 20, 1, `node "/n": it is ephemeral`},
	} {
		m := newMaker(t)
		err := m.Set(x.path, x.info)
		if err == nil && x.below != "" {
			must.OK(t, m.Set(x.below, plain(0)))
		}
		if err == nil {
			var tr *tree.Tree
			tr, err = m.Finish(x.zxid, x.most)
			expect.That(t, (tr == nil) == (x.wrong != ""), "%s: a tree: %v", name, tr != nil)
		}
		if x.wrong == "" {
			expect.OK(t, err, name)
		} else if expect.Fails(t, err, name) {
			expect.Has(t, err.Error(), x.wrong, name)
		}
	}
}

// An ACL without a node is not kept. The ACLs of nodes are listed once each.
func TestMakerKeepsACLsThatNodesHave(t *testing.T) {
	one, two := []jute.ACL{entry(1, "ip", "10.0.0.1")}, []jute.ACL{entry(2, "digest", "a:b")}
	m := newMaker(t)
	must.OK(t, m.Set("/n", &tree.Info{ACL: one}))
	must.OK(t, m.Set("/m", &tree.Info{ACL: one}))
	must.Fails(t, m.Set("/no/parent", &tree.Info{ACL: two}))
	tr := must.Get(m.Finish(0, 1<<20))(t)
	must.OK(t, tr.Verify())
	var got []string
	for _, acl := range tr.ACLs() {
		got = append(got, fmt.Sprint(acl))
	}
	want := []string{fmt.Sprint(one), fmt.Sprint(jute.WorldAnyone)}
	slices.Sort(got)
	slices.Sort(want)
	expect.List(t, got, want)
}
