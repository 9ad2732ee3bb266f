package tree

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree/watches"
)

// While a snapshot is open, it keeps the old content of each node that changes before the node was written.
// It keeps nothing of nodes that it has already written, and nothing of new nodes.
func TestSnapshotKeepsOnlyWhatItNeeds(t *testing.T) {
	tr, zxid := New(), int64(0)
	next := func() *Change { zxid++; return &Change{Zxid: zxid} }
	create := func(path string) {
		t.Helper()
		_, code := tr.create(next(), jute.OpCreate, &jute.CreateRequest{Path: path, ACL: jute.WorldAnyone}, nil)
		must.Equal(t, code, jute.OK)
	}
	set := func(path string) {
		t.Helper()
		r := &jute.SetDataRequest{PathVersion: jute.PathVersion{Path: path, Version: -1}, Data: []byte(path)}
		_, code := tr.setDataOf(next(), r, nil)
		must.Equal(t, code, jute.OK)
	}
	remove := func(path string) {
		t.Helper()
		must.Equal(t, tr.delete(next(), &jute.PathVersion{Path: path, Version: -1}), jute.OK)
	}
	for _, path := range []string{"/a", "/b", "/c"} {
		create(path)
	}
	a := tr.At("/a")
	s := tr.StartSnapshot()
	kept := func(changed, deleted int, what string) {
		t.Helper()
		if expect.Equal(t, len(s.changed), changed, "%s: len(s.changed)", what) {
			expect.Equal(t, len(s.deleted), deleted, "%s: len(s.deleted)", what)
		}
	}
	set("/a")
	kept(1, 0, "a change")
	set("/a")
	kept(1, 0, "another change of the node")
	expect.Equal(t, s.changed[a].Data, "", "the data that is kept")
	s.Append(nil, 2) // the root, and /c, which was created last
	must.Equal(t, tr.At("/c").Mark, s.mark, "another node is written")
	must.That(t, a.Mark != s.mark, "another node is written: want a.mark != s.mark")
	must.Equal(t, tr.Root.Mark, s.mark, "another node is written: tr.root.mark")
	set("/c")
	set("/")
	kept(1, 0, "changes of nodes that are written")
	create("/c/new")
	set("/c/new")
	kept(1, 0, "a node that is new")
	remove("/c/new")
	kept(1, 0, "a new node that goes again")
	remove("/c")
	kept(1, 0, "a written node that goes")
	remove("/a")
	kept(1, 1, "a changed node that goes")
	expect.Equal(t, s.deleted[0].Data, "", "the data that is kept")
	remove("/b")
	kept(1, 2, "a node that goes")
	s.Close()
	expect.That(t, s.changed == nil,
		"a snapshot that has ended keeps something: want s.changed == nil")
	expect.That(t, s.deleted == nil,
		"a snapshot that has ended keeps something: want s.deleted == nil")
	expect.That(t, s.acls == nil,
		"a snapshot that has ended keeps something: want s.acls == nil")
	expect.That(t, s.stack == nil,
		"a snapshot that has ended keeps something: want s.stack == nil")
	expect.That(t, tr.snap == nil,
		"a snapshot that has ended keeps something: want tr.snap == nil")
	set("/")
	expect.That(t, s.changed == nil, "a change after the end is kept")
}

// A change of a tree reaches a connection with a watch: the test joins the tree with its table of watches.
func TestChangesOfATreeReachWatches(t *testing.T) {
	tr, w, zxid := New(), watches.New[string](), int64(0)
	for _, k := range []watches.Kind{watches.Persistent, watches.Recursive} {
		w.Add("conn", "/p", k)
	}
	w.Add("conn", "/", watches.Child)

	create := func(path string, flags int32) []byte {
		b := jute.AppendBuffer(jute.AppendString(nil, path), nil)
		return jute.AppendInt(jute.AppendACL(b, jute.WorldAnyone), flags)
	}
	remove := func(path string) []byte { return jute.AppendInt(jute.AppendString(nil, path), -1) }
	set := func(path string) []byte {
		return jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, path), []byte("x")), -1)
	}
	multi := func(parts ...[]byte) (b []byte) {
		for i, op := range []jute.OpCode{jute.OpCreate, jute.OpDelete}[:len(parts)] {
			b = append(jute.AppendMultiHeader(b, op, false, -1), parts[i]...)
		}
		return jute.AppendMultiHeader(b, -1, true, -1)
	}
	for _, step := range []struct {
		name string
		op   jute.OpCode
		body []byte
		want []string
	}{
		{"create", jute.OpCreate, create("/p", 0), []string{"NodeCreated /p", "NodeChildrenChanged /"}},
		{"setData", jute.OpSetData, set("/p"), []string{"NodeDataChanged /p"}},
		{"failed create", jute.OpCreate, create("/p", 0), nil},
		{"setACL", jute.OpSetACL, jute.AppendInt(jute.AppendACL(jute.AppendString(nil, "/p"), jute.WorldAnyone),
			-1), nil},
		{"failed multi", jute.OpMulti, multi(create("/p/x", 0), remove("/none")), nil},
		{"multi", jute.OpMulti, multi(create("/p/x", 0), remove("/p/x")), []string{
			"NodeCreated /p/x", "NodeChildrenChanged /p", "NodeDeleted /p/x", "NodeChildrenChanged /p"}},
		{"ephemeral", jute.OpCreate, create("/p/e", 1), []string{"NodeCreated /p/e", "NodeChildrenChanged /p"}},
		{"close", jute.OpCloseSession, nil, []string{"NodeDeleted /p/e", "NodeChildrenChanged /p"}},
	} {
		zxid++
		c := &Change{Zxid: zxid, Time: 1, Session: 7}
		if step.op == jute.OpCloseSession {
			tr.CloseSession(c, 7)
		} else {
			tr.Apply(c, step.op, step.body, nil)
		}
		var got []string
		for _, e := range c.Events {
			w.Fire(e.Type, e.Path, func(string) { got = append(got, e.Type.String()+" "+e.Path) })
		}
		expect.List(t, got, step.want, "%s: told %q", step.name, got)
	}
}
