package tree_test

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// A tree and its events must share no bytes with requests, or with the snapshot from which the tree was
// loaded, because the buffers of both are used again.
func TestTreesShareNothingWithTheirInputs(t *testing.T) {
	a, b := &writer{g: NewGen(7), tree: tree.New()}, &writer{g: NewGen(7), tree: tree.New(), reuses: true}
	for range 2000 {
		a.step()
		b.step()
		must.Equal(t, b.told(), a.told(), "events of request %d", a.zxid)
	}
	must.Equal(t, Dump(b.tree), Dump(a.tree))
	l := tree.NewLoader()
	for _, chunk := range snapshotOf(a.tree, 10) {
		must.OK(t, l.Add(chunk))
		jute.Overwrite(chunk)
	}
	expect.Equal(t, Dump(must.Get(l.Finish())(t)), Dump(a.tree))
}

// A node that was read from a snapshot shares no bytes with that snapshot.
func TestReadersShareNothingWithTheirInputs(t *testing.T) {
	w := grown(6, 500)
	type node struct {
		path string
		info tree.Info
	}
	var nodes []node
	r := tree.NewReader(func(path string, i *tree.Info) error {
		nodes = append(nodes, node{path, *i})
		return nil
	})
	for _, chunk := range snapshotOf(w.tree, 10) {
		must.OK(t, r.Add(chunk))
		jute.Overwrite(chunk)
	}
	must.OK(t, r.Done())
	for _, n := range nodes {
		i, there := w.tree.Get(n.path)
		must.That(t, there, "%q is in the snapshot alone", n.path)
		expect.Equal(t, string(n.info.Data), string(i.Data), "data of %q", n.path)
		expect.List(t, n.info.ACL, i.ACL, "ACL of %q", n.path)
	}
}

// An Info shares bytes with the tree, and keeps showing the same data when the node changes.
func TestInfoStaysWhenItsNodeChanges(t *testing.T) {
	m := newMaker(t)
	must.OK(t, m.Set("/a", &tree.Info{ACL: jute.WorldAnyone, Data: []byte("before")}))
	tr := must.Get(m.Finish(1, 1<<20))(t)
	info, _ := tr.Get("/a")
	body := jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, "/a"), []byte("behind")), -1)
	_, code, _ := tr.Apply(&tree.Change{Zxid: 2}, jute.OpSetData, body, nil)
	must.Equal(t, code, jute.OK)
	jute.Overwrite(body)
	now, _ := tr.Get("/a")
	expect.Equal(t, string(info.Data), "before", "data of the Info")
	expect.Equal(t, string(now.Data), "behind", "data of the node")
}
