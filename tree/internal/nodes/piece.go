package nodes

import (
	"github.com/zlockd/zlockd/jute"
)

// Ref is a node met on a walk in pieces. Its methods may be called only while the tree does not change, as
// during the walk. A Ref that is kept longer can still be compared with other Refs, but keeps the node's
// memory from being freed.
type Ref struct{ n *Node }

// Name returns the last part of the node's path. For the root it returns "".
func (r Ref) Name() string { return r.n.Name }

// Path returns the node's path.
func (r Ref) Path() string { return PathOf(r.n) }

// PathOnto appends the path to b.
func (r Ref) PathOnto(b []byte) []byte { return appendPath(b, r.n) }

// Parent returns the node's parent; the root has no parent, so Parent must not be called for it.
func (r Ref) Parent() Ref { return Ref{r.n.Parent} }

// Session returns the session that an ephemeral node belongs to. For other nodes it returns 0.
func (r Ref) Session() int64 {
	if r.n.Kind != EphemeralNode {
		return 0
	}
	return r.n.Owner
}

// Stat returns the node's stat.
func (r Ref) Stat() jute.Stat { return r.n.stat() }

// Counter returns how many children were ever created under the node: the next
// sequential suffix.
func (r Ref) Counter() int32 { return r.n.CV }

// Kind says what keeps the node alive.
func (r Ref) Kind() NodeKind { return r.n.Kind }

// Data returns the node's data, for a client with the identities ids. The data never change: a
// write replaces them.
func (r Ref) Data(ids []jute.ID) (data string, allowed bool) {
	if !r.n.ACL.Allows(ids, jute.PermRead) {
		return "", false
	}
	return r.n.Data, true
}

// May reports whether a client with the identities ids has one of the permissions in perm on the node.
func (r Ref) May(ids []jute.ID, perm int32) bool { return r.n.ACL.Allows(ids, perm) }

// Find returns the node at path.
func (t *Nodes) Find(path string) (Ref, bool) {
	n := t.At(path)
	return Ref{n}, n != nil
}

// Child returns the child called name of a node.
func (t *Nodes) Child(of Ref, name string) (Ref, bool) {
	n := t.Below(of.n, name)
	return Ref{n}, n != nil
}

// EphemeralWalk goes through all ephemeral nodes in pieces: the tree may change between them. The walk meets
// a node that exists all the time at least once, perhaps more often. It may miss a node that is created or
// deleted during the walk.
//
// The walk goes from the last position to the first. Removing a node moves the last entry of a list into the
// gap, and adding appends. So no node that the walk has not met yet moves past the walk.
type EphemeralWalk struct {
	begun bool
	owner int      // position in Holdings.Owners
	of    *Holding // the holding at position owner; nil: the walk is between two holdings
	node  int      // position in of.Nodes; the nodes at this position and above were met
}

// NextEphemerals calls fn for some nodes of a walk and reports whether there may be more. It stops when the
// sum of the costs that fn returned reaches `most`, so that other work gets its turn. Each node costs at
// least one.
func (t *Nodes) NextEphemerals(w *EphemeralWalk, most int, fn func(Ref) (cost int)) (more bool) {
	if !w.begun {
		w.begun, w.owner = true, len(t.Held.Owners)
	}
	if w.of != nil && (w.owner >= len(t.Held.Owners) || t.Held.Owners[w.owner] != w.of) {
		w.of = nil // the holding is gone; a holding that was already met may be in its place
	}
	for {
		if w.of == nil {
			w.owner = min(w.owner, len(t.Held.Owners)) - 1
			if w.owner < 0 {
				return false
			}
			w.of = t.Held.Owners[w.owner]
			w.node = len(w.of.Nodes)
		}
		for w.node = min(w.node, len(w.of.Nodes)); w.node > 0; {
			if most <= 0 {
				return true
			}
			w.node--
			most -= max(fn(Ref{w.of.Nodes[w.node]}), 1)
		}
		w.of = nil
	}
}

// ChildWalk goes through the children of a node in pieces, as EphemeralWalk
// does through ephemeral nodes.
type ChildWalk struct {
	begun bool
	next  int // the children at this position and above were met
}

// Next calls fn for some children of a node and reports whether there may be more. For the parameter `most`
// see NextEphemerals.
func (w *ChildWalk) Next(of Ref, most int, fn func(Ref) (cost int)) (more bool) {
	if of.n.Dir == nil {
		return false
	}
	nodes := of.n.Dir.Nodes
	if !w.begun {
		w.begun, w.next = true, len(nodes)
	}
	for w.next = min(w.next, len(nodes)); w.next > 0; {
		if most <= 0 {
			return true
		}
		w.next--
		most -= max(fn(Ref{nodes[w.next]}), 1)
	}
	return false
}
