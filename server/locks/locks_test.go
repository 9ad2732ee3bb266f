package locks_test

import (
	"fmt"
	"github.com/zlockd/zlockd/client/recipe"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/locks"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// forest is a tree that a test fills, and the sessions that watch its nodes.
type forest struct {
	tb      testing.TB
	t       *tree.Tree
	now     int64
	zxid    int64
	watches map[int64][]string
	lenient bool // the tree may refuse a change
}

func newForest(tb testing.TB) *forest {
	return &forest{tb: tb, t: tree.New(), watches: map[int64][]string{}}
}

func (f *forest) apply(session int64, op jute.OpCode, body []byte) {
	f.tb.Helper()
	f.zxid++
	f.now += 1000
	c := tree.Change{Zxid: f.zxid, Time: f.now, Session: session, IDs: []jute.ID{{Scheme: "super"}}}
	if _, code, _ := f.t.Apply(&c, op, body, nil); code != jute.OK && code != jute.NodeExists && !f.lenient {
		f.tb.Fatalf("%v: %v", op, code)
	}
}

func (f *forest) node(session int64, path, data string, flags int32, acl []jute.ACL) {
	f.tb.Helper()
	b := jute.AppendString(nil, path)
	b = jute.AppendString(b, data)
	f.apply(session, jute.OpCreate, jute.AppendInt(jute.AppendACL(b, acl), flags))
}

// dirs makes persistent nodes.
func (f *forest) dirs(paths ...string) {
	f.tb.Helper()
	for _, p := range paths {
		for i := 1; i < len(p); i++ {
			if p[i] == '/' {
				f.node(1, p[:i], "", 0, jute.WorldAnyone)
			}
		}
		f.node(1, p, "", 0, jute.WorldAnyone)
	}
}

// eph makes an ephemeral node exactly as named, with its directories.
func (f *forest) eph(session int64, path string, data ...string) {
	f.tb.Helper()
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		f.dirs(path[:i])
	}
	f.node(session, path, strings.Join(data, ""), 1, jute.WorldAnyone)
}

func (f *forest) set(path, data string) {
	f.tb.Helper()
	f.apply(1, jute.OpSetData, jute.AppendInt(jute.AppendString(jute.AppendString(nil, path), data), -1))
}

func (f *forest) remove(path string) {
	f.tb.Helper()
	f.apply(1, jute.OpDelete, jute.AppendInt(jute.AppendString(nil, path), -1))
}

func (f *forest) Watching(session int64, path string) (watching, known bool) {
	list, known := f.watches[session]
	return slices.Contains(list, path), known
}

func (f *forest) Watchers(path string, most int) (list []int64) {
	for s, paths := range f.watches {
		if slices.Contains(paths, path) && len(list) < most {
			list = append(list, s)
		}
	}
	slices.Sort(list)
	return list
}

func (f *forest) scan() []recipe.Queue {
	s := locks.NewScan()
	for more := true; more; s.Rest() {
		more = s.Step(f.t)
	}
	return s.Locks(f)
}

func (f *forest) at(path string) recipe.Queue {
	f.tb.Helper()
	a := locks.NewAt(path)
	for more := true; more; a.Rest() {
		more = a.Step(f.t)
	}
	q, ok := a.Lock(f)
	must.That(f.tb, ok, "%s is not there", path)
	return q
}

