package offline

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/vfs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// One bit of the newest snapshot, or of the log after it, is wrong. Then reading fails and names the file, or
// it returns the correct state.
func TestOneWrongBitIsNoticed(t *testing.T) {
	dir := filepath.Join(zooDir(t), "version-2")
	before := must.Get(loadDirs(dir, dir, false))(t)
	last := len(bytes.TrimRight(logOf(history()[4:8]), "\x00")) // where the last entry of log.5 starts
	const checksum, length = 8, 4
	for _, name := range []string{"snapshot.4", "log.5"} {
		file := filepath.Join(dir, name)
		whole := must.Get(os.ReadFile(file))(t)
		refused := 0
		for at := range whole {
			bad := bytes.Clone(whole)
			bad[at] ^= 1 << (at % 8)
			must.OK(t, os.WriteFile(file, bad, 0o600))
			for _, torn := range []bool{false, true} {
				z, err := loadDirs(dir, dir, torn)
				if err != nil {
					refused++
					expect.Has(t, err.Error(), name, "byte %d: %v", at, err)
					continue
				}
				// The reader may drop the last entry as torn if the wrong bit is in its length or its end. It
				// drops nothing else.
				if z.Zxid == before.Zxid-1 && torn && name == "log.5" && len(z.Notes) == 1 {
					expect.That(t, at >= last+checksum, "%s: byte %d, before the last entry, costs it: %q", name, at, z.Notes)
					expect.That(t, at < last+checksum+length || whole[at] == 'B',
						"%s: byte %d, neither in the length nor the end, costs the last entry: %q", name, at, z.Notes)
					continue
				}
				diffs, _ := Compare(contentOf("", 0, before.Nodes.Tree), contentOf("", 0, z.Nodes.Tree), true)
				expect.Equal(t, len(diffs), 0, "%s, byte %d: differences that no error tells of: %q", name, at, diffs)
				expect.Equal(t, z.Zxid, before.Zxid, "%s, byte %d: zxid", name, at)
			}
		}
		expect.That(t, refused >= len(whole),
			"%s: only %d of %d changes were refused", name, refused, len(whole))
		must.OK(t, os.WriteFile(file, whole, 0o600))
	}
}

// An import that may not read a file or a directory fails, and its error says which user may.
func TestWhatMayNotBeRead(t *testing.T) {
	dir := zooDir(t)
	for _, d := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "version-2")} {
		must.OK(t, os.Chmod(d, 0o755))
	}
	files := must.Get(filepath.Glob(filepath.Join(dir, "version-2", "*")))(t)
	for _, f := range files {
		must.OK(t, os.Chmod(f, 0o644))
	}
	file := filepath.Join(dir, "version-2", "log.5")
	for name, entry := range map[string]string{"log.5": file, "version-2": filepath.Dir(file)} {
		info, err := os.Stat(entry)
		must.OK(t, err)
		must.OK(t, os.Chmod(entry, 0))
		asNobody(t, func() { _, err = LoadZooKeeper(ZooKeeperOptions{From: dir}) })
		if expect.Fails(t, err, "%s", name) {
			expect.Has(t, err.Error(), name)
			expect.Has(t, err.Error(), "as the user that ZooKeeper runs as", "%s", name)
		}
		must.OK(t, os.Chmod(entry, info.Mode()))
	}
}

func TestVerifyFindsEveryField(t *testing.T) {
	from := zooDir(t)
	load := func() *Content {
		c := must.Get(LoadContent(from, ""))(t)
		return c
	}
	for name, change := range map[string]func(*tree.Info){
		"data": func(n *tree.Info) { n.Data = []byte("z") }, "ACL": func(n *tree.Info) {
			n.ACL = jute.WorldAnyone
		},
		"czxid": func(n *tree.Info) { n.Czxid++ }, "mzxid": func(n *tree.Info) { n.Mzxid++ },
		"pzxid": func(n *tree.Info) { n.Pzxid++ },
		"ctime": func(n *tree.Info) { n.Ctime++ }, "mtime": func(n *tree.Info) { n.Mtime++ },
		"version":               func(n *tree.Info) { n.Version++ },
		"children ever created": func(n *tree.Info) { n.Counter++ }, "ACL version": func(n *tree.Info) {
			n.Aversion++
		},
		"kind": func(n *tree.Info) { n.Kind = tree.ContainerNode },
	} {
		a, b := load(), load()
		change(b.Nodes["/a"])
		diffs, _ := Compare(a, b, true)
		if expect.Equal(t, len(diffs), 1, "%s: differences: %q", name, diffs) {
			expect.Has(t, diffs[0], `"/a": `+name)
		}
	}
	a, b := load(), load()
	delete(b.Nodes, "/t")
	diffs, _ := Compare(a, b, true)
	expect.Equal(t, len(diffs), 1, "%v", diffs)
	a.Nodes["/a"].Data = nil
	diffs, _ = Compare(a, b, true)
	expect.Equal(t, len(diffs), 2, "null and empty are the same")
}

// If a restore has ended sessions, Compare lists the nodes of these sessions separately. Any other change
// counts as a difference.
func TestVerifyTellsOfEndedSessions(t *testing.T) {
	from := imported(t)
	backup, dir := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "new")
	before := must.Get(ReadState(from))(t)
	must.OK(t, vfs.Fill(backup, func(w io.Writer) error { return WriteBackup(w, before) }))
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
		expect.Equal(t, len(diffs), c.diffs, "%s: differences: %q", name, diffs)
		expect.Equal(t, len(back), c.diffs, "%s: differences, the other way: %q", name, back)
		if !c.ephemerals {
			expect.List(t, ended, []string{"/a/e"}, "%s: nodes of ended sessions", name)
			expect.List(t, endedBack, ended, "%s: nodes of ended sessions, the other way", name)
		}
	}
}
