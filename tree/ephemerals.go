package tree

import (
	"cmp"
	"slices"

	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// CloseSession deletes all ephemerals of a session under one zxid, in the
// order in which they were made.
func (t *Tree) CloseSession(c *Change, session int64) {
	t.DropEphemerals(c, session, func(string, int64) bool { return true })
}

// DropEphemerals deletes the ephemeral nodes of a session for which drop() returns true, in the order of
// their creation. The arguments of drop() are the path and the czxid of a node.
func (t *Tree) DropEphemerals(c *Change, session int64, drop func(path string, czxid int64) bool) {
	type entry struct {
		node *nodes.Node
		path string
	}
	held := t.Held.By[session].List()
	list := make([]entry, 0, len(held))
	for _, n := range held {
		if path := nodes.PathOf(n); drop(path, n.Czxid) {
			list = append(list, entry{n, path})
			c.Steps += bounds.EndSteps + bounds.DataSteps(len(n.Data)) // only MaxEphemerals bounds this cost
		}
	}
	// Sort the nodes, because every server must delete in the same order. After a restore the lists of ephemeral
	// nodes are in another order.
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.node.Czxid, b.node.Czxid), cmp.Compare(a.path, b.path))
	})
	for _, e := range list {
		t.removeNode(c, e.node, e.path)
	}
}

// EphemeralCount returns how many ephemeral nodes there are.
func (t *Tree) EphemeralCount() int { return t.Held.Count }