// short describes a queue in one line: kind, layouts, holders, waiters and their blockers, and members. Each
// node is shown as its session.
func short(q recipe.Queue) string {
	by := map[string]recipe.Session{}
	for _, l := range [][]recipe.Entry{q.Waiters, q.Holders} {
		for _, c := range l {
			by[c.Node] = c.Session
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v", q.Kind, q.Layouts)
	if q.Mixed {
		b.WriteString(" mixed")
	}
	for _, c := range q.Holders {
		fmt.Fprintf(&b, " *%d", int64(c.Session))
	}
	for _, c := range q.Waiters {
		fmt.Fprintf(&b, " %d", int64(c.Session))
		for i, n := range c.BlockedBy {
			fmt.Fprintf(&b, "%s%d", map[bool]string{true: "<", false: ","}[i == 0], int64(by[n]))
		}
	}
	for _, c := range q.Participants {
		fmt.Fprintf(&b, " +%d", int64(c.Session))
	}
	return b.String()
}

const (
	u1, u2, u3 = "0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d01", "0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d02",
		"0b4ae3a4-4fbd-4f4b-8d0f-4e5a7a0c1d03"
	h1, h2, h3 = "f65a711639a74cab9e5222dd97208501", "f65a711639a74cab9e5222dd97208502",
		"f65a711639a74cab9e5222dd97208503"
	z1, z2 = "01000000-0000-8001-8fff-4e5a7a0c1d01", "01000000-0000-8001-8fff-4e5a7a0c1d02" // zlock's: version 8
)

// recipes lists the nodes that each recipe makes. A line "SESSION NAME" is an ephemeral node, "dir NAME" a
// directory, "data NAME TEXT" its data, and "watch SESSION NAME" a watch.
var recipes = []struct{ name, nodes, want, recipe string }{
	{"Curator mutex", `
		2 L/_c_` + u2 + `-lock-0000000002
		1 L/_c_` + u1 + `-lock-0000000001
		3 L/_c_` + u3 + `-lock-0000000003`, "lock [curator] *1 2<1 3<2", "Curator mutex or leader selector"},
	{"Curator mutex without protection", `
		1 L/lock-0000000001
		2 L/lock-0000000002`, "lock [curator] *1 2<1", "sequential nodes"},
	{"Curator mutex behind the wrap", `
		1 L/lock-2147483647
		2 L/lock--2147483647`, "lock [curator] *1 2<1", ""},
	{"Curator read-write lock", `
		1 L/_c_` + u1 + `-__READ__0000000001
		2 L/_c_` + u2 + `-__READ__0000000002
		3 L/_c_` + u3 + `-__WRIT__0000000003
		4 L/_c_` + u1 + `-__READ__0000000004
		5 L/_c_` + u2 + `-__WRIT__0000000005`, "rwlock [curator] *1 *2 3<1,2 4<3 5<4", "Curator read-write lock"},
	{"Curator downgrade", `
		1 L/_c_` + u1 + `-__WRIT__0000000001
		1 L/_c_` + u2 + `-__READ__0000000002
		watch 1 /elsewhere`, "rwlock [curator] *1 *1", ""},
	{"Curator reader behind a writer of its own session", `
		1 L/_c_` + u1 + `-__WRIT__0000000001
		1 L/_c_` + u2 + `-__READ__0000000002
		watch 1 L/_c_` + u1 + `-__WRIT__0000000001`, "rwlock [curator] *1 1<1", ""},
	{"Curator semaphore", `
		dir L/locks
		1 L/leases/_c_` + u1 + `-lease-0000000001
		2 L/leases/_c_` + u2 + `-lease-0000000002`, "semaphore [curator] *1 *2", "Curator semaphore"},
	{"Curator semaphore with waiters", `
		3 L/locks/_c_` + u3 + `-lock-0000000004
		1 L/leases/_c_` + u1 + `-lease-0000000001
		2 L/leases/_c_` + u2 + `-lease-0000000002
		3 L/leases/_c_` + u3 + `-lease-0000000003
		4 L/locks/_c_` + u1 + `-lock-0000000005`, "semaphore [curator] *1 *2 3<1,2 4<3", "Curator semaphore"},
	{"Curator leader latch", `
		1 L/_c_` + u1 + `-latch-0000000001
		2 L/_c_` + u2 + `-latch-0000000002`, "latch [curator] *1 2<1", "Curator leader latch"},
	{"kazoo lock", `
		1 L/` + h1 + `__lock__0000000001
		2 L/` + h2 + `__lock__0000000002`, "lock [kazoo] *1 2<1", "kazoo lock or election"},
	{"kazoo read-write lock", `
		1 L/` + h1 + `__rlock__0000000001
		2 L/` + h2 + `__rlock__0000000002
		3 L/` + h3 + `__lock__0000000003`, "rwlock [kazoo] *1 *2 3<1,2", "kazoo read-write lock"},
	{"kazoo semaphore", `
		1 L/` + h1 + `
		2 L/` + h2 + `
		data L 2
		3 L-__lock__/` + h3 + `__lock__0000000000
		4 L-__lock__/` + h1 + `__lock__0000000001`, "semaphore [kazoo] *1 *2 3<1,2 4<3", "kazoo semaphore"},
	{"kazoo party", `
		1 L/` + h1 + `__party__
		2 L/` + h2 + `__party__`, "party [kazoo] +1 +2", "kazoo party"},
	{"go-zookeeper lock", `
		1 L/_c_` + h1 + `-lock-0000000000
		2 L/_c_` + h2 + `-lock-0000000001`, "lock [curator] *1 2<1", "go-zookeeper lock"},
	{"the C recipe", `
		1 L/x-0100000ae0210023-0000000004
		2 L/x-0100000ae0210024-0000000005`, "lock [x] *1 2<1", "ZooKeeper's lock recipe"},
	{"the Java recipe", `
		1 L/x-72057640919597091-0000000004
		2 L/x-72057640919597092-0000000003`, "lock [x] *2 1<2", "ZooKeeper's lock recipe"},
	{"host-R-n and host-W-n", `
		1 L/alpha-R-0000000001
		2 L/beta-W-0000000002
		3 L/gamma-R-0000000003`, "rwlock [host] *1 2<1 3<2", ""},
	{"a tutorial's lock", `
		1 L/lock0000000017
		2 L/lock0000000018`, "lock [plain] *1 2<1", "sequential nodes"},
	{"the manual's election", `
		1 L/guid-n_0000000001
		2 L/guid-n_0000000002`, "lock [plain] *1 2<1", ""},
	{"the manual's shared lock", `
		1 L/guid-read-0000000001
		2 L/guid-write-0000000002
		3 L/guid-read-0000000003`, "rwlock [plain] *1 2<1 3<2", ""},
	{"numbers nobody watches", `
		1 L/worker-0000000001
		2 L/worker-0000000002`, "unknown [plain] +1 +2", "not known"},
	{"numbers that the next one watches", `
		1 L/worker-0000000001
		2 L/worker-0000000002
		watch 2 L/worker-0000000001`, "lock [plain] *1 2<1", ""},
	{"a lone node that losers watch", `
		1 L
		watch 2 L
		watch 3 L`, "simple [lone] *1 2<1 3<1", "one ephemeral node"},
	{"zlock mutex", `
		1 L/_c_` + z1 + `-lock-0000000000
		2 L/_c_` + z2 + `-lock-0000000001`, "lock [curator] *1 2<1", "zlock lock"},
	{"zlock in kazoo's layout", `
		1 L/` + strings.ReplaceAll(z1, "-", "") + `__lock__0000000000
		2 L/` + h1 + `__lock__0000000001`, "lock [kazoo] *1 2<1", "zlock lock, kazoo lock or election"},
	{"zlock in the host layout", `
		1 L/web~` + strings.ReplaceAll(z1, "-", "") + `-W-0000000000
		2 L/db-R-0000000001`, "rwlock [host] *1 2<1", "zlock read-write lock"},
	{"zlock lock with a policy", `
		1 L/h-` + z1 + `-R
		2 L/q-` + z2 + `-W-0000000001
		data L {"zl":1,"layout":"rw1","policy":"writer"}`, "rwlock [rw1] *1 2<1", "zlock read-write lock"},
	{"zlock writer with a policy", `
		1 L/h-` + z1 + `-W
		1 L/q-` + z1 + `-W-0000000001
		2 L/q-` + z2 + `-R-0000000002
		data L {"zl":1,"layout":"rw1","policy":"writer"}`, "rwlock [rw1] *1 2<1", ""},
	{"zlock semaphore", `
		dir L/locks
		1 L/leases/_c_` + z1 + `-lease-0000000000
		data L {"zl":1,"limit":3}`, "semaphore [curator] *1", "zlock semaphore"},
	{"Curator semaphore whose queue is gone", `
		1 L/leases/_c_` + u1 + `-lease-0000000001
		2 L/leases/_c_` + u2 + `-lease-0000000002`, "semaphore [curator] *1 *2", "Curator semaphore"},
	{"zlock semaphore whose queue is gone", `
		1 L/leases/_c_` + z1 + `-lease-0000000000
		data L {"zl":1,"limit":3}`, "semaphore [curator] *1", "zlock semaphore"},
	{"zlock simple lock", `
		1 L/lock {"v":1,"host":"web"}
		watch 2 L`, "simple [lone] *1 2<1", "one ephemeral node"},
	{"two recipes in one directory", `
		1 L/_c_` + u1 + `-lock-0000000000
		2 L/` + h1 + `__lock__0000000001
		3 L/` + h2 + `__lock__0000000002`, "lock [curator kazoo] mixed *1 *2 3<2", ""},
	{"several of each recipe in one directory", `
		1 L/_c_` + u1 + `-lock-0000000000
		2 L/_c_` + u2 + `-lock-0000000001
		3 L/` + h1 + `__lock__0000000002
		4 L/` + h2 + `__lock__0000000003`, "lock [curator kazoo] mixed *1 *3 2<1 4<3", ""},
	{"zlock behind kazoo that looks at it", `
		1 L/` + h1 + `__lock__0000000000
		2 L/_c_` + z1 + `-lock-0000000001`, "lock [curator] *1 2<1", ""},
	{"a kazoo reader beside zlock's", `
		1 L/_c_` + z1 + `-lock-0000000000
		2 L/` + h1 + `__rlock__0000000001`, "unknown [curator kazoo] mixed *1 *2", ""},
	{"kazoo beside zlock's read-write lock", `
		1 L/_c_` + z1 + `-__READ__0000000000
		2 L/` + h1 + `__lock__0000000001`, "unknown [curator kazoo] mixed *1 *2", ""},
	{"kazoo and its reader beside zlock's", `
		1 L/_c_` + z1 + `-lock-0000000000
		2 L/` + h1 + `__lock__0000000001
		3 L/` + h2 + `__rlock__0000000002`, "unknown [curator kazoo] mixed *1 *2 3<2", ""},
	{"zlock queue with a policy", `
		1 L/h-` + z1 + `-R
		2 L/h-` + u1 + `-R
		3 L/q-` + z2 + `-W-0000000001
		4 L/q-` + u2 + `-R-0000000002
		5 L/q-` + u3 + `-W-0000000003`, "rwlock [rw1] *1 *2 3<1,2 4<3 5<4", ""},
	{"zlock queue with a policy that nobody holds", `
		1 L/q-` + z1 + `-R-0000000001
		2 L/q-` + z2 + `-R-0000000002
		3 L/q-` + u1 + `-W-0000000003
		4 L/q-` + u2 + `-R-0000000004`, "rwlock [rw1] 1 2 3<1,2 4<3", ""},
	{"numbers of one session that watches itself", `
		1 L/worker-0000000001
		1 L/worker-0000000002
		watch 1 L/worker-0000000001`, "unknown [plain] +1 +1", "not known"},
	{"Curator semaphore whose permits are all granted", `
		2 L/locks/_c_` + u2 + `-lock-0000000003
		1 L/leases/_c_` + u1 + `-lease-0000000001
		2 L/leases/_c_` + u2 + `-lease-0000000002
		watch 2 /elsewhere`, "semaphore [curator] *1 *2 2<1,2", "Curator semaphore"},
	{"kazoo that looks at zlock's", `
		1 L/_c_` + z1 + `-lock-0000000000
		2 L/` + h1 + `__lock__0000000001`, "lock [curator] *1 2<1", ""},
}

func (f *forest) build(lines string) {
	f.tb.Helper()
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		w := strings.Fields(line)
		path := func(s string) string { return strings.Replace(s, "L", "/app/it", 1) }
		var session int64
		switch w[0] {
		case "dir":
			f.dirs(path(w[1]))
		case "data":
			f.set(path(w[1]), w[2])
		case "watch":
			fmt.Sscan(w[1], &session)
			f.watches[session] = append(f.watches[session], path(w[2]))
		default:
			fmt.Sscan(w[0], &session)
			f.eph(session, path(w[1]), w[2:]...)
		}
	}
}

// For each recipe, the holders, the order of the waiters and their blockers are recognized. A scan of all
// locks and a look at one lock give the same result.
func TestEveryRecipeIsRecognised(t *testing.T) {
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			f := newForest(t)
			f.build(r.nodes)
			found := f.scan()
			must.Equal(t, len(found), 1, "found %+v: len(found)", found)
			must.Equal(t, found[0].Path, "/app/it", "found %+v: found[0].Path", found)
			if got := short(found[0]); got != r.want {
				t.Errorf("got  %s\nwant %s", got, r.want)
			}
			if q := found[0]; q.Total != len(q.Holders)+len(q.Waiters)+len(q.Participants) {
				t.Errorf("%d in all, of %s", q.Total, r.want)
			}
			got := found[0].Recipe()
			expect.That(t, r.recipe == "" || got == r.recipe, "recipe %q", got)
			if got := short(f.at("/app/it")); got != r.want {
				t.Errorf("looked at alone: %s\nwant %s", got, r.want)
			}
		})
	}
}

