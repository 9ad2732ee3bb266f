package tree_test

import (
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// createBody returns the body of a create for everybody.
func createBody(path, data string, flags int32) []byte {
	b := jute.AppendString(nil, path)
	b = jute.AppendString(b, data)
	b = jute.AppendACL(b, jute.WorldAnyone)
	return jute.AppendInt(b, flags)
}

func TestFreshTreeIsTheReferences(t *testing.T) {
	tr := tree.New()
	for _, want := range []struct {
		path string
		stat jute.Stat
		acl  jute.ACL
	}{
		{"/", jute.Stat{Cversion: -1, NumChildren: 1}, jute.WorldAnyone[0]},
		{"/zookeeper", jute.Stat{Cversion: -2, NumChildren: 2}, jute.WorldAnyone[0]},
		{"/zookeeper/quota", jute.Stat{}, jute.WorldAnyone[0]},
		{"/zookeeper/config", jute.Stat{Aversion: -1}, jute.ACL{Perms: jute.PermRead, ID: jute.WorldAnyone[0].ID}},
	} {
		i, ok := tr.Get(want.path)
		if !ok || i.Stat != want.stat || len(i.ACL) != 1 || i.ACL[0] != want.acl || i.Data == nil ||
			len(i.Data) > 0 {
			t.Errorf("%s: %+v, %v", want.path, i, ok)
		}
	}
	if tr.Count() != 4 || len(tr.Children("/zookeeper")) != 2 {
		t.Errorf("%d nodes, %v", tr.Count(), tr.Children("/zookeeper"))
	}
}

func TestCreateThenSnapshotThenLoad(t *testing.T) {
	tr := tree.New()
	c := &tree.Change{Zxid: 1, Time: 1000, Session: 7}
	out, code, changed := tr.Apply(c, jute.OpCreate, createBody("/a-", "x", jute.FlagEphemeralSequential), nil)
	must.That(t, code == jute.OK && changed && string(out[4:]) == "/a-0000000000" && len(c.Events) == 2,
		"%v %v %v %v", string(out), code, changed, c.Events)
	s := tr.StartSnapshot()
	l := tree.NewLoader()
	for done := false; !done; {
		var b []byte
		b, done = s.Append(nil, 2)
		must.OK(t, l.Add(b))
	}
	s.Close()
	got := must.Get(l.Finish())(t)
	if got.Digest() != tr.Digest() || got.Count() != 5 || got.EphemeralCount() != 1 ||
		got.Bytes() != tr.Bytes() {
		t.Error(got.Count(), got.Bytes(), tr.Bytes())
	}
}
