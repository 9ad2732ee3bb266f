package zkfiles

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// A file stores the part of a node's Stat that does not follow from its children and data. The stored
// cversion counts only creations of children: it is Info.Counter, not the cversion that clients see.

// statSize is the length of an encoded stat.
const statSize = 60

// decodeStat reads the stat in b into i. It reports false if the owner is a mark that no ZooKeeper up to 3.9
// writes.
func decodeStat(b []byte, i *tree.Info) (known bool) {
	d := jute.NewDecoder(b)
	i.Czxid, i.Mzxid, i.Ctime, i.Mtime = d.Long(), d.Long(), d.Long(), d.Long()
	i.Version, i.Counter, i.Aversion = d.Int(), d.Int(), d.Int()
	known = SetOwner(i, d.Long())
	i.Pzxid = d.Long()
	return known
}

func appendStat(b []byte, i *tree.Info) []byte {
	b = appendLongs(b, i.Czxid, i.Mzxid, i.Ctime, i.Mtime)
	return appendLongs(appendVersions(b, i), owner(i), i.Pzxid)
}

func appendVersions(b []byte, i *tree.Info) []byte {
	return jute.AppendInt(jute.AppendInt(jute.AppendInt(b, i.Version), i.Counter), i.Aversion)
}

func appendLongs(b []byte, list ...int64) []byte {
	for _, v := range list {
		b = jute.AppendLong(b, v)
	}
	return b
}

// Owners of nodes that do not belong to a session. A ZooKeeper with extended types disabled would read the
// mark of a TTL as a session id.
const (
	containerOwner = -1 << 63
	extendedMask   = 0xff << 56
	ttlFeature     = 0xffff << 40 // if these bits are 0, the other bits are a time to live
)

// SetOwner decodes the owner of a node: the session, container or time to live that keeps the node alive. It
// reports false for an unknown mark.
func SetOwner(i *tree.Info, stored int64) (known bool) {
	owner := uint64(stored)
	i.Kind, i.EphemeralOwner = tree.PlainNode, 0
	switch {
	case owner == 0:
	case stored == containerOwner:
		i.Kind = tree.ContainerNode
	case owner&extendedMask != extendedMask:
		i.Kind, i.EphemeralOwner = tree.EphemeralNode, stored
	case owner&ttlFeature == 0 && owner<<24 != 0:
		i.Kind, i.TTL = tree.TTLNode, int64(owner&^extendedMask)
	default:
		return false
	}
	return true
}

// owner() encodes what SetOwner decodes.
func owner(i *tree.Info) int64 {
	switch i.Kind {
	case tree.ContainerNode:
		return containerOwner
	case tree.TTLNode:
		mask := uint64(extendedMask)
		return int64(mask | uint64(i.TTL))
	}
	return i.EphemeralOwner
}