// A directory without ephemeral contenders is not a lock, and a group of members is not a lock.
func TestWhatIsNoLock(t *testing.T) {
	f := newForest(t)
	f.dirs("/k/lock", "/seq/lock-0000000000", "/sem/locks", "/sem/leases")
	f.eph(1, "/brokers/ids/1")
	f.eph(2, "/brokers/ids/2")
	f.watches[3] = []string{"/brokers/ids/1", "/brokers/ids/2"} // the watches of Kafka's controller
	f.eph(4, "/services/web/"+u1)
	expect.Equal(t, len(f.scan()), 0, "found")
	q := f.at("/k")
	expect.Equal(t, q.Kind, recipe.KindUnknown,
		"a directory above a directory named lock is %+v: q.Kind", q)
	expect.That(t, len(q.Holders)+len(q.Waiters)+len(q.Participants) <= 0,
		"a directory above a directory named lock is %+v",
		q)
}

// The name "leases" alone does not make a directory a part of a semaphore.
func TestDirectoryNamedLeases(t *testing.T) {
	f := newForest(t)
	f.dirs("/cars/leases")
	f.eph(1, "/cars/leases/lock-0000000001")
	f.eph(2, "/cars/leases/lock-0000000002")
	found := f.scan()
	if expect.Equal(t, len(found), 1, "found %+v: len(found)", found) {
		expect.Equal(t, found[0].Path, "/cars/leases", "found %+v: found[0].Path", found)
		expect.Equal(t, found[0].Kind, recipe.KindLock, "found %+v: found[0].Kind", found)
		expect.Equal(t, len(found[0].Waiters), 1, "found %+v: len(found[0].Waiters)", found)
	}
	expect.Equal(t, f.at("/cars").Kind, recipe.KindUnknown, "the directory above")
	expect.Equal(t, f.at("/cars/leases").Kind, recipe.KindLock, "looked at alone")
}

