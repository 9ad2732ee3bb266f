package tree_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// createBody returns the body of a create with all rights for everyone.
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
		if expect.That(t, ok, "%s: %+v, %v: want ok", want.path, i, ok) {
			expect.Equal(t, i.Stat, want.stat, "%s: i.Stat", want.path)
			if expect.Equal(t, len(i.ACL), 1, "%s: len(i.ACL)", want.path) {
				expect.Equal(t, i.ACL[0], want.acl, "%s: i.ACL[0]", want.path)
				if expect.That(t, i.Data != nil, "%s: %+v, %v: want i.Data != nil", want.path, i, ok) {
					expect.That(t, len(i.Data) <= 0,
						"%s: %+v, %v: want len(i.Data) <= 0", want.path, i, ok)
				}
			}
		}
	}
	expect.Equal(t, tr.Count(), 4,
		"%d nodes, %v: tr.Count()", tr.Count(), tr.Children("/zookeeper"))
	expect.Equal(t, len(tr.Children("/zookeeper")), 2,
		"%d nodes, %v", tr.Count(), tr.Children("/zookeeper"))
}

func TestCreateThenSnapshotThenLoad(t *testing.T) {
	tr := tree.New()
	c := &tree.Change{Zxid: 1, Time: 1000, Session: 7}
	out, code, changed := tr.Apply(c, jute.OpCreate, createBody("/a-", "x", jute.FlagEphemeralSequential), nil)
	must.Equal(t, code, jute.OK, "code")
	must.That(t, changed,
		"%v %v %v %v: want changed", string(out), code, changed, c.Events)
	must.Equal(t, string(out[4:]), "/a-0000000000", "string(out[4:])")
	must.Equal(t, len(c.Events), 2, "len(c.Events)")
	s := tr.StartSnapshot()
	l := tree.NewLoader()
	for done := false; !done; {
		var b []byte
		b, done = s.Append(nil, 2)
		must.OK(t, l.Add(b))
	}
	s.Close()
	got := must.Get(l.Finish())(t)
	expect.Equal(t, got.Digest(), tr.Digest(), "got.Digest()")
	expect.Equal(t, got.Count(), 5, "got.Count()")
	expect.Equal(t, got.EphemeralCount(), 1, "got.EphemeralCount()")
	expect.Equal(t, got.Bytes(), tr.Bytes(), "got.Bytes()")
}

// owned() returns a tree in which session 7 owns ephemeral nodes, and their paths in the order of their
// creation.
func owned(t testing.TB, n int) (*tree.Tree, []string) {
	tr := tree.New()
	c := &tree.Change{Session: 7}
	var paths []string
	for i := range n {
		path := fmt.Sprintf("/%c-%d", 'a'+rune(i%7), i*i)
		c.Zxid++
		c.Events = c.Events[:0]
		if _, code, _ := tr.Apply(c, jute.OpCreate, createBody(path, "", jute.FlagEphemeral),
			nil); code != jute.OK {
			t.Fatal(path, code)
		}
		paths = append(paths, path)
	}
	return tr, paths
}

// A session's ephemeral nodes come in the order of ZooKeeper's answer, which is that of a copied Java hash
// set. A part of the list has the same order as the whole.
func TestEphemeralsComeInTheOrderOfTheReference(t *testing.T) {
	for _, n := range []int{0, 1, 5, 13, 100, 3000} {
		tr, want := owned(t, n)
		for _, buckets := range []int{jute.GrownTable(n), jute.CopiedTable(n)} {
			jute.SortByBucket(want, buckets, jute.JavaHash)
		}
		for _, prefix := range []string{"/", "/c-", "/c-1", "/none"} {
			var part []string
			for _, path := range want {
				if strings.HasPrefix(path, prefix) {
					part = append(part, path)
				}
			}
			d := jute.NewDecoder(tr.AppendEphemerals(nil, 7, prefix))
			got, _ := d.Strings()
			expect.List(t, got, part, "%d nodes, prefix %q: got", n, prefix)
			expect.OK(t, d.Err(), "%d nodes, prefix %q", n, prefix)
			expect.That(t, len(d.Rest()) <= 0,
				"%d nodes, prefix %q: %d paths, want %d in another order: want len(d.Rest()) <= 0",
				n, prefix, len(got), len(part))
		}
	}
}

func BenchmarkEphemerals(b *testing.B) {
	tr, _ := owned(b, 50_000)
	for _, prefix := range []string{"/", "/none"} {
		b.Run(prefix[1:], func(b *testing.B) {
			var buf []byte
			for b.Loop() {
				buf = tr.AppendEphemerals(buf[:0], 7, prefix)
			}
		})
	}
}

