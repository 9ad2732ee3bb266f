package watches

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// naiveWatches implements the rules of ZooKeeper 3.9 as two plain registries of modes.
type naiveWatches struct {
	data, child map[naivePair]modes
}

type naivePair struct{ conn, path string }

func (n *naiveWatches) add(conn, path string, k Kind) {
	p := naivePair{conn, path}
	if k != Child {
		n.data[p] |= 1 << k
	}
	if k == Child || k == Persistent {
		n.child[p] |= 1 << k
	}
}

// trigger() notifies the watches of a registry, except the connections already told.
func trigger(registry map[naivePair]modes, path string, below bool, told map[string]bool) {
	for p, m := range registry {
		covered := m&recursiveMode != 0 && below && (p.path == path || p.path == "/" || p.path != "" &&
			strings.HasPrefix(path, p.path+"/"))
		exact := p.path == path && m&^recursiveMode != 0
		if !covered && !exact {
			continue
		}
		told[p.conn] = true
		if p.path == path {
			if m &^= oneShot; m == 0 {
				delete(registry, p)
			} else {
				registry[p] = m
			}
		}
	}
}

func (n *naiveWatches) fire(e *Event) []string {
	told := map[string]bool{}
	if e.Type != jute.EventChildrenChanged {
		trigger(n.data, e.Path, true, told)
	}
	if e.Type == jute.EventChildrenChanged || e.Type == jute.EventDeleted {
		trigger(n.child, e.Path, false, told)
	}
	return slices.Sorted(maps.Keys(told))
}

func (n *naiveWatches) remove(conn, path string, typ int32) bool {
	found := false
	for _, registry := range []map[naivePair]modes{n.data, n.child} {
		p := naivePair{conn, path}
		if m := registry[p]; m&watcherModes(typ) != 0 {
			found = true
			if m &^= watcherModes(typ); m == 0 {
				delete(registry, p)
			} else {
				registry[p] = m
			}
		}
	}
	return found
}

func (n *naiveWatches) drop(conn string) {
	for _, registry := range []map[naivePair]modes{n.data, n.child} {
		maps.DeleteFunc(registry, func(p naivePair, _ modes) bool { return p.conn == conn })
	}
}

func (n *naiveWatches) count(conn string) (c int) {
	for _, registry := range []map[naivePair]modes{n.data, n.child} {
		for p := range registry {
			if conn == "" || p.conn == conn {
				c++
			}
		}
	}
	return c
}

// bytes() returns the size of a connection's records: one for each path, whatever it watches there.
func (n *naiveWatches) bytes(conn string) (b int) {
	paths := map[string]bool{}
	for _, registry := range []map[naivePair]modes{n.data, n.child} {
		for p := range registry {
			if p.conn == conn && !paths[p.path] {
				paths[p.path] = true
				b += 108 + len(p.path)
			}
		}
	}
	return b
}

func (n *naiveWatches) summary() (conns, paths, pairs int) {
	c, p := map[string]bool{}, map[string]bool{}
	for pair := range n.data {
		c[pair.conn], p[pair.path] = true, true
	}
	return len(c), len(p), len(n.data)
}

var watchPaths = []string{"/", "/a", "/a/b", "/a/b/c", "/ab", "/a/x", "", "/a/b/c/d/e"}

// watchRun makes the steps that the bytes encode, on both tables, and compares the tables.
func watchRun(t *testing.T, w *Table[string], n *naiveWatches, steps []byte) {
	for len(steps) >= 3 {
		op, conn, path := steps[0], string('a'+rune(steps[1]%20)), watchPaths[int(steps[2])%len(watchPaths)]
		steps = steps[3:]
		switch op % 8 {
		case 0, 1, 2, 3:
			k := Kind(op / 8 % 4)
			w.Add(conn, path, k)
			n.add(conn, path, k)
		case 4, 5:
			e := &Event{Type: jute.EventType(op/8%4 + 1), Path: path}
			if path == "" {
				e.Path = "/"
			}
			var got []string
			w.Fire(e.Type, e.Path, func(c string) { got = append(got, c) })
			slices.Sort(got)
			if want := n.fire(e); !slices.Equal(got, want) {
				t.Fatalf("%v %q told %q, want %q", e.Type, e.Path, got, want)
			}
		case 6:
			typ := int32(op / 8 % 7)
			has := w.Has(conn, path, typ)
			if got, want := w.Remove(conn, path, typ), n.remove(conn, path, typ); got != want || has != want {
				t.Fatalf("Remove(%s %s %d) %v, Has %v, want %v", conn, path, typ, got, has, want)
			}
		case 7:
			if op/8%4 == 0 {
				w.Drop(conn)
				n.drop(conn)
			}
		}
		count, bytes := w.Of(conn)
		if w.Count() != n.count("") || count != n.count(conn) || bytes != n.bytes(conn) {
			t.Fatalf("Count %d, of %s %d in %d bytes; want %d, %d in %d", w.Count(), conn, count, bytes, n.count(""),
				n.count(conn), n.bytes(conn))
		}
	}
	conns, paths, pairs := w.Summary()
	wantConns, wantPaths, wantPairs := n.summary()
	must.That(t, conns == wantConns && paths == wantPaths && pairs == wantPairs,
		"Summary %d %d %d, want %d %d %d", conns, paths, pairs, wantConns, wantPaths, wantPairs)
	checkWatches(t, w)
}

