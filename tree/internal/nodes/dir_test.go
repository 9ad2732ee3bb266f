package nodes

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// Random changes to a directory, which grows large and shrinks again, leave it equal to a sorted slice.
func TestDirAgainstSlice(t *testing.T) {
	race.Alone(t)
	seed := maphash.MakeSeed()
	r := rand.New(rand.NewPCG(1, 2))
	d := &Dir{}
	var plain []*Node
	largest := 0
	for i := range 60_000 {
		// Three or six of 8 steps add a child, so that d shrinks, grows, and shrinks again.
		grow := 3 * (1 + i/20_000%2)
		switch {
		case r.IntN(8) < grow || len(plain) == 0:
			n := &Node{Name: fmt.Sprint("node-", i)}
			plain = append(plain, n)
			d.Add(seed, n)
		case r.IntN(2) == 0: // remove and put back, as a failed multi does
			p := r.IntN(len(plain))
			n := plain[p]
			d.Remove(seed, d.Nodes[p].Name)
			must.That(t, d.find(seed, n.Name) < 0, "still there")
			d.Restore(seed, n, p)
		default:
			p := r.IntN(len(plain))
			last := len(plain) - 1
			plain[p] = plain[last]
			plain = plain[:last]
			d.Remove(seed, d.Nodes[p].Name)
		}
		must.Equal(t, len(d.Nodes), len(plain), "len(d.nodes)")
		must.That(t, d.find(seed, "nobody") < 0,
			"%v %v: want d.find(seed, \"nobody\") < 0", len(d.Nodes), len(plain))
		if len(plain) > 0 {
			p := r.IntN(len(plain))
			must.Equal(t, d.Nodes[p], plain[p], "step %d: d.nodes[p]", i)
			must.Equal(t, d.find(seed, plain[p].Name), p,
				"step %d: d.find(seed, plain[p].name)", i)
		}
		if d.slots != nil && i%50 == 0 {
			used := 0
			for _, s := range d.slots {
				if s != 0 {
					used++
				}
			}
			must.Equal(t, used, len(plain), "step %d: slots in use", i)
		}
		largest = max(largest, len(plain))
	}
	expect.That(t, largest >= 1000, "the directory never grew: %v", largest)
	for len(d.Nodes) > 0 {
		d.Remove(seed, d.Nodes[len(d.Nodes)-1].Name)
	}
	expect.Equal(t, d.Names, 0,
		"an empty directory keeps %d bytes of names, %d slots and room for %d: d.names",
		d.Names, len(d.slots), cap(d.Nodes))
	expect.That(t, d.slots == nil,
		"an empty directory keeps %d bytes of names, %d slots and room for %d: want d.slots == nil",
		d.Names, len(d.slots), cap(d.Nodes))
	expect.That(t, cap(d.Nodes) <= 64,
		"an empty directory keeps %d bytes of names, %d slots and room for %d: want cap(d.nodes) <= 64",
		d.Names, len(d.slots), cap(d.Nodes))
}

// The index of a directory has room for a third more than its children. It is made smaller when the directory
// fills less than an eighth of the index.
func TestIndexOfADirectoryFits(t *testing.T) {
	seed := maphash.MakeSeed()
	d := &Dir{}
	slots := map[int]int{0: 0, 8: 0, 9: 32, 24: 32, 25: 64, 48: 64, 49: 128, 96: 128, 97: 256}
	for n := range 98 {
		if want, ok := slots[n]; ok {
			expect.Equal(t, len(d.slots), want, "slots for %d children of a directory that grows", n)
		}
		d.Add(seed, &Node{Name: fmt.Sprint(n)})
	}
	slots = map[int]int{32: 256, 31: 64, 8: 64, 7: 32, 5: 32, 4: 0, 0: 0}
	for n := 98; ; n-- {
		if want, ok := slots[n]; ok {
			expect.Equal(t, len(d.slots), want, "slots for %d children of a directory that shrinks", n)
		}
		if n == 0 {
			break
		}
		d.Remove(seed, fmt.Sprint(n-1))
	}
	for n, want := range map[int]int{9: 32, 24: 32, 25: 64, 48: 64, 49: 128} {
		d := &Dir{}
		for i := range n {
			d.Nodes = append(d.Nodes, &Node{Name: fmt.Sprint(i)})
		}
		d.index(seed)
		expect.Equal(t, len(d.slots), want, "slots of an index that is made for %d", n)
	}
}