// write() applies one create or delete.
func (s *pieces) write(session int64, op jute.OpCode, body []byte) bool {
	s.zxid++
	c := tree.Change{Zxid: s.zxid, Session: session}
	_, code, _ := s.t.Apply(&c, op, body, nil)
	return code == jute.OK
}

type pieces struct {
	t    *tree.Tree
	zxid int64
}

func (s *pieces) create(session int64, path string, flags int32) bool {
	b := jute.AppendString(nil, path)
	b = jute.AppendInt(b, -1)
	b = jute.AppendACL(b, jute.WorldAnyone)
	return s.write(session, jute.OpCreate, jute.AppendInt(b, flags))
}

func (s *pieces) remove(path string) bool {
	return s.write(1, jute.OpDelete, jute.AppendInt(jute.AppendString(nil, path), -1))
}

// A tree changes between the pieces of a walk. The walk meets each node that exists both at the start and at
// the end of the walk.
func TestWalksInPiecesMissNothing(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &pieces{t: tree.New()}
		live, stayed := map[string]bool{}, map[string]bool{}
		s.create(1, "/d", 0)
		step := func() {
			path := fmt.Sprintf("/d/%d", r.IntN(60))
			if live[path] && r.IntN(2) == 0 {
				if s.remove(path) {
					delete(live, path)
					delete(stayed, path)
				}
			} else if s.create(int64(1+r.IntN(8)), path, 1) {
				live[path] = true
			}
		}
		for range 100 {
			step()
		}
		for p := range live {
			stayed[p] = true
		}
		metOwned, metChild := map[string]bool{}, map[string]bool{}
		var w tree.EphemeralWalk
		var c tree.ChildWalk
		dir, _ := s.t.Find("/d")
		for more, again := true, true; more || again; {
			more = more && s.t.NextEphemerals(&w, 1+r.IntN(5), func(n tree.Ref) int {
				metOwned[n.Path()] = true
				return 1
			})
			again = again && c.Next(dir, 1+r.IntN(5), func(n tree.Ref) int { metChild[n.Path()] = true; return 1 })
			for range r.IntN(4) {
				step()
			}
		}
		must.OK(t, s.t.Verify())
		for p := range stayed {
			must.That(t, metOwned[p] && metChild[p],
				"seed %d: %s was not met (owned %v, child %v)", seed, p, metOwned[p], metChild[p])
		}
	}
}

// TestEveryHandlerAsksForPermission reads the source of the package. Each function that Apply, a multi or a
// read runs for a client calls Grants, unless the operation needs no permission. The test fails for a new
// operation that does not call Grants.
func TestEveryHandlerAsksForPermission(t *testing.T) {
	free := map[string]string{
		"AppendExists":     "exists needs no permission",
		"AppendEphemerals": "the session's own nodes",
	}
	calls := callGraph(t)
	handlers := map[string]bool{"CatchUp": true, "Take": true}
	for name := range calls {
		if strings.HasPrefix(name, "Append") && name != "AppendFor" && name != "AppendStat" {
			handlers[name] = true
		}
	}
	for _, from := range []string{"Apply", "step"} {
		for name := range calls[from] {
			switch name {
			case "create", "delete", "setDataOf", "setACL", "check", "multi":
				handlers[name] = true
			}
		}
	}
	expect.That(t, len(handlers) >= 14, "only %d handlers found: %v", len(handlers), handlers)
	for name := range handlers {
		expect.That(t, free[name] != "" || reaches(calls, name, "Grants", map[string]bool{}),
			"%s asks for no permission", name)
	}
	for name := range free {
		expect.That(t, handlers[name],
			"%s is no exception any more: want handlers[name]", name)
		expect.That(t, !reaches(calls, name, "Grants", map[string]bool{}),
			"%s is no exception any more: want !reaches(calls, name, \"Grants\", map[string]bool{})",
			name)
	}
}

// callGraph returns, for each function and method of the tree and its ACLs, the names of the functions that
// it calls. It leaves snapshots out.
func callGraph(t *testing.T) map[string]map[string]bool {
	files := must.Get(filepath.Glob("*.go"))(t)
	files = append(files, must.Get(filepath.Glob("acl/*.go"))(t)...)
	files = append(files, must.Get(filepath.Glob("internal/nodes/*.go"))(t)...)
	calls := map[string]map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "snapshot.go" {
			continue
		}
		file := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			called := map[string]bool{}
			calls[f.Name.Name] = called
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					switch fun := c.Fun.(type) {
					case *ast.Ident:
						called[fun.Name] = true
					case *ast.SelectorExpr:
						called[fun.Sel.Name] = true
					}
				}
				return true
			})
		}
	}
	return calls
}

func reaches(calls map[string]map[string]bool, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	for name := range calls[from] {
		if reaches(calls, name, to, seen) {
			return true
		}
	}
	return false
}
