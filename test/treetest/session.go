package treetest

import (
	"cmp"
	"slices"

	"github.com/zlockd/zlockd/tree"
)

// CloseSession is tree.Tree.CloseSession.
func (m *Model) CloseSession(c *tree.Change, session int64) {
	var paths []string
	for p, n := range m.Nodes {
		if n.Kind == tree.EphemeralNode && n.EphemeralOwner == session {
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.Nodes[a].Czxid, m.Nodes[b].Czxid), cmp.Compare(a, b))
	})
	for _, p := range paths {
		m.remove(c, p)
	}
}

// Reap is tree.Tree.Reap.
func (m *Model) Reap(c *tree.Change, path string, now int64) bool {
	n := m.Nodes[path]
	due := n.Kind == tree.ContainerNode && n.CV != 0 || n.Kind == tree.TTLNode && now-n.Mtime > n.TTL
	if !due || len(m.Children(path)) > 0 {
		return false
	}
	m.remove(c, path)
	return true
}

// SetConfig is tree.Tree.SetConfig.
func (m *Model) SetConfig(c *tree.Change, text []byte) { m.write(c, "/zookeeper/config", text, -1) }

// SetCounter is tree.Tree.SetCounter.
func (m *Model) SetCounter(path string, cv int32) bool {
	n, ok := m.Nodes[path]
	if ok {
		n.CV = cv
		m.Nodes[path] = n
	}
	return ok
}
