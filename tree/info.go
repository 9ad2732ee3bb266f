package tree

import (
	"cmp"
	"unsafe"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
)

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

// Get returns the node at path.
func (t *Tree) Get(path string) (Info, bool) {
	n := t.find(path)
	if n == nil {
		return Info{}, false
	}
	return n.info(), true
}

// Children returns the names of the children of the node at path, in no
// particular order.
func (t *Tree) Children(path string) []string {
	n := t.find(path)
	if n == nil || n.dir == nil {
		return nil
	}
	names := make([]string, len(n.dir.nodes))
	for i, c := range n.dir.nodes {
		names[i] = c.name
	}
	return names
}

// ACLs returns every ACL that a node has. The lists must not be changed.
func (t *Tree) ACLs() [][]jute.ACL {
	var all [][]jute.ACL
	t.acls.Each(func(a *acl.Set) { all = append(all, a.List()) })
	return all
}

// Walk calls fn for every node, parents before children, until it returns
// false.
func (t *Tree) Walk(fn func(path string, i Info) bool) {
	t.root.walk(nil, func(path string, n *node) bool { return fn(path, n.info()) })
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
