package tree

import "github.com/zlockd/zlockd/jute"

// Info is everything that the tree knows of a node. Its slices belong to the tree and must not be
// changed; they stay as they are when the node changes.
type Info struct {
	jute.Stat
	Data    []byte // nil if null
	ACL     []jute.ACL
	Kind    NodeKind
	TTL     int64 // of a TTLNode, in milliseconds
	Counter int32 // children ever created: the next sequential suffix
}

func (n *node) info() Info {
	i := Info{Stat: n.stat(), ACL: n.acl.list, Kind: n.kind, Counter: n.cv}
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

// Walk calls fn for every node, parents before children, until it returns
// false.
func (t *Tree) Walk(fn func(path string, i Info) bool) { t.WalkUnder("/", fn) }

// WalkUnder is Walk for the node at root and everything below it.
func (t *Tree) WalkUnder(root string, fn func(path string, i Info) bool) {
	type frame struct {
		node *node
		next int
		path int // length of the path of node
	}
	n := t.find(root)
	if n == nil {
		return
	}
	path := appendPath(nil, n)
	if !fn(string(path), n.info()) {
		return
	}
	if n.parent == nil {
		path = path[:0]
	}
	stack := []frame{{n, 0, len(path)}}
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		path = path[:f.path]
		if f.next == f.node.children() {
			stack = stack[:len(stack)-1]
			continue
		}
		n := f.node.dir.nodes[f.next]
		f.next++
		path = append(append(path, '/'), n.name...)
		if !fn(string(path), n.info()) {
			return
		}
		stack = append(stack, frame{n, 0, len(path)})
	}
}
