package tree

// due tells whether n is a container that lost its last child, or a node that
// was childless and unmodified for longer than its time to live.
func (n *node) due(now int64) bool {
	if n.children() > 0 {
		return false
	}
	switch n.kind {
	case ContainerNode:
		return n.cv != 0 // never used: it may be about to be
	case TTLNode:
		return now-n.mtime > n.owner
	}
	return false
}

// Reapable appends to out the paths of up to max nodes that Reap would remove
// now.
func (t *Tree) Reapable(now int64, max int, out []string) []string {
	for _, n := range t.reapable {
		if max <= 0 {
			break
		}
		if n.due(now) {
			out = append(out, pathOf(n))
			max--
		}
	}
	return out
}

// Reap removes the node at path if it is still a container or TTL node that is due, and reports
// whether it did. It checks no ACL.
func (t *Tree) Reap(c *Change, path string, now int64) bool {
	n := t.find(path)
	if n == nil || !n.due(now) {
		return false
	}
	t.removeNode(c, n, pathOf(n))
	return true
}
