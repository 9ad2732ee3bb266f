package offline

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree/zkfiles"
)

func TestVerifyFindsEveryField(t *testing.T) {
	from := zooDir(t)
	load := func() *Content {
		c := must.Get(LoadContent(from, ""))(t)
		return c
	}
	for name, change := range map[string]func(*zkfiles.Node){
		"data": func(n *zkfiles.Node) { n.Data = []byte("z") }, "ACL": func(n *zkfiles.Node) {
			n.ACL = jute.WorldAnyone
		},
		"czxid": func(n *zkfiles.Node) { n.Czxid++ }, "mzxid": func(n *zkfiles.Node) { n.Mzxid++ },
		"pzxid": func(n *zkfiles.Node) { n.Pzxid++ },
		"ctime": func(n *zkfiles.Node) { n.Ctime++ }, "mtime": func(n *zkfiles.Node) { n.Mtime++ },
		"version":               func(n *zkfiles.Node) { n.Version++ },
		"children ever created": func(n *zkfiles.Node) { n.Cversion++ }, "ACL version": func(n *zkfiles.Node) {
			n.Aversion++
		},
		"kind": func(n *zkfiles.Node) { n.Owner = zkfiles.OwnerOf(zkfiles.Container, 0) },
	} {
		a, b := load(), load()
		change(b.Nodes["/a"])
		if diffs, _ := Compare(a, b, true); len(diffs) != 1 || !strings.Contains(diffs[0], `"/a": `+name) {
			t.Errorf("%s: %v", name, diffs)
		}
	}
	a, b := load(), load()
	delete(b.Nodes, "/t")
	if diffs, _ := Compare(a, b, true); len(diffs) != 1 {
		t.Errorf("%v", diffs)
	}
	a.Nodes["/a"].Data = nil
	if diffs, _ := Compare(a, b, true); len(diffs) != 2 {
		t.Error("null and empty are the same")
	}
}

// What a restore ends on purpose is told, and is no difference; anything else that changed by then is.
func TestVerifyTellsOfEndedSessions(t *testing.T) {
	from := imported(t)
	backup, dir := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "new")
	before := must.Get(ReadState(from))(t)
	must.OK(t, writeFile(backup, func(w io.Writer) error { return WriteBackup(w, before) }))
	must.Get(Restore(t.Context(), backup, dir, 1, false, 5))(t)
	a := must.Get(LoadContent(backup, ""))(t)
	for name, c := range map[string]struct {
		change     func(*Content)
		ephemerals bool
		diffs      int
	}{
		"restored":              {func(*Content) {}, false, 0},
		"with ephemerals":       {func(*Content) {}, true, 2},
		"an older change":       {func(b *Content) { b.Nodes["/a"].Pzxid = a.Zxid }, false, 1},
		"another node's change": {func(b *Content) { b.Nodes["/c"].Pzxid = b.Zxid }, false, 1},
		"more than that":        {func(b *Content) { b.Nodes["/a"].Version++ }, false, 1},
	} {
		b := must.Get(LoadContent(dir, ""))(t)
		c.change(b)
		diffs, ended := Compare(a, b, c.ephemerals)
		back, endedBack := Compare(b, a, c.ephemerals)
		expect.That(t, len(diffs) == c.diffs && len(back) == c.diffs,
			"%s: %q, the other way %q", name, diffs, back)
		if !c.ephemerals && (!slices.Equal(ended, []string{"/a/e"}) || !slices.Equal(endedBack, ended)) {
			t.Errorf("%s: ended %q and %q", name, ended, endedBack)
		}
	}
}
