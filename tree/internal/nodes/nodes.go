// Package nodes holds the nodes of a tree and all code that reads them: for requests of clients, listings,
// walks in pieces, and the events that a client has missed. tree.Tree embeds [Nodes], and only package tree
// changes the nodes: the fields are exported only for this package.
package nodes

import (
	"hash/maphash"
	"strings"
)

// Nodes has the nodes of a tree and what reading them needs. One writer at a time may change them. Several
// reads may run at once, but not during a change.
type Nodes struct {
	Root *Node
	Seed maphash.Seed
	Held Holdings

	MultiRead int // the longest answer to a multiRead, in bytes
}

// At returns the node at path. It returns nil if there is no such node. It accepts any string: an illegal
// path names no node, except that "" names the root as "/" does.
func (t *Nodes) At(path string) *Node {
	if path == "" || path == "/" {
		return t.Root
	}
	if path[0] != '/' {
		return nil
	}
	n := t.Root
	for rest := path[1:]; ; {
		name, more, found := strings.Cut(rest, "/")
		p := n.Dir.find(t.Seed, name)
		if p < 0 {
			return nil
		}
		n = n.Dir.Nodes[p]
		if !found {
			return n
		}
		rest = more
	}
}

// Below returns the child of n called name. It returns nil if n has no such child.
func (t *Nodes) Below(n *Node, name string) *Node {
	if p := n.Dir.find(t.Seed, name); p >= 0 {
		return n.Dir.Nodes[p]
	}
	return nil
}

// Get returns the node at path.
func (t *Nodes) Get(path string) (Info, bool) {
	n := t.At(path)
	if n == nil {
		return Info{}, false
	}
	return n.Info(), true
}

// Children returns the names of the children of the node at path, in no
// particular order.
func (t *Nodes) Children(path string) []string {
	n := t.At(path)
	if n == nil || n.Dir == nil {
		return nil
	}
	names := make([]string, len(n.Dir.Nodes))
	for i, c := range n.Dir.Nodes {
		names[i] = c.Name
	}
	return names
}

// Walk calls fn for every node, parents before children, until fn returns false.
func (t *Nodes) Walk(fn func(path string, i Info) bool) {
	t.Root.Walk(nil, func(path string, n *Node) bool { return fn(path, n.Info()) })
}