// The number of permits is read from the semaphore's node, whichever of its directories has contenders.
func TestLimitOfASemaphore(t *testing.T) {
	for _, below := range []string{"/leases/" + u1 + "-lease-0000000001", "/locks/" + u1 + "-lock-0000000001"} {
		f := newForest(t)
		f.dirs("/sem/locks", "/sem/leases")
		f.set("/sem", `{"zl":1,"limit":3}`)
		f.eph(1, "/sem"+below)
		found := f.scan()
		must.Equal(t, len(found), 1, "%s", below)
		alone := f.at("/sem")
		expect.Equal(t, found[0].Limit, 3, "%s: found[0].Limit", below)
		expect.Equal(t, alone.Limit, 3, "%s: alone.Limit", below)
	}
}

// A directory may have the name of a queue of kazoo's semaphore. If the node beside the directory is not such
// a semaphore, the directory is a plain lock.
func TestDirectoryNamedLikeAQueue(t *testing.T) {
	f := newForest(t)
	f.dirs("/app/it")
	f.eph(1, "/app/it-__lock__/"+h1+"__lock__0000000001")
	found := f.scan()
	if expect.Equal(t, len(found), 1, "found %+v: len(found)", found) {
		expect.Equal(t, found[0].Path, "/app/it-__lock__", "found %+v: found[0].Path", found)
		expect.Equal(t, found[0].Kind, recipe.KindLock, "found %+v: found[0].Kind", found)
	}
	expect.Equal(t, f.at("/app/it").Kind, recipe.KindUnknown, "the node beside it")
	expect.Equal(t, len(f.at("/app/it-__lock__").Holders), 1, "looked at alone")
}

