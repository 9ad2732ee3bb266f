package nodes

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Holdings has the ephemeral nodes of all sessions.
type Holdings struct {
	By     map[int64]*Holding
	Owners []*Holding // the values of By, for walks in pieces; Holding.Slot is the position here
	Count  int        // nodes of all sessions
}

// Holding has the ephemeral nodes of a session.
type Holding struct {
	Nodes []*Node // Node.Slot is a node's position here
	Paths int     // bytes that the paths of the session's nodes take in a listing
	Slot  int     // position in Holdings.Owners
}

// Add adds n, a new ephemeral node.
func (o *Holdings) Add(n *Node) {
	h := o.By[n.Owner]
	if h == nil {
		h = &Holding{Slot: len(o.Owners)}
		o.By[n.Owner] = h
		o.Owners = append(o.Owners, h)
	}
	n.Slot = int32(len(h.Nodes))
	h.Nodes = append(h.Nodes, n)
	h.Paths += 4 + PathLen(n)
	o.Count++
}

// Remove removes n, which is no longer in the tree.
func (o *Holdings) Remove(n *Node) {
	h := o.By[n.Owner]
	h.Paths -= 4 + PathLen(n)
	if h.Nodes = DropSlot(h.Nodes, n); len(h.Nodes) == 0 {
		delete(o.By, n.Owner)
		o.dropOwner(h)
	}
	o.Count--
}

// DropSlot removes n from a list in which every node knows its position.
func DropSlot(list []*Node, n *Node) []*Node {
	last := len(list) - 1
	moved := list[last]
	moved.Slot = n.Slot
	list[n.Slot] = moved
	list[last] = nil
	if list = list[:last]; cap(list) > 64 && len(list)*8 < cap(list) {
		list = append(make([]*Node, 0, 2*len(list)), list...)
	}
	return list
}

// dropOwner removes h from o.Owners.
func (o *Holdings) dropOwner(h *Holding) {
	last := len(o.Owners) - 1
	moved := o.Owners[last]
	moved.Slot = h.Slot
	o.Owners[h.Slot] = moved
	o.Owners[last] = nil
	o.Owners = o.Owners[:last]
	if cap(o.Owners) > 64 && last*8 < cap(o.Owners) {
		o.Owners = append(make([]*Holding, 0, 2*last), o.Owners...)
	}
}

// List returns the nodes in h. A nil h has no nodes.
func (h *Holding) List() []*Node {
	if h == nil {
		return nil
	}
	return h.Nodes
}

// Owners goes through the sessions that own ephemeral nodes, in no particular order.
func (t *Nodes) Owners() iter.Seq[int64] { return maps.Keys(t.Held.By) }

// EphemeralsIn returns how many ephemeral nodes a session has.
func (t *Nodes) EphemeralsIn(session int64) int { return len(t.Held.By[session].List()) }

// SomeEphemeralsOf returns at most `most` paths of a session's ephemeral nodes, in no particular order.
func (t *Nodes) SomeEphemeralsOf(session int64, most int) []string {
	list := t.Held.By[session].List()
	paths := make([]string, min(len(list), most))
	for i := range paths {
		paths[i] = PathOf(list[i])
	}
	return paths
}

// AppendEphemerals appends the paths of a session's ephemeral nodes that begin with prefix. A blank prefix
// and "/" mean all paths.
func (t *Nodes) AppendEphemerals(b []byte, session int64, prefix string) []byte {
	return appendEphemerals(b, t.Held.By[session].List(), prefix)
}

// appendEphemerals appends the paths that begin with prefix, in ZooKeeper's order: the order of a copy of a
// Java hash set that grew path by path. It makes and hashes each path once, and sorts only the paths that the
// client asked for.
func appendEphemerals(b []byte, nodes []*Node, prefix string) []byte {
	if meansAll(prefix) {
		prefix = "/"
	}
	type entry struct {
		path          string
		copied, grown uint32 // the path's hash buckets in the copy, and in the Java set that was copied
		czxid         int64
	}
	copied, grown := jute.CopiedTable(len(nodes)), jute.GrownTable(len(nodes))
	var list []entry
	for _, n := range nodes {
		if path := PathOf(n); strings.HasPrefix(path, prefix) {
			hash := jute.JavaHash(path)
			list = append(list, entry{path, jute.Bucket(hash, copied), jute.Bucket(hash, grown), n.Czxid})
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

// meansAll reports whether a prefix asks for everything: ZooKeeper first removes white space, as Java defines
// it.
func meansAll(prefix string) bool {
	prefix = strings.TrimFunc(prefix, func(r rune) bool { return r <= ' ' })
	return prefix == "" || prefix == "/"
}
