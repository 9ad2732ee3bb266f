package nodes

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/zlockd/zlockd/jute"
)

// Dir holds the children of a node. They stand in a dense slice whose order depends on nothing but the
// changes made, so that servers that made the same changes list, walk and snapshot in the same order. A small
// directory is searched through; a large one has a hash index over the slice. (A Go map costs three times the
// memory per child and cannot be walked in steps.)
//
// The walk of a snapshot goes from the last position to the first. Remove moves the last child into the gap,
// and Add appends. So no child that the walk has not met yet moves past the walk.
type Dir struct {
	Nodes []*Node
	slots []uint64 // open addressing: hash<<32 | position+1; nil while small
	Names int      // bytes that the names take in a listing
	Count int      // descendants, children included
	Bytes int64    // data of the descendants

	// cache is the encoded listing of a large directory, kept until the directory changes, so that many
	// clients that list it at once cost only copies. The first listing after a change only marks the
	// directory; the second keeps the encoding, because a lock's directory usually changes before a second
	// listing. Several readers may fill the cache at once; a writer, which has the tree alone, clears it.
	cache atomic.Pointer[[]byte]
}

const (
	smallDir    = 8        // a directory of up to this many children has no index
	cacheAt     = 32       // the listing of this many children or more is kept
	maxCacheLen = 4 << 20  // bytes; a longer listing is not encoded while the state is locked
	maxKeptLen  = 64 << 20 // bytes; a longer listing is never kept
)

// find() returns the position of the child called name. It returns -1 if d has no such child.
func (d *Dir) find(seed maphash.Seed, name string) int {
	p, _ := d.locate(seed, name)
	return p
}

// locate() is like find(), and also returns the slot in the index, if there is an index.
func (d *Dir) locate(seed maphash.Seed, name string) (p, slot int) {
	if d == nil {
		return -1, -1
	}
	if d.slots == nil {
		for i, n := range d.Nodes {
			if n.Name == name {
				return i, -1
			}
		}
		return -1, -1
	}
	h := nameHash(seed, name)
	mask := len(d.slots) - 1
	for i := int(h) & mask; d.slots[i] != 0; i = (i + 1) & mask {
		if uint32(d.slots[i]>>32) == h {
			if p := int(uint32(d.slots[i])) - 1; d.Nodes[p].Name == name {
				return p, i
			}
		}
	}
	return -1, -1
}

// nameHash hashes a name. The seed differs from process to process, so no client can prepare names
// that collide. Nothing but the layout of the index depends on the seed.
func nameHash(seed maphash.Seed, name string) uint32 { return uint32(maphash.String(seed, name)) }

// Add appends the child n.
func (d *Dir) Add(seed maphash.Seed, n *Node) {
	d.changed(4 + len(n.Name))
	d.Nodes = append(d.Nodes, n)
	switch {
	case d.slots != nil && len(d.Nodes)*4 <= len(d.slots)*3:
		d.put(uint64(nameHash(seed, n.Name))<<32 | uint64(len(d.Nodes)))
	case d.slots != nil:
		old := d.slots
		d.slots = make([]uint64, 2*len(old))
		for _, s := range old {
			if s != 0 {
				d.put(s)
			}
		}
		d.put(uint64(nameHash(seed, n.Name))<<32 | uint64(len(d.Nodes)))
	case len(d.Nodes) > smallDir:
		d.index(seed)
	}
}

// index() rebuilds the hash index with the smallest size that is allowed.
func (d *Dir) index(seed maphash.Seed) {
	size := 4 * smallDir
	for size*3 < len(d.Nodes)*4 {
		size *= 2
	}
	d.slots = make([]uint64, size)
	for i, n := range d.Nodes {
		d.put(uint64(nameHash(seed, n.Name))<<32 | uint64(i+1))
	}
}

// put() stores `slot` in the index, which must not hold the child of this slot yet.
func (d *Dir) put(slot uint64) {
	mask := len(d.slots) - 1
	i := int(slot>>32) & mask
	for d.slots[i] != 0 {
		i = (i + 1) & mask
	}
	d.slots[i] = slot
}

// slotOf returns where the index holds the child at position p.
func (d *Dir) slotOf(seed maphash.Seed, p int) int {
	mask := len(d.slots) - 1
	i := int(nameHash(seed, d.Nodes[p].Name)) & mask
	for uint32(d.slots[i]) != uint32(p+1) {
		i = (i + 1) & mask
	}
	return i
}