// If world:anyone may not read a node, the owner record of the node stays hidden.
func TestDataIsNotShownToStrangers(t *testing.T) {
	f := newForest(t)
	f.dirs("/l")
	f.node(1, "/l/lock-0000000001", `{"v":1,"host":"secret"}`, 1, []jute.ACL{
		{Perms: 31, ID: jute.ID{Scheme: "digest", ID: "a:b"}}})
	q := f.scan()[0]
	c := &q.Holders[0]
	_, ok := c.Record()
	expect.That(t, !ok, "shown: %+v: want !ok", c)
	expect.That(t, c.Hidden, "shown: %+v: want c.Hidden", c)
	expect.Equal(t, c.Text(100), "", "shown: c.Text(100)")
}

func TestTooMany(t *testing.T) {
	f := newForest(t)
	f.dirs("/big")
	const n = 5000
	for i := range n {
		f.node(int64(1+i%7), fmt.Sprintf("/big/lock-%010d", n-1-i), "", 1, jute.WorldAnyone)
	}
	for _, q := range []recipe.Queue{f.scan()[0], f.at("/big")} {
		shown := len(q.Holders) + len(q.Waiters)
		must.Equal(t, q.Total, n, "%d in all, %d shown: q.Total", q.Total, shown)
		must.That(t, shown >= locks.ShownPerLock && shown < 2*locks.ShownPerLock,
			"%d in all, %d shown: want shown >= locks.ShownPerLock && shown < 2*locks.ShownPerLock",
			q.Total, shown)
		expect.Equal(t, q.Holders[0].Node, "lock-0000000000",
			"the first are %s, %s: q.Holders[0].Node", q.Holders[0].Node, q.Waiters[0].Node)
		expect.Equal(t, q.Waiters[0].Node, "lock-0000000001",
			"the first are %s, %s: q.Waiters[0].Node", q.Holders[0].Node, q.Waiters[0].Node)
	}
}

