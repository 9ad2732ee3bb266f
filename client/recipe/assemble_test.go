package recipe

import (
	"slices"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// watches says which sessions watch which path.
type watches map[string][]int64

func (w watches) Watching(session int64, path string) (watching, known bool) {
	return slices.Contains(w[path], session), true
}

func (w watches) Watchers(path string, most int) []int64 { return w[path][:min(most, len(w[path]))] }

// A node that a caller read twice is one contender. All are counted before a list is cut.
func TestNodeReadTwiceIsOneContender(t *testing.T) {
	for cut, want := range map[bool]int{false: 3, true: 4} {
		d := Dir{Nodes: []Node{{Name: "lock-0000000002"}, {Name: "lock-0000000001"}, {Name: "lock"},
			{Name: "lock-0000000002"}}, Total: 4, Cut: cut}
		last, numbed := new(Sorter).Sort(&d)
		var names []string
		for _, n := range d.Nodes {
			names = append(names, n.Name)
		}
		expect.List(t, names, []string{"lock", "lock-0000000001", "lock-0000000002"}, "cut %v", cut)
		expect.That(t, d.Total == want && last == 2 && numbed, "cut %v: %d, the last is %d", cut, d.Total, last)
	}
}

// The holder of a lock that is one node is at the lock's path. Its watchers wait for it, unless they watch
// all nodes of the directory.
func TestNodeWithoutANumberIsALock(t *testing.T) {
	d := Dir{Path: "/d", Nodes: []Node{{Name: "blue", Session: 1, Ctime: 7}, {Name: "green", Session: 2},
		{Name: "red", Session: 3}}, Total: 3, Next: 9}
	list := Assemble([]*Dir{&d}, watches{"/d/blue": {1, 4, 5}, "/d/green": {5}, "/d/red": {5, 6}})
	must.Equal(t, len(list), 2)
	q := list[0]
	must.That(t, q.Path == "/d/blue" && list[1].Path == "/d/red" && len(q.Holders) == 1 && len(q.Waiters) == 1,
		"%+v", list)
	h, w := q.Holders[0], q.Waiters[0]
	expect.That(t, q.Total == 2 && q.Next == 0 && h.Node == "" && h.Session == 1 && h.HeldSince == 7, "%+v", q)
	expect.That(t, w.Session == 4 && w.Watch && w.Mode == Exclusive && slices.Equal(w.BlockedBy, []string{""}),
		"%+v", w)
}

// A name like one of ZooKeeper's recipes has a session behind its x.
func TestNamesOfZooKeepersRecipes(t *testing.T) {
	for name, want := range map[string]Layout{
		"x-1f-0000000001": LayoutZooKeeper, "x--1f-0000000001": LayoutZooKeeper,
		"x-0x1f-0000000001": LayoutZooKeeper, "x-notes-0000000001": LayoutPlain, "x--0000000001": LayoutPlain,
		"1f-0000000001": LayoutPlain, "x-123456789012345678901-0000000001": LayoutPlain,
	} {
		expect.Equal(t, describe(name).layout, want, "%s", name)
	}
}

// Each byte of an id with dashes is looked at.
func TestIDsWithDashes(t *testing.T) {
	id := NewID(0x123456789abcdef, 42)
	text := id.UUID()
	got, ok := ParseUUID(text)
	expect.That(t, ok && got == id, "%s is read as %v", text, got)
	for i := range text {
		_, ok := ParseUUID(text[:i] + "g" + text[i+1:])
		expect.That(t, !ok, "%s is an id with a g at %d", text, i)
		_, ok = ParseUUID(text[:i] + text[i+1:])
		expect.That(t, !ok, "%s is an id without the byte at %d", text, i)
		made := MakerOf("_c_" + text[:i] + "g" + text[i+1:] + "-")
		marks := slices.Contains([]int{8, 13, 14, 18, 19, 23}, i)
		expect.That(t, marks == (made != MakerSelf), "%s with a g at %d is made by %v", text, i, made)
	}
	expect.List(t, Bearing([]string{"_c_" + text + "-lock-", "lock-", id.Hex() + "__lock__"}, id),
		[]string{"_c_" + text + "-lock-", id.Hex() + "__lock__"}, "bearing the id")
}
