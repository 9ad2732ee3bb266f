package tree_test

import (
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// All methods that show a node show the same content. A walk meets each node once, parents first.
func TestWaysToLookAtATreeAgree(t *testing.T) {
	for seed := range uint64(5) {
		tr := grown(seed, 1000).tree
		all := map[string]tree.Info{}
		owned := map[int64][]string{}
		tr.Walk(func(at string, i tree.Info) bool {
			_, again := all[at]
			_, below := all[path.Dir(at)]
			must.That(t, !again, "%s comes twice, or before its parent: want !again", at)
			must.That(t, below || at == "/",
				"%s comes twice, or before its parent: want below || at == \"/\"", at)
			all[at] = i
			if i.EphemeralOwner != 0 && i.Kind == tree.EphemeralNode {
				owned[i.EphemeralOwner] = append(owned[i.EphemeralOwner], at)
			}
			return true
		})
		must.Equal(t, len(all), tr.Count(), "nodes met")
		for at, i := range all {
			got, ok := tr.Get(at)
			must.That(t, ok, "%s: %+v, %+v: want ok", at, got, i)
			must.That(t, reflect.DeepEqual(got, i),
				"%s: %+v, %+v: want reflect.DeepEqual(got, i)", at, got, i)
			var below []string
			for other := range all {
				if other != "/" && path.Dir(other) == at {
					below = append(below, path.Base(other))
				}
			}
			children := tr.Children(at)
			slices.Sort(children)
			slices.Sort(below)
			must.List(t, children, below, "%s", at)
			r, ok := tr.Find(at)
			must.That(t, ok, "%s: %+v, %+v: want ok", at, r.Stat(), i)
			must.Equal(t, r.Path(), at, "%s: r.Path()", at)
			must.Equal(t, string(r.PathOnto([]byte("x"))), "x"+at, "%s", at)
			must.Equal(t, r.Stat(), i.Stat, "%s: r.Stat()", at)
			must.Equal(t, r.Kind(), i.Kind, "%s: r.Kind()", at)
			must.Equal(t, r.Counter(), i.Counter, "%s: r.Counter()", at)
			if at != "/" {
				must.Equal(t, r.Name(), path.Base(at),
					"%s in %s: r.Name()", r.Name(), r.Parent().Path())
				must.Equal(t, r.Parent().Path(), path.Dir(at),
					"%s in %s: r.Parent().Path()", r.Name(), r.Parent().Path())
				child, ok := tr.Child(r.Parent(), r.Name())
				must.That(t, ok, "%s is not its parent's child: want ok", at)
				must.Equal(t, child, r, "%s is not its parent's child: child", at)
			}
			session := int64(0)
			if i.Kind == tree.EphemeralNode {
				session = i.EphemeralOwner
			}
			must.Equal(t, r.Session(), session, "session of %s", at)
			data, allowed := r.Data([]jute.ID{{Scheme: "super"}})
			_, code := tr.AppendData(nil, []jute.ID{{Scheme: "super"}}, at)
			must.Equal(t, allowed, code == jute.OK, "%s: allowed", at)
			must.That(t, !allowed || data == string(i.Data),
				"%s: %q, %v: want !allowed || data == string(i.Data)", at, data, code)
			data, allowed = r.Data(nil)
			_, code = tr.AppendData(nil, nil, at)
			must.Equal(t, allowed, code == jute.OK, "%s without identities: allowed", at)
			must.That(t, allowed && data == string(i.Data) || !allowed && data == "",
				"%s without identities: %q, %v",
				at, data, code)
		}
		told := map[int64][]string{}
		for session := range tr.Owners() {
			paths := tr.SomeEphemeralsOf(session, math.MaxInt)
			slices.Sort(paths)
			told[session] = paths
			must.Equal(t, tr.EphemeralsIn(session), len(paths))
			some := tr.SomeEphemeralsOf(session, 2)
			must.Equal(t, len(some), min(2, len(paths)))
			for _, p := range some {
				must.That(t, slices.Contains(paths, p), "%s is not the session's", p)
			}
		}
		for _, paths := range owned {
			slices.Sort(paths)
		}
		must.That(t, maps.EqualFunc(told, owned, slices.Equal), "ephemeral nodes %v, want %v", told, owned)
	}
}

func TestLooksAtWhatIsNotThere(t *testing.T) {
	tr := grown(1, 300).tree
	_, ok := tr.Get("/no/such")
	expect.That(t, !ok, "it is there")
	_, ok = tr.Find("/no/such")
	expect.That(t, !ok, "it is found")
	root, _ := tr.Find("/")
	expect.Equal(t, root.Name(), "")
	_, ok = tr.Child(root, "no")
	expect.That(t, !ok, "it is a child")
	expect.List(t, tr.Children("/no/such"), nil)
	expect.Equal(t, tr.EphemeralsIn(99)+len(tr.SomeEphemeralsOf(99, 5)), 0)
	for _, most := range []int{1, 2, 3} { // the walk ends early
		met := 0
		tr.Walk(func(string, tree.Info) bool { met++; return met < most })
		expect.Equal(t, met, most, "nodes of a walk that ends early")
	}
}

// Take collects the answer to a request for a long list while the tree does not change. List builds the list
// later, and shows it as it was at the call of Take.
func TestLongListsAreTakenAsTheyAre(t *testing.T) {
	tr, c := tree.New(), &tree.Change{Session: 7}
	create := func(at string, flags int32) {
		c.Zxid++
		c.Steps = 0
		_, code, _ := tr.Apply(c, jute.OpCreate, createBody(at, "", flags), nil)
		must.Equal(t, code, jute.OK, "%s", at)
	}
	create("/short", 0)
	create("/long", 0)
	create("/short/a", jute.FlagEphemeral)
	for i := range 4300 {
		create(fmt.Sprintf("/long/%05d-%01000d", i, i), jute.FlagEphemeral)
	}
	type answer func() ([]byte, jute.ErrCode)
	for name, x := range map[string]struct {
		op      jute.OpCode
		session int64
		at      string
		answer  answer
	}{
		"children": {jute.OpGetChildren, 7, "/long", func() ([]byte, jute.ErrCode) {
			return tr.AppendChildren(nil, nil, "/long")
		}},
		"with the stat": {jute.OpGetChildren2, 7, "/long", func() ([]byte, jute.ErrCode) {
			return tr.AppendChildrenStat(nil, nil, "/long")
		}},
		"ephemerals": {jute.OpGetEphemerals, 7, "/long/000", func() ([]byte, jute.ErrCode) {
			return tr.AppendEphemerals(nil, 7, "/long/000"), jute.OK
		}},
	} {
		want, code := x.answer()
		long := tr.Take(x.op, x.session, nil, x.at)
		must.Equal(t, code, jute.OK, "%s: code", name)
		must.That(t, long != nil, "%s: %v, it is not long: want long != nil", name, code)
		create("/long/later-"+strings.ReplaceAll(name, " ", "-"), jute.FlagEphemeral)
		must.That(t, string(long.List())+string(long.Stat) == string(want), "%s: another answer", name)
		now, _ := x.answer()
		must.That(t, name == "ephemerals" || string(now) != string(want), "%s: nothing was made", name)
	}
	// All requests for a list before the next change share one list.
	first, second := tr.Take(jute.OpGetChildren, 7, nil, "/long"), tr.Take(jute.OpGetChildren, 7, nil, "/long")
	must.Equal(t, string(second.List()), string(first.List()))
	third := tr.Take(jute.OpGetChildren2, 8, nil, "/long")
	must.That(t, &third.List()[0] == &second.List()[0], "the list is made again")
	late := tr.Take(jute.OpGetChildren, 7, nil, "/none-yet")
	must.That(t, late == nil, "a node that is not there")
	create("/long/last", 0)
	now := tr.Take(jute.OpGetChildren, 7, nil, "/long")
	must.That(t, len(now.List()) == len(third.List())+4+len("last"), "the list is that before the change")
	fourth := tr.Take(jute.OpGetChildren, 7, nil, "/long")
	must.That(t, &fourth.List()[0] == &now.List()[0], "the list is made again after the change")
	before := tr.Take(jute.OpGetChildren, 7, nil, "/long") // a change comes before the list is built
	create("/long/lastly", 0)
	before.List()
	want, _ := tr.AppendChildren(nil, nil, "/long")
	must.Equal(t, string(tr.Take(jute.OpGetChildren, 7, nil, "/long").List()), string(want))
	for _, op := range []jute.OpCode{jute.OpGetChildren, jute.OpGetChildren2} {
		for _, at := range []string{"/short", "/short/a", "/none"} {
			must.That(t, tr.Take(op, 7, nil, at) == nil, "%s is long", at)
		}
	}
	must.That(t, tr.Take(jute.OpGetEphemerals, 8, nil, "/") == nil, "a session without nodes has many")
	hidden := jute.AppendACL(jute.AppendString(nil, "/long"), []jute.ACL{{Perms: jute.PermWrite,
		ID: jute.ID{Scheme: "world", ID: "anyone"}}})
	c.Zxid, c.Steps = c.Zxid+1, 0
	_, code, _ := tr.Apply(c, jute.OpSetACL, jute.AppendInt(hidden, -1), nil)
	must.Equal(t, code, jute.OK)
	must.That(t, tr.Take(jute.OpGetChildren, 7, nil, "/long") == nil, "a list that may not be read")
}

// Maker builds the same tree from the nodes of a walk through a tree. A Reader of the new tree's snapshot
// returns each of these nodes.
func TestMakerMakesTheSameTree(t *testing.T) {
	for seed := range uint64(5) {
		tr := grown(seed, 1000).tree
		m := tree.NewMaker()
		all := map[string]tree.Info{}
		tr.Walk(func(at string, i tree.Info) bool {
			must.OK(t, m.Set(at, &i))
			all[at] = i
			return true
		})
		got := must.Get(m.Finish(tr.Zxid(), 4<<20))(t)
		must.Equal(t, got.Zxid(), tr.Zxid())
		must.Equal(t, got.Count(), tr.Count())
		must.OK(t, got.Verify())
		for at, want := range all {
			i, ok := got.Get(at)
			must.That(t, ok, "%s: %+v, want %+v: want ok", at, i, want)
			must.That(t, reflect.DeepEqual(i, want),
				"%s: %+v, want %+v: want reflect.DeepEqual(i, want)", at, i, want)
		}
		r := tree.NewReader(func(at string, i *tree.Info) error {
			want, ok := all[at]
			must.That(t, ok, "%s: %+v, want %+v: want ok", at, i, want)
			must.Equal(t, string(i.Data), string(want.Data), "%s: string(i.Data)", at)
			must.Equal(t, i.Kind, want.Kind, "%s: i.Kind", at)
			must.Equal(t, i.TTL, want.TTL, "%s: i.TTL", at)
			must.Equal(t, i.Czxid, want.Czxid, "%s: i.Czxid", at)
			must.Equal(t, i.EphemeralOwner, want.EphemeralOwner, "%s: i.EphemeralOwner", at)
			must.Equal(t, i.Counter, want.Counter, "%s: i.Counter", at)
			delete(all, at)
			return nil
		})
		for _, b := range snapshotOf(got, 64) {
			must.OK(t, r.Add(b))
		}
		must.OK(t, r.Done())
		must.Equal(t, len(all), 0, "nodes that were not read")
	}
}

func TestMakerRefusesWhatNoTreeHas(t *testing.T) {
	acl := []jute.ACL{{Perms: jute.PermAll, ID: jute.ID{Scheme: "world", ID: "anyone"}}}
	plain := tree.Info{ACL: acl}
	for name, x := range map[string]struct {
		path string
		info tree.Info
		ok   bool
	}{
		"a node":            {"/a", tree.Info{ACL: acl, Stat: jute.Stat{Czxid: 3, Mzxid: 4, Pzxid: 5}}, true},
		"a relative path":   {"a", plain, false},
		"a slash at an end": {"/a/", plain, false},
		"a long path":       {"/" + strings.Repeat("a", 4<<20), plain, false},
		"no parent":         {"/a/b", plain, false},
		"no ACL":            {"/a", tree.Info{}, false},
		"much data":         {"/a", tree.Info{ACL: acl, Data: make([]byte, 1<<20)}, false},
		"a later change":    {"/a", tree.Info{ACL: acl, Stat: jute.Stat{Mzxid: 6}}, false},
		"a change before":   {"/a", tree.Info{ACL: acl, Stat: jute.Stat{Czxid: 3, Mzxid: 2, Pzxid: 3}}, false},
	} {
		m := tree.NewMaker()
		expect.Fails(t, m.Set("/a", &plain), "%s: no root", name)
		for _, at := range []string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"} {
			must.OK(t, m.Set(at, &plain))
		}
		err := m.Set(x.path, &x.info)
		if err == nil {
			_, err = m.Finish(5, 1<<20)
		}
		expect.Equal(t, err == nil, x.ok, "%s: %v", name, err)
	}
	m := tree.NewMaker()
	must.OK(t, m.Set("/", &plain))
	_, err := m.Finish(5, 1<<20)
	expect.Fails(t, err, "a tree without the nodes that every tree has")
}

// A reader returns the error of its callback. Done succeeds only at the end of the stream.
func TestReaderIsDoneAtTheEnd(t *testing.T) {
	chunks := snapshotOf(tree.New(), 64)
	stop := fmt.Errorf("enough")
	expect.Is(t, tree.NewReader(func(string, *tree.Info) error { return stop }).Add(chunks[0]), stop)
	r := tree.NewReader(func(string, *tree.Info) error { return nil })
	expect.Fails(t, r.Done(), "nothing was read")
	for _, b := range chunks {
		must.OK(t, r.Add(b))
	}
	expect.OK(t, r.Done())
}