// A scan without room for more contenders counts those that it leaves out.
func TestAScanKeepsSoManyContenders(t *testing.T) {
	f := newForest(t)
	f.hold("/a", 1, 2, 3)
	f.hold("/b", 4)
	for most := range 5 {
		s := locks.NewScan()
		s.Keep(most)
		for more := true; more; s.Rest() {
			more = s.Step(f.t)
		}
		kept, total := 0, map[string]int{}
		for _, g := range s.Groups() {
			kept += len(g.Nodes)
			total[g.Path] = g.Total
			expect.Equal(t, g.Cut, len(g.Nodes) < g.Total, "of %d: %s is cut", most, g.Path)
		}
		expect.Equal(t, kept, most, "of %d it keeps %d, truncated: kept", most, kept)
		expect.Equal(t, s.Truncated, most < 4,
			"of %d it keeps %d, truncated: s.Truncated", most, kept)
		expect.Equal(t, s.Total, 4, "of %d it keeps %d, truncated: s.Total", most, kept)
		expect.Equal(t, total["/a"], 3, "of %d it keeps %d, truncated", most, kept)
		expect.Equal(t, total["/b"], 1, "of %d it keeps %d, truncated", most, kept)
	}
}

// A scan without room for more contenders takes no memory for further directories.
func TestAFullScanLearnsNoMoreDirectories(t *testing.T) {
	f := newForest(t)
	const n = 20 * locks.NodesAtOnce
	for i := range n {
		f.hold(fmt.Sprintf("/d%d", i), 1)
	}
	s := locks.NewScan()
	s.Keep(1)
	for more := true; more; s.Rest() {
		more = s.Step(f.t)
	}
	kept := len(s.Groups())
	expect.Equal(t, s.Total, n, "%d contenders, truncated: s.Total", s.Total)
	expect.That(t, s.Truncated,
		"%d contenders, truncated: %v, %d directories: want s.Truncated",
		s.Total, s.Truncated, kept)
	expect.That(t, kept > 0 && kept <= locks.NodesAtOnce,
		"%d contenders, truncated: %v, %d directories: want kept > 0 && kept <= locks.NodesAtOnce",
		s.Total, s.Truncated, kept)
	found := s.Locks(f)
	if expect.Equal(t, len(found), 1, "found %d: len(found)", len(found)) {
		expect.Equal(t, len(found[0].Holders), 1,
			"found %d: len(found[0].Holders)", len(found))
	}
}

