package turns

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// watches says which sessions watch which path.
type watches map[string][]int64

func (w watches) Watching(session int64, path string) (watching, known bool) {
	return slices.Contains(w[path], session), true
}

func (w watches) Watchers(path string, most int) []int64 { return w[path][:min(most, len(w[path]))] }

// A node that a caller read twice is one contender. The total of a list that was cut includes duplicates.
func TestNodeReadTwiceIsOneContender(t *testing.T) {
	for cut, want := range map[bool]int{false: 3, true: 4} {
		d := Dir{Nodes: []recipe.Node{{Name: "lock-0000000002"}, {Name: "lock-0000000001"}, {Name: "lock"},
			{Name: "lock-0000000002"}}, Total: 4, Cut: cut}
		last, numbed := new(Sorter).Sort(&d)
		var names []string
		for _, n := range d.Nodes {
			names = append(names, n.Name)
		}
		expect.List(t, names, []string{"lock", "lock-0000000001", "lock-0000000002"}, "cut %v", cut)
		expect.Equal(t, d.Total, want, "cut %v: d.Total", cut)
		expect.Equal(t, last, 2, "cut %v: last", cut)
		expect.That(t, numbed, "cut %v: %d, the last is %d: want numbed", cut, d.Total, last)
	}
}

// If a node is itself a lock, the path of the lock is the path of this node. Sessions that watch the node
// wait for it, unless they watch all nodes of the directory.
func TestNodeWithoutANumberIsALock(t *testing.T) {
	d := Dir{Path: "/d", Nodes: []recipe.Node{{Name: "blue", Session: 1, Ctime: 7}, {Name: "green", Session: 2},
		{Name: "red", Session: 3}}, Total: 3, Next: 9}
	list := Assemble([]*Dir{&d}, watches{"/d/blue": {1, 4, 5}, "/d/green": {5}, "/d/red": {5, 6}})
	must.Equal(t, len(list), 2)
	q := list[0]
	must.Equal(t, q.Path, "/d/blue", "q.Path")
	must.Equal(t, list[1].Path, "/d/red", "list[1].Path")
	must.Equal(t, len(q.Holders), 1, "len(q.Holders)")
	must.Equal(t, len(q.Waiters), 1, "len(q.Waiters)")
	h, w := q.Holders[0], q.Waiters[0]
	expect.Equal(t, q.Total, 2, "q.Total")
	expect.Equal(t, q.Next, 0, "q.Next")
	expect.Equal(t, h.Node, "", "h.Node")
	expect.Equal(t, h.Session, 1, "h.Session")
	expect.Equal(t, h.HeldSince, 7, "h.HeldSince")
	expect.Equal(t, w.Session, 4, "w.Session")
	expect.That(t, w.Watch, "%+v: want w.Watch", w)
	expect.Equal(t, w.Mode, recipe.Exclusive, "w.Mode")
	expect.List(t, w.BlockedBy, []string{""}, "w.BlockedBy")
}

// named() returns a directory with the given nodes, and a function that replaces the long names of these
// nodes in a text by short ones.
func named(nodes map[string]recipe.Node) (*Dir, func(string) string) {
	d, names := dirOf("/d"), []string{}
	for short, n := range nodes {
		d.Nodes = append(d.Nodes, n)
		names = append(names, n.Name, short)
	}
	d.Total = len(d.Nodes)
	return d, strings.NewReplacer(names...).Replace
}

