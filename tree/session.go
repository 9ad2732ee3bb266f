package tree

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// holding has the ephemeral nodes of a session.
type holding struct {
	nodes []*node // node.slot is the position
	paths int     // bytes that their paths take in a listing
	slot  int     // position in Tree.owners
}

// list returns the nodes in h, none if it is nil.
func (h *holding) list() []*node {
	if h == nil {
		return nil
	}
	return h.nodes
}

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
	nodes := t.ephemerals[session].list()
	list := make([]entry, 0, len(nodes))
	for _, n := range nodes {
		if path := pathOf(n); drop(path, n.czxid) {
			list = append(list, entry{n, path})
			c.Steps += endSteps + dataSteps(len(n.data)) // only MaxEphemerals bounds this
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
func (t *Tree) EphemeralCount() int { return t.owned }

// Owners goes through the sessions that own ephemeral nodes, in no particular order.
func (t *Tree) Owners() iter.Seq[int64] { return maps.Keys(t.ephemerals) }

// EphemeralsIn returns how many ephemeral nodes a session has.
func (t *Tree) EphemeralsIn(session int64) int { return len(t.ephemerals[session].list()) }

// SomeEphemeralsOf returns up to most paths of a session's ephemeral nodes, in
// no particular order.
func (t *Tree) SomeEphemeralsOf(session int64, most int) []string {
	list := t.ephemerals[session].list()
	paths := make([]string, min(len(list), most))
	for i := range paths {
		paths[i] = pathOf(list[i])
	}
	return paths
}

// AppendEphemerals appends the paths of a session's ephemeral nodes that begin
// with prefix; a blank one and "/" ask for all.
func (t *Tree) AppendEphemerals(b []byte, session int64, prefix string) []byte {
	return appendEphemerals(b, t.ephemerals[session].list(), prefix)
}

// The longest list of ephemeral nodes that is built while the state is locked: their number, and the bytes of
// their paths.
const (
	manyEphemerals = 2000
	longEphemerals = 256 << 10
)

func (h *holding) long() bool { return len(h.nodes) > manyEphemerals || h.paths > longEphemerals }

// appendEphemerals appends the paths that begin with prefix, in ZooKeeper's order: that of a copy of a hash
// set which grew path by path. Each path is made and hashed once, and only those that the client asked for
// are sorted.
func appendEphemerals(b []byte, nodes []*node, prefix string) []byte {
	if meansAll(prefix) {
		prefix = "/"
	}
	type entry struct {
		path          string
		copied, grown uint32 // buckets
		czxid         int64
	}
	copied, grown := jute.CopiedTable(len(nodes)), jute.GrownTable(len(nodes))
	var list []entry
	for _, n := range nodes {
		if path := pathOf(n); strings.HasPrefix(path, prefix) {
			hash := jute.JavaHash(path)
			list = append(list, entry{path, jute.Bucket(hash, copied), jute.Bucket(hash, grown), n.czxid})
		}
	}
	slices.SortStableFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.copied, b.copied), cmp.Compare(a.grown, b.grown), cmp.Compare(a.czxid, b.czxid))
	})
	b = jute.AppendInt(b, int32(len(list)))
	for i := range list {
		b = jute.AppendString(b, list[i].path)
	}
	return b
}

// meansAll reports whether a prefix asks for everything: the reference drops white space, as Java
// sees it, before it looks.
func meansAll(prefix string) bool {
	prefix = strings.TrimFunc(prefix, func(r rune) bool { return r <= ' ' })
	return prefix == "" || prefix == "/"
}