// A path without a node has no lock.
func TestNoNodeIsNoLock(t *testing.T) {
	a := locks.NewAt("/none")
	a.Step(newForest(t).t)
	a.Rest()
	q, there := a.Lock(newForest(t))
	expect.That(t, !there, "without a node: %v %+v: want !there", there, q)
	expect.Equal(t, q.Kind, recipe.KindUnknown, "without a node: q.Kind")
	expect.Equal(t, q.Path, "/none", "without a node: q.Path")
}

// A free lock shows the number of its next contender.
func TestAFreeLockTellsTheNextNumber(t *testing.T) {
	f := newForest(t)
	f.dirs("/free")
	for range 3 {
		f.node(1, "/free/lock-", "", 3, jute.WorldAnyone)
	}
	for i := range 3 {
		path := fmt.Sprintf("/free/lock-%010d", i)
		f.apply(1, jute.OpDelete, jute.AppendInt(jute.AppendString(nil, path), -1))
	}
	expect.Equal(t, f.at("/free").Next, 3, "the next number")
}

// A group keeps contenders until it has twice as many as are shown. Then it drops all that are not shown.
// After that it keeps only contenders that come before one of those.
func TestACrowdIsCut(t *testing.T) {
	for n, most := range map[int]int{2*locks.ShownPerLock - 1: 2*locks.ShownPerLock - 1,
		2 * locks.ShownPerLock: locks.ShownPerLock, locks.ShownPerLock * 5 / 2: locks.ShownPerLock} {
		f := newForest(t)
		f.dirs("/big")
		for i := range n { // the newest node is met first
			f.node(1, fmt.Sprintf("/big/lock-%010d", n-1-i), "", 1, jute.WorldAnyone)
		}
		for _, q := range []recipe.Queue{f.scan()[0], f.at("/big")} {
			shown := len(q.Holders) + len(q.Waiters)
			expect.Equal(t, q.Total, n, "%d of %d are kept: q.Total", shown, n)
			expect.That(t, shown >= locks.ShownPerLock && shown <= most,
				"%d of %d are kept: want shown >= locks.ShownPerLock && shown <= most", shown, n)
		}
	}
}

// In a crowd, a name may be too short to contain a number.
func TestShortNameInACrowd(t *testing.T) {
	f := newForest(t)
	f.dirs("/big")
	for i := range 4 * locks.ShownPerLock {
		f.node(1, fmt.Sprintf("/big/lock-%010d", i), "", 1, jute.WorldAnyone)
		if i%100 == 0 { // short names among all the others
			f.node(1, fmt.Sprintf("/big/x%d", i), "", 1, jute.WorldAnyone)
		}
	}
	if found := f.scan(); !slices.ContainsFunc(found, func(q recipe.Queue) bool {
		return q.Path == "/big" &&
			q.Total >= 3*locks.ShownPerLock
	}) {
		t.Errorf("found %d locks, not that of the crowd", len(found))
	}
	f.at("/big")
}

// Locks are found directly below the root and in very deep directories.
func TestLocksAnywhere(t *testing.T) {
	f := newForest(t)
	f.eph(1, "/lock-0000000000")
	deep := strings.Repeat("/d", 120)
	f.eph(2, deep+"/lock-0000000000")
	found := f.scan()
	if expect.Equal(t, len(found), 2, "len(found)") {
		expect.Equal(t, found[0].Path, "/", "found[0].Path")
		expect.Equal(t, found[1].Path, deep, "found[1].Path")
	}
}

// A scan keeps a limited number of bytes of paths, even if a few contenders are very deep in the tree.
func TestAScanKeepsSoManyBytesOfPaths(t *testing.T) {
	f := newForest(t)
	deep := strings.Repeat("/"+strings.Repeat("d", 200), 5)
	const n = 3 * locks.NodesAtOnce
	for i := range n {
		f.hold(fmt.Sprintf("%s/%d", deep, i), 1)
	}
	s := locks.NewScan()
	s.KeepPaths(100 * len(deep))
	for more := true; more; s.Rest() {
		more = s.Step(f.t)
	}
	kept, bytes := s.Read()
	expect.Equal(t, kept, n, "contenders met")
	expect.That(t, s.Truncated, "the scan does not say that it is cut")
	expect.That(t, bytes <= (100+locks.NodesAtOnce)*(len(deep)+8), "%d bytes of paths kept", bytes)
}
