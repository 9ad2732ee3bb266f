package tree

import (
	"strconv"

	"github.com/zlockd/zlockd/tree/bounds"
)

// appendSequence appends the suffix of a sequential name: the parent's count of children ever created, as C's
// %010d prints it. The count is an int32 that wraps from 2147483647 to -2147483648; the lock client orders
// such numbers correctly. ZooKeeper instead stops at its maximum and then refuses names that exist. Negative
// numbers keep their sign within the ten characters, except for the smallest ones, which need eleven.
func appendSequence(b []byte, cv int32) []byte {
	v := int64(cv)
	width := 10
	if v < 0 {
		b = append(b, '-')
		v = -v
		width--
	}
	var room [20]byte
	digits := strconv.AppendInt(room[:0], v, 10)
	for range width - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

// Above sets a living tree that the loaded tree will replace. Each parent in the loaded tree then gets at
// least the count of created children that it has in the living tree, so that no sequential name is given out
// twice. The living tree may change before each call of Add; the caller reports the new nodes in it by
// Created.
func (l *Loader) Above(live *Tree) { l.live = live }

// Created raises the count of a node that is already loaded, after the living tree has created a child of it.
func (l *Loader) Created(path string) {
	parent := bounds.ParentPath(path)
	if l.tree.Root == nil {
		return
	}
	if n := l.tree.At(parent); n != nil {
		n.CV = l.counter(parent, n.CV)
	}
}

// counter() returns the larger of a loaded count and the living tree's. Counts wrap, so a negative count is
// larger than any other.
func (l *Loader) counter(path string, cv int32) int32 {
	if l.live != nil {
		if n := l.live.At(path); n != nil && uint32(n.CV) > uint32(cv) {
			return n.CV
		}
	}
	return cv
}
