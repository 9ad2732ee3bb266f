package tree

import "github.com/zlockd/zlockd/tree/internal/nodes"

// due() reports whether n is a container that has lost its last child, or a TTL node that had no children and
// no change for longer than its time to live.
func due(n *nodes.Node, now int64) bool {
	if n.Children() > 0 {
		return false
	}
	switch n.Kind {
	case nodes.ContainerNode:
		return n.CV != 0 // a container that never had a child may get one soon
	case nodes.TTLNode:
		return now-n.Mtime > n.Owner
	}
	return false
}

// reapLook bounds the nodes that one call of Reapable looks at. There may be millions of nodes, with paths of
// 64 KiB.
const reapLook = 500

// Reapable appends to `out` the paths of nodes that Reap would remove now, at most `max` of them. It looks at
// a few nodes, beginning at the position `from`, and returns the position for the next call; 0 at the end. If
// the tree changes between two calls, a node may be missed because it moved to an earlier position.
func (t *Tree) Reapable(now int64, from, max int, out []string) (_ []string, next int) {
	for next = from; next < len(t.reapable); next++ {
		if max <= 0 || next-from >= reapLook {
			return out, next
		}
		if n := t.reapable[next]; due(n, now) {
			out = append(out, nodes.PathOf(n))
			max--
		}
	}
	return out, 0
}

// Reap removes the node at path if it is still a container or TTL node that is due, and reports
// whether it did. It checks no ACL.
func (t *Tree) Reap(c *Change, path string, now int64) bool {
	n := t.At(path)
	if n == nil || !due(n, now) {
		return false
	}
	t.removeNode(c, n, nodes.PathOf(n))
	return true
}