// Remove removes the child called name and returns the position that it had. The last child moves to this
// position.
func (d *Dir) Remove(seed maphash.Seed, name string) (p int) {
	p, slot := d.locate(seed, name)
	d.changed(-4 - len(name))
	last := len(d.Nodes) - 1
	if d.slots != nil {
		d.clear(slot)
		if p != last {
			i := d.slotOf(seed, last)
			d.slots[i] = d.slots[i]>>32<<32 | uint64(p+1)
		}
	}
	d.Nodes[p] = d.Nodes[last]
	d.Nodes[last] = nil
	d.Nodes = d.Nodes[:last]
	d.shrink(seed)
	return p
}

// clear() empties slot i. It moves back the slots after it that collisions had displaced.
func (d *Dir) clear(i int) {
	mask := len(d.slots) - 1
	for j := (i + 1) & mask; d.slots[j] != 0; j = (j + 1) & mask {
		// The slot at j may move to i unless the slot's home lies between i and j.
		if home := int(d.slots[j]>>32) & mask; (j-home)&mask >= (j-i)&mask {
			d.slots[i] = d.slots[j]
			i = j
		}
	}
	d.slots[i] = 0
}

// shrink() gives memory back when most of the children are gone.
func (d *Dir) shrink(seed maphash.Seed) {
	if len(d.Nodes) == 0 && cap(d.Nodes) > smallDir || cap(d.Nodes) > 64 && len(d.Nodes)*8 < cap(d.Nodes) {
		d.Nodes = append(make([]*Node, 0, 2*len(d.Nodes)), d.Nodes...)
	}
	switch {
	case d.slots == nil:
	case len(d.Nodes) <= smallDir/2:
		d.slots = nil
	case len(d.Nodes)*8 < len(d.slots):
		d.index(seed)
	}
}

// Restore puts n back to position p, from which Remove removed it.
func (d *Dir) Restore(seed maphash.Seed, n *Node, p int) {
	d.Add(seed, n)
	last := len(d.Nodes) - 1
	if p == last {
		return
	}
	if d.slots != nil {
		i, j := d.slotOf(seed, p), d.slotOf(seed, last)
		d.slots[i] = d.slots[i]>>32<<32 | uint64(last+1)
		d.slots[j] = d.slots[j]>>32<<32 | uint64(p+1)
	}
	d.Nodes[p], d.Nodes[last] = d.Nodes[last], d.Nodes[p]
}

// changed() notes that the names in a listing grew by `delta` bytes.
func (d *Dir) changed(delta int) {
	d.Names += delta
	if d.cache.Load() != nil {
		d.cache.Store(nil)
	}
}

// appendList appends the listing: a vector of names.
func (d *Dir) appendList(b []byte) []byte {
	if d == nil {
		return jute.AppendInt(b, 0)
	}
	c := d.kept()
	if c == nil && (len(d.Nodes) < cacheAt || d.long() || d.cache.CompareAndSwap(nil, &listedOnce)) {
		return d.encode(b)
	}
	if c == nil {
		list := d.encode(make([]byte, 0, 4+d.Names))
		d.cache.Store(&list)
		c = list
	}
	return append(b, c...)
}

// listedOnce is the value of `cache` after the first listing since the directory's last change.
var listedOnce []byte

// kept() returns the listing, if it is kept.
func (d *Dir) kept() []byte {
	if c := d.cache.Load(); c != nil && len(*c) > 0 {
		return *c
	}
	return nil
}

// listSteps returns the cost of putting a listing together; it is 0 for a listing that is kept.
func (d *Dir) listSteps() int {
	if d == nil || d.kept() != nil {
		return 0
	}
	return len(d.Nodes) / 2
}

func (d *Dir) encode(b []byte) []byte {
	return appendNames(b, d.Nodes)
}

// Reverse reverses the order of the children.
func (d *Dir) Reverse() {
	for i, j := 0, len(d.Nodes)-1; i < j; i, j = i+1, j-1 {
		d.Nodes[i], d.Nodes[j] = d.Nodes[j], d.Nodes[i]
	}
	for i, s := range d.slots {
		if s != 0 {
			d.slots[i] = s>>32<<32 | uint64(len(d.Nodes)+1-int(uint32(s)))
		}
	}
}

// appendNames appends the vector of the names of nodes.
func appendNames(b []byte, nodes []*Node) []byte {
	b = jute.AppendInt(b, int32(len(nodes)))
	for _, n := range nodes {
		b = jute.AppendString(b, n.Name)
	}
	return b
}
