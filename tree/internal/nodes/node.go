package nodes

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

// State is the part of a node that a snapshot writes.
type State struct {
	Data  string // immutable, so that copies of a state share it
	ACL   *acl.Set
	Czxid int64
	Mzxid int64
	Pzxid int64
	Ctime int64
	Mtime int64
	Owner int64 // EphemeralNode: the session. TTLNode: time to live, ms. Else 0

	Version  int32
	CV       int32 // children ever created; not the cversion that clients see
	Aversion int32
	Kind     NodeKind
	Null     bool // the data is null, which is not the same as empty
}

// Node is an entry of the tree. A tree may have millions of nodes, so every word of memory counts.
type Node struct {
	State
	Slot   int32  // the node's index in Holding.Nodes or in Tree.reapable
	Mark   uint32 // number of the snapshot that needs nothing more of this node
	Name   string // "" for the root
	Parent *Node  // nil: this node is the root
	Dir    *Dir   // nil: the node has never had a child
}

// Children returns how many children n has.
func (n *Node) Children() int {
	if n.Dir == nil {
		return 0
	}
	return len(n.Dir.Nodes)
}

// stat() returns what clients see. The built-in nodes were never counted in the cv of their parents, so the
// cversion of / and /zookeeper starts negative. Tools expect this.
func (n *Node) stat() jute.Stat {
	children := int32(n.Children())
	s := jute.Stat{
		Czxid: n.Czxid, Mzxid: n.Mzxid, Ctime: n.Ctime, Mtime: n.Mtime,
		Version: n.Version, Cversion: 2*n.CV - children, Aversion: n.Aversion,
		DataLength: int32(len(n.Data)), NumChildren: children, Pzxid: n.Pzxid,
	}
	if n.Kind == EphemeralNode {
		s.EphemeralOwner = n.Owner
	}
	return s
}

// AppendStat appends what clients see of n.
func (n *Node) AppendStat(b []byte) []byte {
	s := n.stat()
	return jute.AppendStat(b, &s)
}

func (n *Node) appendData(b []byte) []byte {
	if n.Null {
		return jute.AppendInt(b, -1)
	}
	return jute.AppendString(b, n.Data)
}

// PathLen returns the length of n's path.
func PathLen(n *Node) int {
	if n.Parent == nil {
		return 1
	}
	size := 0
	for ; n.Parent != nil; n = n.Parent {
		size += 1 + len(n.Name)
	}
	return size
}

// appendPath appends n's path.
func appendPath(b []byte, n *Node) []byte {
	if n.Parent == nil {
		return append(b, '/')
	}
	at := len(b) + PathLen(n)
	b = slices.Grow(b, at-len(b))[:at]
	for ; n.Parent != nil; n = n.Parent {
		at -= len(n.Name)
		copy(b[at:], n.Name)
		at--
		b[at] = '/'
	}
	return b
}

// PathOf returns n's path.
func PathOf(n *Node) string { return string(appendPath(nil, n)) }

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

// Info returns what the tree knows of n.
func (n *Node) Info() Info {
	i := Info{Stat: n.stat(), ACL: n.ACL.List(), Kind: n.Kind, Counter: n.CV}
	switch {
	case n.Null:
	case n.Data == "":
		i.Data = []byte{}
	default:
		d := bytesOf(n.Data)
		i.Data = d[:len(d):len(d)]
	}
	if n.Kind == TTLNode {
		i.TTL = n.Owner
	}
	return i
}

// Walk calls fn for n, whose parent has the given path, and for all nodes below n, until fn returns false.
func (n *Node) Walk(path []byte, fn func(path string, n *Node) bool) (more bool) {
	if n.Parent != nil {
		path = append(append(path, '/'), n.Name...)
	}
	if !fn(cmp.Or(string(path), "/"), n) {
		return false
	}
	for i := range n.Children() {
		if !n.Dir.Nodes[i].Walk(path, fn) {
			return false
		}
	}
	return true
}

// bytesOf views a string as bytes that must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// StringOf views bytes as a string. The bytes must not change while the string is in use.
func StringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
