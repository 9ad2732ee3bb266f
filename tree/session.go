package tree

import (
	"cmp"
	"slices"

	"github.com/zlockd/zlockd/tree/bounds"
)

// CloseSession deletes all ephemerals of a session under one zxid, in the
// order in which they were made.
func (t *Tree) CloseSession(c *Change, session int64) {
	t.DropEphemerals(c, session, func(string, int64) bool { return true })
}

// DropEphemerals deletes the ephemeral nodes of a session for which drop, given the path and the czxid,
// returns true. It deletes them in the order of their creation.
func (t *Tree) DropEphemerals(c *Change, session int64, drop func(path string, czxid int64) bool) {
	type entry struct {
		node *node
		path string
	}
	held := t.held.by[session].list()
	list := make([]entry, 0, len(held))
	for _, n := range held {
		if path := pathOf(n); drop(path, n.czxid) {
			list = append(list, entry{n, path})
			c.Steps += bounds.EndSteps + bounds.DataSteps(len(n.data)) // only MaxEphemerals bounds this
		}
	}
	// The index has no order of its own, and a restored one differs from one
	// that grew; every server must delete in the same order.
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.node.czxid, b.node.czxid), cmp.Compare(a.path, b.path))
	})
	for _, e := range list {
		t.removeNode(c, e.node, e.path)
	}
}

// EphemeralCount returns how many ephemeral nodes there are.
func (t *Tree) EphemeralCount() int { return t.held.count }
