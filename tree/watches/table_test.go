package watches

import (
	"fmt"
	"maps"
	pathpkg "path"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Event is something that happened to a node.
type Event struct {
	Type jute.EventType
	Path string
}

// The functions below return the events of one change, in the tree's order.
func evCreate(path string) []Event {
	return []Event{{Type: jute.EventCreated, Path: path}, {Type: jute.EventChildrenChanged,
		Path: pathpkg.Dir(path)}}
}

func evDelete(path string) []Event {
	return []Event{{Type: jute.EventDeleted, Path: path}, {Type: jute.EventChildrenChanged,
		Path: pathpkg.Dir(path)}}
}

func evSet(path string) []Event { return []Event{{Type: jute.EventDataChanged, Path: path}} }

// fired() returns what each connection hears of some events.
func fired(w *Table[string], events ...[]Event) map[string][]string {
	got := map[string][]string{}
	for _, list := range events {
		for i := range list {
			w.Fire(list[i].Type, list[i].Path, func(conn string) {
				got[conn] = append(got[conn], list[i].Type.String()+" "+list[i].Path)
			})
		}
	}
	return got
}

// Each kind of change fires the kinds of watches in this table, and no others.
func TestEveryChangeAgainstEveryWatch(t *testing.T) {
	changes := []struct {
		name   string
		events []Event
	}{
		{"create P", evCreate("/a/p")},
		{"setData P", evSet("/a/p")},
		{"delete P", evDelete("/a/p")},
		{"create child", evCreate("/a/p/c")},
		{"delete child", evDelete("/a/p/c")},
		{"setData child", evSet("/a/p/c")},
		{"setACL P", nil},
	}
	const (
		created, changed, deleted = "NodeCreated ", "NodeDataChanged ", "NodeDeleted "
		children                  = "NodeChildrenChanged "
		p, c                      = "/a/p", "/a/p/c"
	)
	watches := []struct {
		name string
		path string
		kind Kind
		want [7]string // what a client is told of each change; "": nothing
		keep bool
	}{
		{"getData or exists", p, Data, [7]string{created + p, changed + p, deleted + p}, false},
		{"getChildren", p, Child, [7]string{2: deleted + p, 3: children + p, 4: children + p}, false},
		{"persistent", p, Persistent, [7]string{created + p, changed + p, deleted + p, children + p, children + p},
			true},
		{"recursive on P", p, Recursive, [7]string{created + p, changed + p, deleted + p, created + c, deleted + c,
			changed + c}, true},
		{"recursive on the parent", "/a", Recursive, [7]string{created + p, changed + p, deleted + p, created + c,
			deleted + c, changed + c}, true},
		{"recursive on the root", "/", Recursive, [7]string{created + p, changed + p, deleted + p, created + c,
			deleted + c, changed + c}, true},
		{"children of the parent", "/a", Child, [7]string{0: children + "/a", 2: children + "/a"}, false},
		{"persistent on the parent", "/a", Persistent, [7]string{0: children + "/a", 2: children + "/a"}, true},
		{"data of the parent", "/a", Data, [7]string{}, false},
		{"sibling with P as prefix", "/a/pp", Recursive, [7]string{}, true},
		{"recursive on the child", c, Recursive, [7]string{3: created + c, 4: deleted + c, 5: changed + c}, true},
	}
	for _, row := range watches {
		for i, ch := range changes {
			w := New[string]()
			w.Add("c", row.path, row.kind)
			got := fired(w, ch.events)["c"]
			var want []string
			if row.want[i] != "" {
				want = []string{row.want[i]}
			}
			expect.List(t, got, want, "%s, %s: told %q", row.name, ch.name, got)
			expect.Equal(t, w.Has("c", row.path, jute.WatcherAny), row.keep || want == nil,
				"%s, %s: still there", row.name, ch.name)
			checkWatches(t, w)
		}
	}
}

func TestPersistentWatchSeesNodeComeAgain(t *testing.T) {
	w := New[string]()
	w.Add("c", "/p", Persistent)
	got := fired(w, evDelete("/p"), evCreate("/p"), evSet("/p"))["c"]
	want := []string{"NodeDeleted /p", "NodeCreated /p", "NodeDataChanged /p"}
	expect.List(t, got, want, "told %q", got)
}

func TestOneEventPerConnectionAndTrigger(t *testing.T) {
	w := New[string]()
	for range 2 {
		w.Add("c", "/a/b/p", Data)
		w.Add("c", "/a/b/p", Persistent)
		for _, path := range []string{"/a/b/p", "/a/b", "/a", "/"} {
			w.Add("c", path, Recursive)
		}
	}
	expect.List(t, fired(w, evSet("/a/b/p"))["c"], []string{"NodeDataChanged /a/b/p"}, "told")
}

func TestDeletionTellsBothRegistriesOnce(t *testing.T) {
	w := New[string]()
	w.Add("both", "/a/p", Data)
	w.Add("both", "/a/p", Child)
	w.Add("both", "/a", Child)
	w.Add("list", "/a/p", Child)
	got := fired(w, evDelete("/a/p"))
	want := []string{"NodeDeleted /a/p", "NodeChildrenChanged /a"}
	expect.List(t, got["both"], want, "told %q", got["both"])
	want = []string{"NodeDeleted /a/p"}
	expect.List(t, got["list"], want, "told %q", got["list"])
	expect.Equal(t, w.Count(), 0, "watches left of four one-shot ones that all matched")
}

func TestChildListAndRecursiveAreTwoEvents(t *testing.T) {
	w := New[string]()
	w.Add("c", "/q", Child)
	w.Add("c", "/q", Recursive)
	got := fired(w, evCreate("/q/x"))["c"]
	want := []string{"NodeCreated /q/x", "NodeChildrenChanged /q"}
	expect.List(t, got, want, "told %q", got)
}

func TestMultiIsNotMerged(t *testing.T) {
	w := New[string]()
	w.Add("persistent", "/p", Persistent)
	w.Add("exists", "/p", Data)
	got := fired(w, evCreate("/p"), evSet("/p"), evDelete("/p"))
	if want := []string{"NodeCreated /p", "NodeDataChanged /p", "NodeDeleted /p"}; !slices.Equal(
		got["persistent"], want) {
		t.Errorf("told %q, want %q", got["persistent"], want)
	}
	want := []string{"NodeCreated /p"}
	expect.List(t, got["exists"], want, "told %q", got["exists"])
}

// A one-shot watch does not weaken a persistent watch. In ZooKeeper 3.8 it does.
func TestOneShotDoesNotWeakenPersistent(t *testing.T) {
	for _, k := range []Kind{Persistent, Recursive} {
		w := New[string]()
		w.Add("c", "/p", k)
		w.Add("c", "/p", Data)
		w.Add("c", "/p", Child)
		expect.Equal(t, len(fired(w, evSet("/p"), evSet("/p"))["c"]), 2, "told")
		w.Remove("c", "/p", jute.WatcherChildren)
		expect.That(t, w.Has("c", "/p", jute.WatcherAny),
			"the kinds do not live lives of their own: want w.Has(\"c\", \"/p\", jute.WatcherAny)")
		expect.That(t, !w.Has("c", "/p", jute.WatcherData),
			"the kinds do not live lives of their own: want !w.Has(\"c\", \"/p\", jute.WatcherData)")
		expect.That(t, !w.Has("c", "/p", jute.WatcherChildren),
			"the kinds do not live lives of their own: want !w.Has(\"c\", \"/p\", jute.WatcherChildren)")
	}
}

func TestOddPathsNeverFire(t *testing.T) {
	w := New[string]()
	for _, path := range []string{"", "bad", "/a/", "//a", "/a//b"} {
		w.Add("c", path, Recursive)
		w.Add("c", path, Persistent)
	}
	expect.Equal(t, len(fired(w, evCreate("/a"), evSet("/"), evCreate("/a/b"), evDelete("/a/b"))), 0,
		"told")
	expect.That(t, w.Has("c", "", jute.WatcherAny), "a watch on an odd path is accepted all the same")
}

func TestRemoveAndHasByWatcherType(t *testing.T) {
	kinds := []Kind{Data, Child, Persistent, Recursive}
	covers := map[int32][]Kind{
		jute.WatcherChildren: {Child}, jute.WatcherData: {Data}, jute.WatcherAny: kinds,
		jute.WatcherPersistent: {Persistent}, jute.WatcherPersistentRecursive: {Recursive}, 0: nil, 6: nil, -1: nil,
	}
	for typ, covered := range covers {
		expect.Equal(t, Known(typ), covered != nil, "Known(%d)", typ)
		for set := range modes(16) {
			w := New[string]()
			for _, k := range kinds {
				if set&(1<<k) != 0 {
					w.Add("c", "/a/p", k)
				}
				w.Add("other", "/a/p", k)
				w.Add("c", "/a", k)
			}
			want := false
			for _, k := range covered {
				want = want || set&(1<<k) != 0
			}
			expect.Equal(t, w.Has("c", "/a/p", typ), want, "type %d on modes %04b", typ, set)
			expect.Equal(t, w.Remove("c", "/a/p", typ), want, "type %d on modes %04b", typ, set)
			expect.That(t, !w.Remove("c", "/a/p", typ),
				"type %d on modes %04b: want found %v once: want !w.Remove(\"c\", \"/a/p\", typ)",
				typ, set, want)
			for _, k := range kinds {
				left := set&(1<<k) != 0 && !slices.Contains(covered, k)
				expect.Equal(t, w.Has("c", "/a/p", typeOf(k)), left,
					"type %d on modes %04b: kind %d left: %v", typ, set, k, !left)
				expect.That(t, w.Has("other", "/a/p", typeOf(k)),
					"type %d touched another connection or path: want w.Has(\"other\", \"/a/p\", typeOf(k))",
					typ)
				expect.That(t, w.Has("c", "/a", typeOf(k)),
					"type %d touched another connection or path: want w.Has(\"c\", \"/a\", typeOf(k))",
					typ)
			}
			checkWatches(t, w)
		}
	}
}

func typeOf(k Kind) int32 {
	return [...]int32{jute.WatcherData, jute.WatcherChildren, jute.WatcherPersistent,
		jute.WatcherPersistentRecursive}[k]
}

func TestCoveredPathIsNotWatched(t *testing.T) {
	w := New[string]()
	w.Add("c", "/a", Recursive)
	expect.That(t, !w.Has("c", "/a/b", jute.WatcherAny),
		"a recursive watch above is no watch at the path itself")
	expect.That(t, !w.Has("c", "/a/b", jute.WatcherPersistentRecursive),
		"a recursive watch above is no watch at the path itself")
}

func TestDroppedConnectionIsToldNothing(t *testing.T) {
	w := New[string]()
	for i := range 3 * dropAtOnce {
		w.Add("gone", fmt.Sprint("/p/", i), Data)
	}
	w.Add("gone", "/p", Recursive)
	w.Add("stays", "/p/1", Data)
	expect.That(t, w.Drop("gone"), "a large drop must leave something to sweep")
	conns, _, pairs := w.Summary()
	expect.Equal(t, conns, 1,
		"the dropped connection still counts: %d connections, %d pairs: conns", conns, pairs)
	expect.Equal(t, pairs, 1,
		"the dropped connection still counts: %d connections, %d pairs: pairs", conns, pairs)
	expect.Equal(t, w.Count(), 1,
		"the dropped connection still counts: %d connections, %d pairs: w.Count()",
		conns, pairs)
	expect.Equal(t, held(w, "gone"), 0,
		"the dropped connection still counts: %d connections, %d pairs", conns, pairs)
	expect.That(t, !w.Has("gone", "/p/0", jute.WatcherAny),
		"the dropped connection still counts: %d connections, %d pairs",
		conns, pairs)
	got := fired(w, evSet("/p/1"), evSet("/p/12000"))
	if expect.Equal(t, len(got["gone"]), 0, "told %q", got) {
		expect.Equal(t, len(got["stays"]), 1, "told %q", got)
	}
	// The same client comes back on a new connection with the same name.
	w.Add("gone", "/p/12000", Data)
	for w.Sweep(1000) {
	}
	checkWatches(t, w)
	if got := fired(w, evSet("/p/12000"))["gone"]; len(got) != 1 {
		t.Errorf("told %q after coming back", got)
	}
	_, paths, _ := w.Summary()
	expect.That(t, paths == 0 && w.Bytes() == 0, "%d paths, %d bytes left", paths, w.Bytes())
	expect.That(t, !w.Drop("never seen"), "nothing to sweep")
}

// held() returns the number of a connection's watches.
func held(w *Table[string], conn string) int {
	count, _ := w.Of(conn)
	return count
}

func TestCountsFollowZooKeeper(t *testing.T) {
	w := New[string]()
	w.Add("a", "/x", Data)
	w.Add("a", "/x", Persistent) // one pair in each registry
	w.Add("a", "/y", Recursive)  // one pair
	w.Add("b", "/x", Child)      // one pair, only in the child registry
	expect.Equal(t, w.Count(), 4,
		"Count %d, of a %d, of b %d: w.Count()", w.Count(), held(w, "a"), held(w, "b"))
	expect.Equal(t, held(w, "a"), 3,
		"Count %d, of a %d, of b %d", w.Count(), held(w, "a"), held(w, "b"))
	expect.Equal(t, held(w, "b"), 1,
		"Count %d, of a %d, of b %d", w.Count(), held(w, "a"), held(w, "b"))
	expect.Equal(t, held(w, "c"), 0,
		"Count %d, of a %d, of b %d", w.Count(), held(w, "a"), held(w, "b"))
	conns, paths, pairs := w.Summary()
	expect.That(t, conns == 1 && paths == 2 && pairs == 2,
		"%d connections watching %d paths, total %d", conns, paths, pairs)
}

func TestListingsShowTheDataRegistry(t *testing.T) {
	w := New[string]()
	want := map[string]bool{}
	for i := range 1000 {
		path, conn := fmt.Sprint("/p", i%300), fmt.Sprint("c", i%7)
		w.Add(conn, path, Kind(i%4))
		if Kind(i%4) != Child {
			want[path+" "+conn] = true
		}
	}
	got := map[string]int{}
	for from := uint32(0); ; {
		n := 0
		from = w.Scan(from, 10, func(path, conn string) { got[path+" "+conn]++; n++ })
		must.That(t, n <= 10+7, "%d pairs in one step", n)
		if from == 0 {
			break
		}
	}
	expect.Equal(t, len(got), len(want), "pairs listed")
	for pair, n := range got {
		expect.Equal(t, n, 1, "%s listed %d times: n", pair, n)
		expect.That(t, want[pair], "%s listed %d times: want want[pair]", pair, n)
	}
	_, _, pairs := w.Summary()
	expect.Equal(t, pairs, len(want), "Summary says %d pairs", pairs)
}

// Scan skips chunks that were freed, and misses no watch in the others.
func TestScanWhereManyWatchesWent(t *testing.T) {
	w := New[string]()
	path := func(i int) string { return fmt.Sprintf("/%d", i) }
	for i := range 6 * chunkSize {
		w.Add("a", path(i), Data)
	}
	stays := func(i int) bool { return i < chunkSize/2 || i >= 5*chunkSize }
	want := map[string]int{}
	for i := range 6 * chunkSize {
		if stays(i) {
			want[path(i)] = 1
		} else {
			w.Remove("a", path(i), jute.WatcherAny)
		}
	}
	gone := 0
	for _, c := range w.paths.chunks {
		if c == nil {
			gone++
		}
	}
	must.That(t, gone != 0, "no chunk was given back; the test looks at nothing")
	got := map[string]int{}
	for from, calls := uint32(0), 0; ; calls++ {
		if from = w.Scan(from, 100, func(path, _ string) { got[path]++ }); from == 0 {
			break
		}
		must.That(t, calls <= 100, "Scan does not end")
	}
	expect.That(t, maps.Equal(got, want), "Scan saw %d paths, want %d, each once", len(got), len(want))
}

func TestWatchersAt(t *testing.T) {
	w := New[int]()
	for c := range 20 {
		w.Add(c, "/a", Kind(c%4))
	}
	w.Add(1, "/b", Data)
	w.Drop(3)
	met := map[int]bool{}
	w.WatchersAt("/a", 100, func(c int) { met[c] = true })
	if expect.Equal(t, len(met), 19, "met %v: len(met)", met) {
		expect.That(t, !met[3], "met %v: want !met[3]", met)
	}
	n := 0
	w.WatchersAt("/a", 5, func(int) { n++ })
	w.WatchersAt("/none", 5, func(int) { n++ })
	expect.Equal(t, n, 5, "were met")
}