// Contenders that see each other are one queue. Other contenders beside them make the lock a mixed one.
func TestContendersOfOneDirectory(t *testing.T) {
	node := func(l recipe.Layout, k recipe.Role, session int64, seq int) recipe.Node {
		name := recipe.NodeName(l, k, recipe.NewID(session, 5), "h") + fmt.Sprintf("%010d", seq)
		return recipe.Node{Name: name, Session: session}
	}
	mine := func(k recipe.Role, session int64, seq int) recipe.Node {
		return node(recipe.LayoutCurator, k, session, seq)
	}
	curator := func(text string, session int64, seq int) recipe.Node {
		return recipe.Node{Name: fmt.Sprintf("_c_%08d-1111-4111-8111-111111111111-%s%010d", session, text, seq),
			Session: session}
	}
	ours := mine(recipe.RoleLock, 1, 2)
	theirs := recipe.Node{Name: "f65a711639a74cab9e5222dd97208552__lock__0000000001", Session: 2}
	hold := func(id int64, k recipe.PolicyRole) recipe.Node {
		return recipe.Node{Name: recipe.PolicyNode{ID: recipe.NewID(id, 5), Kind: k}.Name(true), Session: id}
	}
	wait := func(id int64, k recipe.PolicyRole, seq int) recipe.Node {
		name := recipe.PolicyNode{ID: recipe.NewID(id, 5), Kind: k, Seq: int32(seq)}.Name(true)
		return recipe.Node{Name: name, Session: id}
	}
	for want, nodes := range map[string]map[string]recipe.Node{
		"lock 2: k | o for k":        {"o": ours, "k": theirs}, // kazoo's lock may look at package client's
		"unknown 2: k w mixed twice": {"w": mine(recipe.RoleWrite, 1, 2), "k": theirs},
		"lock 2: y o mixed twice":    {"o": ours, "y": node(recipe.LayoutKazoo, recipe.RoleLock, 2, 1)},
		"lock 3: o | l for o | p for l": {"p": mine(recipe.RoleLock, 3, 3),
			"o": mine(recipe.RoleLock, 1, 1), "l": mine(recipe.RoleLatch, 2, 2)},
		"lock 2: o | l for o": {"o": mine(recipe.RoleLock, 1, 1),
			"l": mine(recipe.RoleLatch, 2, 2)},
		"unknown 2: c m mixed twice": {"c": curator("lock-", 1, 1), "m": curator("latch-", 2, 2)},
		// A mutex of Curator sees neither Curator's read-write lock nor its latch. A mutex of package client sees
		// all.
		"unknown 2: c d mixed twice": {"c": curator("lock-", 1, 1), "d": curator("__READ__", 2, 2)},
		"unknown 3: d c | e for c mixed twice": {"c": curator("__WRIT__", 1, 1),
			"e": curator("__READ__", 2, 2), "d": curator("lock-", 3, 3)},
		"rwlock 2: o | w for o": {"o": ours, "w": mine(recipe.RoleWrite, 3, 3)},
		"latch 2: l | m for l": {"l": mine(recipe.RoleLatch, 1, 1),
			"m": mine(recipe.RoleLatch, 2, 2)},
		"rwlock 2: a b":        {"a": hold(1, recipe.HoldRead), "b": hold(2, recipe.HoldRead)},
		"rwlock 2: a | b for ": {"a": hold(1, recipe.HoldRead), "b": wait(2, recipe.QueueRead, 1)},
		"rwlock 1: a":          {"a": hold(1, recipe.HoldRead), "b": wait(1, recipe.QueueRead, 1)}, // one contender
		"rwlock 3: a b | c for a+b": {"a": hold(1, recipe.HoldRead),
			"b": hold(2, recipe.HoldRead), "c": wait(3, recipe.QueueWrite, 1)},
		"rwlock 2: a | b for a":       {"a": hold(1, recipe.HoldWrite), "b": wait(2, recipe.QueueRead, 1)},
		"rwlock 2: | a for | b for a": {"a": wait(1, recipe.QueueRead, 1), "b": wait(2, recipe.QueueWrite, 2)},
		"rwlock 3: | a for | b for a | c for b": {"a": wait(1, recipe.QueueWrite, 1),
			"b": wait(2, recipe.QueueWrite, 2), "c": wait(3, recipe.QueueRead, 3)},
		"rwlock 6: a b | c for a+b | d for c | e for c | f for d+e": {
			"a": mine(recipe.RoleRead, 1, 1), "b": mine(recipe.RoleRead, 2, 2),
			"c": mine(recipe.RoleWrite, 3, 3), "d": mine(recipe.RoleRead, 4, 4),
			"e": mine(recipe.RoleRead, 5, 5), "f": mine(recipe.RoleWrite, 6, 6)},
	} {
		d, short := named(nodes)
		got := strings.TrimPrefix(short(shown([]*Dir{d}, watches{})), "/d ")
		for _, q := range Assemble([]*Dir{d}, watches{}) {
			if q.Mixed {
				got += " mixed"
			}
			if q.HeldTwice {
				got += " twice"
			}
		}
		got = strings.Join(strings.Fields(strings.ReplaceAll(got, "participant ", "")), " ")
		expect.Equal(t, got, strings.TrimSpace(want))
	}
}

