package treetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
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

// Dump returns all there is in m, a line for each node, for comparison with
// Dump of a tree.
func (m *Model) Dump() string {
	var lines []string
	for p, n := range m.Nodes {
		lines = append(lines, line(p, tree.Info{Stat: m.Stat(p), Data: n.Data, ACL: n.ACL, Kind: n.Kind, TTL: n.TTL, Counter: n.CV}))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Dump returns all there is in t, a line for each node.
func Dump(t *tree.Tree) string {
	var lines []string
	t.Walk(func(path string, i tree.Info) bool {
		lines = append(lines, line(path, i))
		return true
	})
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func line(path string, i tree.Info) string {
	data := fmt.Sprintf("%q", i.Data)
	if i.Data == nil {
		data = "null"
	}
	return fmt.Sprintf("%q data=%s %+v acl=%v kind=%d ttl=%d cv=%d", path, data, i.Stat, i.ACL, i.Kind, i.TTL, i.Counter)
}

// Names decodes a vector of names from a reply and sorts it.
func Names(reply []byte) []string {
	d := jute.NewDecoder(reply)
	names, _ := d.Strings()
	slices.Sort(names)
	return names
}
