package tree

import (
	"hash/maphash"
	"strings"
)

// nodes are the nodes of a tree, as all that reads them needs them. One writer at a time may change them.
// Several reads may run at once, but not during a change.
type nodes struct {
	root *node
	seed maphash.Seed
	held holdings

	multiRead int // the longest answer to a multiRead, in bytes
}

// find returns the node at path. It returns nil if there is no such node. It accepts any string: an illegal
// path names no node, except that "" names the root as "/" does.
func (t *nodes) find(path string) *node {
	if path == "" || path == "/" {
		return t.root
	}
	if path[0] != '/' {
		return nil
	}
	n := t.root
	for rest := path[1:]; ; {
		name, more, found := strings.Cut(rest, "/")
		p := n.dir.find(t.seed, name)
		if p < 0 {
			return nil
		}
		n = n.dir.nodes[p]
		if !found {
			return n
		}
		rest = more
	}
}

// child returns the child of n called name. It returns nil if n has no such child.
func (t *nodes) child(n *node, name string) *node {
	if p := n.dir.find(t.seed, name); p >= 0 {
		return n.dir.nodes[p]
	}
	return nil
}

// Get returns the node at path.
func (t *nodes) Get(path string) (Info, bool) {
	n := t.find(path)
	if n == nil {
		return Info{}, false
	}
	return n.info(), true
}

// Children returns the names of the children of the node at path, in no
// particular order.
func (t *nodes) Children(path string) []string {
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
func (t *nodes) Walk(fn func(path string, i Info) bool) {
	t.root.walk(nil, func(path string, n *node) bool { return fn(path, n.info()) })
}
