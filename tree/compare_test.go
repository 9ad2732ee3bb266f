package tree_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// Dump returns everything in m, a line for each node, for comparison with Dump of a tree.
func (m *Model) Dump() string {
	var lines []string
	for p, n := range m.Nodes {
		lines = append(lines, line(p, tree.Info{Stat: m.Stat(p), Data: n.Data, ACL: n.ACL, Kind: n.Kind, TTL: n.TTL,
			Counter: n.CV}))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Dump returns everything in t, a line for each node.
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
	return fmt.Sprintf("%q data=%s %+v acl=%v kind=%d ttl=%d cv=%d", path, data, i.Stat, i.ACL, i.Kind, i.TTL,
		i.Counter)
}

// Names decodes a vector of names from a reply and sorts it.
func Names(reply []byte) []string {
	d := jute.NewDecoder(reply)
	names, _ := d.Strings()
	slices.Sort(names)
	return names
}

// SameEvents reports whether two changes have the same events.
func SameEvents(a, b []tree.Event) bool {
	return slices.EqualFunc(a, b, func(x, y tree.Event) bool {
		return x.Type == y.Type && x.Path == y.Path && slices.Equal(x.ACL.List(), y.ACL.List())
	})
}
