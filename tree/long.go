package tree

import (
	"cmp"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// What an answer may list that is put together while the state is locked: so many ephemeral nodes
// with paths of so many bytes, or so many children, with names of maxCacheLen bytes.
const (
	manyEphemerals = 2000
	longEphemerals = 256 << 10
	manyChildren   = 100_000
)

func (h *holding) long() bool { return len(h.nodes) > manyEphemerals || h.paths > longEphemerals }

func (d *dir) long() bool { return len(d.nodes) > manyChildren || d.names > maxCacheLen }

// Long is an answer that lists very many nodes. Only the nodes are taken while the state is
// locked: their names, places and czxids never change, so Encode may put the answer together
// after the lock is released.
type Long struct {
	nodes []*node
	stat  []byte // behind the list

	ephemeral bool // the list is one of paths, in the order of AppendEphemerals
	prefix    string
}

// Take begins the answer to a getChildren, getChildren2 or getEphemerals of a session,
// for a client with the identities ids. It returns nil if the answer is short, or an
// error: then an Append function gives it.
func (t *Tree) Take(op jute.OpCode, session int64, ids []jute.ID, path string) *Long {
	if op == jute.OpGetEphemerals {
		h := t.ephemerals[session]
		if h == nil || !h.long() {
			return nil
		}
		return &Long{nodes: slices.Clone(h.nodes), ephemeral: true, prefix: path}
	}
	n, code := t.readable(ids, path, jute.PermRead)
	if code != jute.OK || n.dir == nil || !n.dir.long() {
		return nil
	}
	l := &Long{nodes: slices.Clone(n.dir.nodes)}
	if op == jute.OpGetChildren2 {
		l.stat = n.appendStat(nil)
	}
	return l
}

// Encode appends the response record.
func (l *Long) Encode(b []byte) []byte {
	if l.ephemeral {
		return appendEphemerals(b, l.nodes, l.prefix)
	}
	return append(appendNames(b, l.nodes), l.stat...)
}

// appendNames appends the vector of the names of nodes.
func appendNames(b []byte, nodes []*node) []byte {
	b = jute.AppendInt(b, int32(len(nodes)))
	for _, n := range nodes {
		b = jute.AppendString(b, n.name)
	}
	return b
}

// appendEphemerals appends the paths that begin with prefix, in the order of the
// reference, which copies a set of all that grew one by one. Each path is made and
// hashed once, and only those that the client asked for are sorted.
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