// Numbered nodes of an unknown program are a lock if their names say so, or if the session of a later node
// watches the node before it.
func TestNodesOfAnUnknownProgram(t *testing.T) {
	jobs := func(word string, sessions ...int64) (nodes []recipe.Node) {
		for i, s := range sessions {
			nodes = append(nodes, recipe.Node{Name: fmt.Sprintf("%s-%010d", word, i+1), Session: s})
		}
		return nodes
	}
	for name, c := range map[string]struct {
		nodes []recipe.Node
		w     Watches
		want  recipe.Kind
	}{
		"not seen":              {jobs("job", 1, 2, 3), nil, recipe.KindLock},
		"unwatched":             {jobs("job", 1, 2, 3), watches{}, recipe.KindUnknown},
		"the last watches":      {jobs("job", 1, 2, 3), watches{"/d/job-0000000002": {3}}, recipe.KindLock},
		"another watches":       {jobs("job", 1, 2, 3), watches{"/d/job-0000000002": {1}}, recipe.KindUnknown},
		"a session itself":      {jobs("job", 1, 1), watches{"/d/job-0000000001": {1}}, recipe.KindUnknown},
		"a name of locks":       {jobs("lock", 1, 2), watches{}, recipe.KindLock},
		"one name that is none": {append(jobs("lock", 1), jobs("job", 1, 2)[1]), watches{}, recipe.KindUnknown},
		"far behind": {jobs("job", 1, 2, 3, 4, 5, 6, 7, 8, 9), watches{"/d/job-0000000008": {9}},
			recipe.KindUnknown},
		"not so far": {jobs("job", 1, 2, 3, 4, 5, 6, 7, 8, 9), watches{"/d/job-0000000007": {8}}, recipe.KindLock},
	} {
		q := Assemble([]*Dir{dirOf("/d", c.nodes...)}, c.w)[0]
		expect.Equal(t, q.Kind, c.want, "%s", name)
	}
}

// A node without a number is a lock if its name says so or another session watches it. A session that watches
// several such nodes waits for none of them.
func TestWaitersOfNodesWithoutANumber(t *testing.T) {
	for want, c := range map[string]struct {
		names []string
		w     Watches
	}{
		"":                    {[]string{"a", "b"}, watches{}},
		"/d/a 2":              {[]string{"a", "b"}, watches{"/d/a": {7}}},
		"/d/a 3":              {[]string{"a", "b"}, watches{"/d/a": {7, 8, 1}}}, // session 1 made node a itself
		"/d/b 2":              {[]string{"a", "b"}, watches{"/d/a": {7}, "/d/b": {7, 8}}},
		"/d/leader 1":         {[]string{"leader", "b"}, watches{}},
		"/d/leader 2":         {[]string{"leader", "b"}, watches{"/d/leader": {7}, "/d/b": {7}}},
		"/d/b 2; /d/leader 2": {[]string{"leader", "b"}, watches{"/d/leader": {7}, "/d/b": {8}}},
		"/d 1; /d/leader 1":   {[]string{"leader", "lock-0000000001"}, watches{}},
	} {
		d := dirOf("/d")
		for i, name := range c.names {
			d.Nodes = append(d.Nodes, recipe.Node{Name: name, Session: int64(i + 1)})
		}
		d.Total = len(d.Nodes)
		var got []string
		for _, q := range Assemble([]*Dir{d}, c.w) {
			got = append(got, fmt.Sprintf("%s %d", q.Path, q.Total))
		}
		expect.Equal(t, strings.Join(got, "; "), want)
	}
}

// everywhere(n) is a Watches for which n sessions watch every path.
type everywhere int

func (n everywhere) Watching(int64, string) (watching, known bool) { return true, true }
func (n everywhere) Watchers(_ string, most int) []int64 {
	list := make([]int64, min(most, int(n)))
	for i := range list {
		list[i] = int64(i + 1)
	}
	return list
}

// All watchers of many nodes are counted, but only some of them become entries.
func TestWatchersOfManyNodes(t *testing.T) {
	d := &Dir{Path: "/w"}
	const nodes, sessions = 1000, 45
	for i := range nodes {
		d.Nodes = append(d.Nodes, recipe.Node{Name: fmt.Sprint("lock", i), Session: 99})
	}
	d.Total = nodes
	entries, total := 0, 0
	for _, q := range Assemble([]*Dir{d}, everywhere(sessions)) {
		entries, total = entries+len(q.Waiters), total+q.Total
	}
	expect.Equal(t, total, nodes*(1+sessions), "contenders counted")
	expect.Equal(t, entries, allWatchers, "entries of watchers")
}
