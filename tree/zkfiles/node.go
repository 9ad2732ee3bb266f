package zkfiles

import (
	"hash/crc32"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Node is a node as ZooKeeper stores it. The number and names of its children
// are not stored: they follow from the paths.
type Node struct {
	Data []byte // nil: null, which is not empty
	ACL  []jute.ACL
	Stat
}

// Stat is the part of a node's stat that is stored. Cversion counts creations
// of children alone: it is the next sequence number, not what clients see.
type Stat struct {
	Czxid, Mzxid, Pzxid         int64
	Ctime, Mtime                int64
	Version, Cversion, Aversion int32
	Owner                       int64 // encoded, see Kind
}

// statSize is the length of an encoded Stat.
const statSize = 60

func (s *Stat) decode(b []byte) {
	d := jute.NewDecoder(b)
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime = d.Long(), d.Long(), d.Long(), d.Long()
	s.Version, s.Cversion, s.Aversion = d.Int(), d.Int(), d.Int()
	s.Owner, s.Pzxid = d.Long(), d.Long()
}

func (s *Stat) append(b []byte) []byte {
	b = appendLongs(b, s.Czxid, s.Mzxid, s.Ctime, s.Mtime)
	return appendLongs(s.appendVersions(b), s.Owner, s.Pzxid)
}

func (s *Stat) appendVersions(b []byte) []byte {
	return jute.AppendInt(jute.AppendInt(jute.AppendInt(b, s.Version), s.Cversion), s.Aversion)
}

func appendLongs(b []byte, list ...int64) []byte {
	for _, v := range list {
		b = jute.AppendLong(b, v)
	}
	return b
}

// NodeKind says what keeps a node alive.
type NodeKind uint8

// The kinds of nodes.
const (
	Plain     NodeKind = iota
	Ephemeral          // until the session Owner ends
	Container          // until it lost its last child
	TTL                // until it was unused for its time to live
	Unknown            // a mark that no ZooKeeper up to 3.9 writes
)

// Values of Owner for nodes that do not belong to a session. A ZooKeeper whose extended types are
// off would take the mark of a TTL for the id of a session.
const (
	containerOwner = -1 << 63
	extendedMask   = 0xff << 56
	ttlFeature     = 0xffff << 40 // 0 in these bits: a time to live
)

// Kind returns the kind of the node, and its time to live in ms.
func (s *Stat) Kind() (NodeKind, int64) {
	owner := uint64(s.Owner)
	switch {
	case owner == 0:
		return Plain, 0
	case s.Owner == containerOwner:
		return Container, 0
	case owner&extendedMask != extendedMask:
		return Ephemeral, 0
	case owner&ttlFeature == 0 && owner<<24 != 0:
		return TTL, int64(owner &^ extendedMask)
	}
	return Unknown, 0
}

// OwnerOf encodes a kind of node that does not belong to a session.
func OwnerOf(kind NodeKind, ttl int64) int64 {
	switch kind {
	case Container:
		return containerOwner
	case TTL:
		mask := uint64(extendedMask)
		return int64(mask | uint64(ttl))
	}
	return 0
}

// digestVersion is the only way of computing digests that a release of ZooKeeper has had.
const digestVersion = 2

// digest returns a node's part in the digest of the tree, which is the sum of all parts. The nodes
// below /zookeeper have none, because quotas are counted in place.
func digest(path string, n *Node) uint64 {
	switch {
	case path == "/":
		path = ""
	case strings.HasPrefix(path, "/zookeeper/"):
		return 0
	}
	b := appendLongs(make([]byte, 0, statSize), n.Czxid, n.Mzxid, n.Pzxid, n.Ctime, n.Mtime)
	b = appendLongs(n.appendVersions(b), n.Owner)
	sum := crc32.Update(0, crc32.IEEETable, []byte(path))
	sum = crc32.Update(sum, crc32.IEEETable, n.Data)
	return uint64(crc32.Update(sum, crc32.IEEETable, b))
}

// odd is 1 for a path that is not ASCII. ZooKeeper sums a path in the character set of its Java, so
// the digest of such a path cannot be known.
func odd(path string) int {
	if strings.ContainsFunc(path, func(r rune) bool { return r >= 0x80 }) {
		return 1
	}
	return 0
}