// A list that was long frees memory when it gets short. A list of usual length keeps its memory.
func TestListsOfNodesShrink(t *testing.T) {
	seed := maphash.MakeSeed()
	for _, x := range []struct{ room, left, want, wantDir int }{
		{65, 8, 16, 16}, {65, 9, 65, 65}, {64, 1, 64, 64}, {640, 79, 158, 158}, {640, 80, 640, 640},
		{9, 0, 9, 0}, {8, 0, 8, 8}, {65, 0, 0, 0},
	} {
		nodes := func() (list []*Node) {
			list = make([]*Node, 0, x.room)
			for i := range x.left + 1 {
				list = append(list, &Node{Name: fmt.Sprint(i), Slot: int32(i)})
			}
			return list
		}
		d := &Dir{Nodes: nodes()}
		d.Nodes = d.Nodes[:x.left]
		want := slices.Clone(d.Nodes)
		d.shrink(seed)
		expect.Equal(t, cap(d.Nodes), x.wantDir,
			"a directory with room for %d and %d "+
				"children keeps room for %d, want %d",
			x.room, x.left, cap(d.Nodes), x.wantDir)
		expect.List(t, d.Nodes, want,
			"a directory with room for %d and %d "+
				"children keeps room for %d, want %d",
			x.room, x.left, cap(d.Nodes), x.wantDir)

		list := nodes()
		gone := list[0]
		kept := DropSlot(list, gone)
		expect.Equal(t, cap(kept), x.want,
			"a list with room "+
				"for %d and %d nodes keeps room for %d, want %d",
			x.room, x.left, cap(kept), x.want)
		if expect.Equal(t, len(kept), x.left,
			"a list with room "+
				"for %d and %d nodes keeps room for %d, want %d",
			x.room, x.left, cap(kept), x.want) {
			expect.That(t, !slices.Contains(kept, gone),
				"a list with room "+
					"for %d and %d nodes keeps room for %d, want %d",
				x.room, x.left, cap(kept), x.want)
		}
		for i, n := range kept {
			expect.Equal(t, int(n.Slot), i)
		}

		tr := &Holdings{Owners: make([]*Holding, 0, x.room)}
		for i := range x.left + 1 {
			tr.Owners = append(tr.Owners, &Holding{Slot: i})
		}
		owner := tr.Owners[0]
		tr.dropOwner(owner)
		expect.Equal(t, cap(tr.Owners), x.want,
			"owners with room for %d: cap(tr.owners)", x.room)
		if expect.Equal(t, len(tr.Owners), x.left,
			"owners with room for %d: len(tr.owners)", x.room) {
			expect.That(t, !slices.Contains(tr.Owners, owner),
				"owners with room for %d: %d keep room for %d, want %d",
				x.room, x.left, cap(tr.Owners), x.want)
		}
		for i, h := range tr.Owners {
			expect.Equal(t, h.Slot, i)
		}
	}
}

// A directory keeps a listing that is neither too short nor too long, if clients ask for the listing twice
// and nothing changes in between.
func TestListingsAreKept(t *testing.T) {
	seed := maphash.MakeSeed()
	d := &Dir{}
	kept := func() bool { return d.kept() != nil }
	for n := range cacheAt + 5 {
		list := d.appendList([]byte("x"))
		must.Equal(t, string(list), "x"+string(d.encode(nil)), "a list of %d", n)
		expect.That(t, !kept(), "a list of %d is kept at once", n)
		must.Equal(t, string(d.appendList(nil)), string(d.encode(nil)), "a list of %d, again", n)
		expect.Equal(t, kept(), n >= cacheAt, "a list of %d", n)
		expect.Equal(t, d.listSteps(), map[bool]int{true: 0, false: n / 2}[kept()], "a list of %d", n)
		must.Equal(t, string(d.appendList(nil)), string(d.encode(nil)), "a list of %d that is kept", n)
		d.Add(seed, &Node{Name: fmt.Sprint(n)})
		expect.That(t, !kept(), "a list of %d is kept after a change", n)
	}
	list := func() { d.appendList(d.appendList(nil)) }
	list()
	d.Remove(seed, "3")
	expect.That(t, !kept(), "a list is kept after a child has gone")
	list()
	d.Restore(seed, &Node{Name: "3"}, 3)
	expect.That(t, !kept(), "a list is kept after a child was put back")
	d.Names = maxCacheLen + 1
	list()
	expect.That(t, !kept(), "a long list is kept")
	expect.Equal(t, d.listSteps(), len(d.Nodes)/2)
	var none *Dir
	expect.Equal(t, none.listSteps(), 0)
}

// If a directory has more children than manyChildren, or more bytes of names than maxCacheLen, its list is
// built after the lock is released.
func TestLongAnswersBeginBehindTheirBounds(t *testing.T) {
	for _, x := range []struct {
		d    *Dir
		want bool
	}{
		{&Dir{Nodes: make([]*Node, manyChildren), Names: maxCacheLen}, false},
		{&Dir{Nodes: make([]*Node, manyChildren+1)}, true},
		{&Dir{Names: maxCacheLen + 1}, true},
	} {
		expect.Equal(t, x.d.long(), x.want, "%d children, %d bytes", len(x.d.Nodes), x.d.Names)
	}
	for _, x := range []struct {
		h    *Holding
		want bool
	}{
		{&Holding{Nodes: make([]*Node, manyEphemerals), Paths: longEphemerals}, false},
		{&Holding{Nodes: make([]*Node, manyEphemerals+1)}, true},
		{&Holding{Paths: longEphemerals + 1}, true},
	} {
		expect.Equal(t, x.h.long(), x.want, "%d nodes, %d bytes", len(x.h.Nodes), x.h.Paths)
	}
}
