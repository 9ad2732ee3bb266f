package tree

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/zlockd/zlockd/jute"
)

// dir holds the children of a node. They stand in a dense slice whose order depends on nothing but
// the changes made, so that servers that made the same changes list, walk and snapshot in the same
// order. A small directory is searched through; a large one has a hash index over the slice. (A Go
// map costs three times the memory per child and cannot be walked in steps.)
//
// The walk of a snapshot goes from the last position to the first. Removing moves the last child into the gap
// and adding appends, so no child that the walk has not met yet moves past it.
type dir struct {
	nodes []*node
	slots []uint64 // open addressing: hash<<32 | position+1; nil while small
	names int      // bytes that the names take in a listing
	count int      // descendants, children included
	bytes int64    // data of the descendants

	// cache is the encoded listing of a large directory, kept until the directory changes, so that many
	// clients that list it at once cost only copies. The first listing after a change only marks the
	// directory; the second keeps the encoding, because a lock's directory usually changes before a second
	// listing. Several readers may fill the cache at once; a writer, which has the tree alone, clears it.
	cache atomic.Pointer[[]byte]
}

const (
	smallDir    = 8        // children up to which a directory is searched through
	cacheAt     = 32       // children from which a listing is kept
	maxCacheLen = 4 << 20  // bytes up to which a listing is encoded while the state is locked
	maxKeptLen  = 64 << 20 // bytes up to which any listing is kept
)

// find returns the position of the child called name. It returns -1 if d has no such child.
func (d *dir) find(seed maphash.Seed, name string) int {
	p, _ := d.locate(seed, name)
	return p
}

// locate is find, and returns the slot in the index too, if there is an index.
func (d *dir) locate(seed maphash.Seed, name string) (p, slot int) {
	if d == nil {
		return -1, -1
	}
	if d.slots == nil {
		for i, n := range d.nodes {
			if n.name == name {
				return i, -1
			}
		}
		return -1, -1
	}
	h := nameHash(seed, name)
	mask := len(d.slots) - 1
	for i := int(h) & mask; d.slots[i] != 0; i = (i + 1) & mask {
		if uint32(d.slots[i]>>32) == h {
			if p := int(uint32(d.slots[i])) - 1; d.nodes[p].name == name {
				return p, i
			}
		}
	}
	return -1, -1
}

// nameHash hashes a name. The seed differs from process to process, so no client can prepare names
// that collide. Nothing but the layout of the index depends on the seed.
func nameHash(seed maphash.Seed, name string) uint32 { return uint32(maphash.String(seed, name)) }

// add appends n.
func (d *dir) add(seed maphash.Seed, n *node) {
	d.changed(4 + len(n.name))
	d.nodes = append(d.nodes, n)
	switch {
	case d.slots != nil && len(d.nodes)*4 <= len(d.slots)*3:
		d.put(uint64(nameHash(seed, n.name))<<32 | uint64(len(d.nodes)))
	case d.slots != nil:
		old := d.slots
		d.slots = make([]uint64, 2*len(old))
		for _, s := range old {
			if s != 0 {
				d.put(s)
			}
		}
		d.put(uint64(nameHash(seed, n.name))<<32 | uint64(len(d.nodes)))
	case len(d.nodes) > smallDir:
		d.index(seed)
	}
}

// index builds the hash index again, as small as it may be.
func (d *dir) index(seed maphash.Seed) {
	size := 4 * smallDir
	for size*3 < len(d.nodes)*4 {
		size *= 2
	}
	d.slots = make([]uint64, size)
	for i, n := range d.nodes {
		d.put(uint64(nameHash(seed, n.name))<<32 | uint64(i+1))
	}
}

// put stores a slot whose child is not in the index.
func (d *dir) put(slot uint64) {
	mask := len(d.slots) - 1
	i := int(slot>>32) & mask
	for d.slots[i] != 0 {
		i = (i + 1) & mask
	}
	d.slots[i] = slot
}

// slotOf returns where the index holds the child at position p.
func (d *dir) slotOf(seed maphash.Seed, p int) int {
	mask := len(d.slots) - 1
	i := int(nameHash(seed, d.nodes[p].name)) & mask
	for uint32(d.slots[i]) != uint32(p+1) {
		i = (i + 1) & mask
	}
	return i
}

