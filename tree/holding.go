package tree

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// holdings are the ephemeral nodes by session.
type holdings struct {
	by     map[int64]*holding
	owners []*holding // the same, for walks in pieces; holding.slot is the position
	count  int        // nodes of all sessions
}

// holding has the ephemeral nodes of a session.
type holding struct {
	nodes []*node // node.slot is the position
	paths int     // bytes that their paths take in a listing
	slot  int     // position in holdings.owners
}

// add notes that n, an ephemeral node, has come.
func (o *holdings) add(n *node) {
	h := o.by[n.owner]
	if h == nil {
		h = &holding{slot: len(o.owners)}
		o.by[n.owner] = h
		o.owners = append(o.owners, h)
	}
	n.slot = int32(len(h.nodes))
	h.nodes = append(h.nodes, n)
	h.paths += 4 + pathLen(n)
	o.count++
}

// remove notes that n has gone.
func (o *holdings) remove(n *node) {
	h := o.by[n.owner]
	h.paths -= 4 + pathLen(n)
	if h.nodes = dropSlot(h.nodes, n); len(h.nodes) == 0 {
		delete(o.by, n.owner)
		o.dropOwner(h)
	}
	o.count--
}

// dropSlot takes n from a list in which every node knows its position.
func dropSlot(list []*node, n *node) []*node {
	last := len(list) - 1
	moved := list[last]
	moved.slot = n.slot
	list[n.slot] = moved
	list[last] = nil
	if list = list[:last]; cap(list) > 64 && len(list)*8 < cap(list) {
		list = append(make([]*node, 0, 2*len(list)), list...)
	}
	return list
}

// dropOwner takes a holding from holdings.owners.
func (o *holdings) dropOwner(h *holding) {
	last := len(o.owners) - 1
	moved := o.owners[last]
	moved.slot = h.slot
	o.owners[h.slot] = moved
	o.owners[last] = nil
	o.owners = o.owners[:last]
	if cap(o.owners) > 64 && last*8 < cap(o.owners) {
		o.owners = append(make([]*holding, 0, 2*last), o.owners...)
	}
}

// list returns the nodes in h, none if it is nil.
func (h *holding) list() []*node {
	if h == nil {
		return nil
	}
	return h.nodes
}

// Owners goes through the sessions that own ephemeral nodes, in no particular order.
func (t *nodes) Owners() iter.Seq[int64] { return maps.Keys(t.held.by) }

// EphemeralsIn returns how many ephemeral nodes a session has.
func (t *nodes) EphemeralsIn(session int64) int { return len(t.held.by[session].list()) }

// SomeEphemeralsOf returns up to most paths of a session's ephemeral nodes, in
// no particular order.
func (t *nodes) SomeEphemeralsOf(session int64, most int) []string {
	list := t.held.by[session].list()
	paths := make([]string, min(len(list), most))
	for i := range paths {
		paths[i] = pathOf(list[i])
	}
	return paths
}

// AppendEphemerals appends the paths of a session's ephemeral nodes that begin
// with prefix; a blank one and "/" ask for all.
func (t *nodes) AppendEphemerals(b []byte, session int64, prefix string) []byte {
	return appendEphemerals(b, t.held.by[session].list(), prefix)
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
