package tree

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
)

// NodeKind says what keeps a node alive.
type NodeKind uint8

// The kinds of nodes. The numbers stand in snapshots.
const (
	PlainNode     NodeKind = iota // lives until it is deleted
	EphemeralNode                 // lives until its session ends
	ContainerNode                 // lives until it has lost its last child
	TTLNode                       // lives until it has had no children and no change for its time to live
)

// state is the part of a node that a snapshot writes.
type state struct {
	data  string // immutable, so that copies of a state share it
	acl   *acl.Set
	czxid int64
	mzxid int64
	pzxid int64
	ctime int64
	mtime int64
	owner int64 // EphemeralNode: the session. TTLNode: time to live, ms. Else 0

	version  int32
	cv       int32 // children ever created; not the cversion that clients see
	aversion int32
	kind     NodeKind
	null     bool // the data is null, which is not the same as empty
}

// node is an entry of the tree. At a million of them every word counts.
type node struct {
	state
	slot   int32  // its index in its session's ephemerals or in Tree.reapable
	mark   uint32 // number of the snapshot that needs nothing more of this node
	name   string // "" for the root
	parent *node  // nil: this node is the root
	dir    *dir   // nil: the node has never had a child
}

func (n *node) children() int {
	if n.dir == nil {
		return 0
	}
	return len(n.dir.nodes)
}

// stat returns what clients see. The built-in nodes were never counted in
// their parents' cv, so the cversion of / and /zookeeper starts negative, and
// tools know them so.
func (n *node) stat() jute.Stat {
	children := int32(n.children())
	s := jute.Stat{
		Czxid: n.czxid, Mzxid: n.mzxid, Ctime: n.ctime, Mtime: n.mtime,
		Version: n.version, Cversion: 2*n.cv - children, Aversion: n.aversion,
		DataLength: int32(len(n.data)), NumChildren: children, Pzxid: n.pzxid,
	}
	if n.kind == EphemeralNode {
		s.EphemeralOwner = n.owner
	}
	return s
}

func (n *node) appendStat(b []byte) []byte {
	s := n.stat()
	return jute.AppendStat(b, &s)
}

func (n *node) appendData(b []byte) []byte {
	if n.null {
		return jute.AppendInt(b, -1)
	}
	return jute.AppendString(b, n.data)
}

// pathLen returns the length of n's path.
func pathLen(n *node) int {
	if n.parent == nil {
		return 1
	}
	size := 0
	for ; n.parent != nil; n = n.parent {
		size += 1 + len(n.name)
	}
	return size
}

// appendPath appends n's path.
func appendPath(b []byte, n *node) []byte {
	if n.parent == nil {
		return append(b, '/')
	}
	at := len(b) + pathLen(n)
	b = slices.Grow(b, at-len(b))[:at]
	for ; n.parent != nil; n = n.parent {
		at -= len(n.name)
		copy(b[at:], n.name)
		at--
		b[at] = '/'
	}
	return b
}

func pathOf(n *node) string { return string(appendPath(nil, n)) }

// Info is everything that the tree knows of a node. Its slices belong to the tree and must not be
// changed; they stay as they are when the node changes.
type Info struct {
	jute.Stat
	Data    []byte // nil: the data were null
	ACL     []jute.ACL
	Kind    NodeKind
	TTL     int64 // time to live of a TTLNode, in milliseconds
	Counter int32 // children ever created: the next sequential suffix
}

func (n *node) info() Info {
	i := Info{Stat: n.stat(), ACL: n.acl.List(), Kind: n.kind, Counter: n.cv}
	switch {
	case n.null:
	case n.data == "":
		i.Data = []byte{}
	default:
		d := bytesOf(n.data)
		i.Data = d[:len(d):len(d)]
	}
	if n.kind == TTLNode {
		i.TTL = n.owner
	}
	return i
}

func (n *node) walk(path []byte, fn func(path string, n *node) bool) (more bool) {
	if n.parent != nil {
		path = append(append(path, '/'), n.name...)
	}
	if !fn(cmp.Or(string(path), "/"), n) {
		return false
	}
	for i := range n.children() {
		if !n.dir.nodes[i].walk(path, fn) {
			return false
		}
	}
	return true
}

// bytesOf views a string as bytes that must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// stringOf views bytes that do not change while the string is in use.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