// remove takes out the child called name and returns the position it had; the last one
// moves there.
func (d *dir) remove(seed maphash.Seed, name string) (p int) {
	p, slot := d.locate(seed, name)
	d.changed(-4 - len(name))
	last := len(d.nodes) - 1
	if d.slots != nil {
		d.clear(slot)
		if p != last {
			i := d.slotOf(seed, last)
			d.slots[i] = d.slots[i]>>32<<32 | uint64(p+1)
		}
	}
	d.nodes[p] = d.nodes[last]
	d.nodes[last] = nil
	d.nodes = d.nodes[:last]
	d.shrink(seed)
	return p
}

// clear empties slot i and moves up later slots that had been displaced.
func (d *dir) clear(i int) {
	mask := len(d.slots) - 1
	for j := (i + 1) & mask; d.slots[j] != 0; j = (j + 1) & mask {
		// The slot at j may move to i unless its home is between them.
		if home := int(d.slots[j]>>32) & mask; (j-home)&mask >= (j-i)&mask {
			d.slots[i] = d.slots[j]
			i = j
		}
	}
	d.slots[i] = 0
}

// shrink gives memory back when most of the children are gone.
func (d *dir) shrink(seed maphash.Seed) {
	if len(d.nodes) == 0 && cap(d.nodes) > smallDir || cap(d.nodes) > 64 && len(d.nodes)*8 < cap(d.nodes) {
		d.nodes = append(make([]*node, 0, 2*len(d.nodes)), d.nodes...)
	}
	switch {
	case d.slots == nil:
	case len(d.nodes) <= smallDir/2:
		d.slots = nil
	case len(d.nodes)*8 < len(d.slots):
		d.index(seed)
	}
}

// restore puts n back to position p, from which remove took it.
func (d *dir) restore(seed maphash.Seed, n *node, p int) {
	d.add(seed, n)
	last := len(d.nodes) - 1
	if p == last {
		return
	}
	if d.slots != nil {
		i, j := d.slotOf(seed, p), d.slotOf(seed, last)
		d.slots[i] = d.slots[i]>>32<<32 | uint64(last+1)
		d.slots[j] = d.slots[j]>>32<<32 | uint64(p+1)
	}
	d.nodes[p], d.nodes[last] = d.nodes[last], d.nodes[p]
}

// changed notes that the names in a listing grew by delta bytes.
func (d *dir) changed(delta int) {
	d.names += delta
	if d.cache.Load() != nil {
		d.cache.Store(nil)
	}
}

// appendList appends the listing: a vector of names.
func (d *dir) appendList(b []byte) []byte {
	if d == nil {
		return jute.AppendInt(b, 0)
	}
	c := d.kept()
	if c == nil && (len(d.nodes) < cacheAt || d.long() || d.cache.CompareAndSwap(nil, &listedOnce)) {
		return d.encode(b)
	}
	if c == nil {
		list := d.encode(make([]byte, 0, 4+d.names))
		d.cache.Store(&list)
		c = list
	}
	return append(b, c...)
}

// listedOnce is the cache of a directory that was listed since its last change.
var listedOnce []byte

// kept returns the listing, if it is kept.
func (d *dir) kept() []byte {
	if c := d.cache.Load(); c != nil && len(*c) > 0 {
		return *c
	}
	return nil
}

// listSteps returns the cost of putting a listing together; it is 0 for a listing that is kept.
func (d *dir) listSteps() int {
	if d == nil || d.kept() != nil {
		return 0
	}
	return len(d.nodes) / 2
}

func (d *dir) encode(b []byte) []byte {
	return appendNames(b, d.nodes)
}

// reverse turns the order of the children round.
func (d *dir) reverse() {
	for i, j := 0, len(d.nodes)-1; i < j; i, j = i+1, j-1 {
		d.nodes[i], d.nodes[j] = d.nodes[j], d.nodes[i]
	}
	for i, s := range d.slots {
		if s != 0 {
			d.slots[i] = s>>32<<32 | uint64(len(d.nodes)+1-int(uint32(s)))
		}
	}
}

// manyChildren is how many children the longest list has that is built while the state is locked. Its names
// have at most maxCacheLen bytes.
const manyChildren = 100_000

func (d *dir) long() bool { return len(d.nodes) > manyChildren || d.names > maxCacheLen }

// appendNames appends the vector of the names of nodes.
func appendNames(b []byte, nodes []*node) []byte {
	b = jute.AppendInt(b, int32(len(nodes)))
	for _, n := range nodes {
		b = jute.AppendString(b, n.name)
	}
	return b
}