func newNaive() *naiveWatches {
	return &naiveWatches{map[naivePair]modes{}, map[naivePair]modes{}}
}

func TestWatchesAgainstModel(t *testing.T) {
	race.Alone(t)
	seeds := uint64(100)
	if testing.Short() {
		seeds = 25
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w, n := New[string](), newNaive()
		for range 10 {
			steps := make([]byte, 300)
			for i := range steps {
				steps[i] = byte(rnd.Uint32())
			}
			watchRun(t, w, n, steps)
		}
	}
}

func FuzzWatches(f *testing.F) {
	f.Add([]byte{0, 1, 1, 4, 1, 1, 6, 1, 1, 7, 1, 1})
	f.Fuzz(func(t *testing.T, steps []byte) {
		watchRun(t, New[string](), newNaive(), steps[:min(len(steps), 3000)])
	})
}

// checkWatches checks that records, rings, indexes and counts agree.
func checkWatches[W cmp.Ordered](t *testing.T, w *Table[W]) {
	t.Helper()
	records, bytes, deep, indexed := 0, 0, 0, 0
	for path, p := range w.byPath.m {
		item := w.paths.at(p)
		if item.path != path || item.status == 0 || item.plain == 0 && item.deep == 0 {
			t.Fatalf("path %q is %+v", path, *item)
		}
		bytes += len(path)
		if item.deep != 0 {
			deep++
			must.Equal(t, w.recursive.m[path], p, "path %q", path)
		}
		members := 0
		for _, head := range []uint32{item.plain, item.deep} {
			for r := head; r != 0; {
				rec := w.records.at(r)
				if rec.path != p || rec.modes == 0 || (rec.modes&recursiveMode != 0) != (head == item.deep) {
					t.Fatalf("record %+v in a ring of %q", *rec, path)
				}
				must.Equal(t, w.records.at(rec.in[ofPath].next).in[ofPath].prev, r, "broken ring of a path")
				must.That(t, item.status != pathIndexed || w.big[p][rec.conn] == r,
					"record is not in the index of its path")
				members++
				if r = rec.in[ofPath].next; r == head {
					break
				}
			}
		}
		records += members
		if item.status == pathIndexed {
			indexed++
		}
		if item.status == pathIndexed && len(w.big[p]) != members || item.status != pathIndexed && w.big[p] != nil {
			t.Fatalf("index of %q has %d entries for %d records", path, len(w.big[p]), members)
		}
	}
	must.Equal(t, len(w.big), indexed, "indexes of paths")
	own := 0
	for conn, c := range w.byConn.m {
		item := w.conns.at(c)
		if item.conn != conn || item.first == 0 || item.dead {
			t.Fatalf("connection %v is %+v", conn, *item)
		}
		for r := item.first; ; {
			rec := w.records.at(r)
			must.That(t, rec.conn == c && w.records.at(rec.in[ofConn].next).in[ofConn].prev == r,
				"broken ring of a connection")
			own++
			if r = rec.in[ofConn].next; r == item.first {
				break
			}
		}
	}
	if len(w.dead) > 0 {
		own = records // dropped connections have records, too, but the rings above do not show them
	}
	if records != own || records != w.records.used || w.paths.used != len(w.byPath.m) ||
		w.conns.used != len(w.byConn.m)+len(w.dead) || bytes != w.pathBytes ||
		deep != len(w.recursive.m) || len(w.gone) != 0 {
		t.Fatalf("%d records at paths, %d at connections, %d in use; %d paths in use, %d known; %d bytes, %d "+
			"counted; %d recursive, %d known",
			records, own, w.records.used, w.paths.used, len(w.byPath.m), bytes, w.pathBytes, deep, len(w.recursive.m))
	}
}
