package zkfiles

import (
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/zlockd/zlockd/tree"
)

// Digest is a checksum over a whole tree, as it was after one transaction.
type Digest struct {
	Zxid    int64
	Version int32
	Sum     uint64
}

// digestVersion is the only version of digests that a release of ZooKeeper has used.
const digestVersion = 2

// digest() returns a node's part of the digest of the tree. The tree's digest is the sum of all parts. Nodes
// below /zookeeper have no part, because ZooKeeper updates the counts of quotas in place.
func digest(path string, n *tree.Info) uint64 {
	switch {
	case path == "/":
		path = ""
	case strings.HasPrefix(path, "/zookeeper/"):
		return 0
	}
	b := appendLongs(make([]byte, 0, statSize), n.Czxid, n.Mzxid, n.Pzxid, n.Ctime, n.Mtime)
	b = appendLongs(appendVersions(b, n), owner(n))
	sum := crc32.Update(0, crc32.IEEETable, []byte(path))
	sum = crc32.Update(sum, crc32.IEEETable, n.Data)
	return uint64(crc32.Update(sum, crc32.IEEETable, b))
}

// odd() is 1 for a path that is not ASCII. ZooKeeper computes the digest of a path in the character set of
// its Java, so the digest of such a path cannot be known.
func odd(path string) int {
	if strings.ContainsFunc(path, func(r rune) bool { return r >= 0x80 }) {
		return 1
	}
	return 0
}

// compare() returns an error if the tree's digest differs from the one that ZooKeeper had at the same zxid.
func (t *Tree) compare() error {
	e := t.expected
	if e == nil || e.Zxid > t.Zxid {
		return nil
	}
	t.expected, t.exact = nil, true
	if e.Zxid == t.Zxid && e.Zxid != 0 && e.Sum != t.sum && t.odd == 0 {
		return fmt.Errorf("the digest of the tree at zxid 0x%x is %x, but its ZooKeeper had %x: a file "+
			"was changed or replaced", t.Zxid, t.sum, e.Sum)
	}
	return nil
}
