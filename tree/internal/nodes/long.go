package nodes

import (
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// Long is an answer that lists very many nodes. Only pointers to the nodes are collected while the state is
// locked. Their names, places and czxids never change, so List may build the answer after the lock is
// released.
type Long struct {
	Stat []byte // only for getChildren2: the Stat follows the list

	kept  []byte // the encoded list; nil: it is not built yet
	nodes []*Node

	// For a list of children: List keeps the list in dir.cache if dir.cache still holds `mark`.
	dir  *Dir
	mark *[]byte

	ephemeral bool // the list holds paths, in the order of AppendEphemerals
	prefix    string
}

// Take begins the answer to a getChildren, getChildren2 or getEphemerals of a session, for a client with the
// identities ids. If the answer is short, or an error, Take returns nil, and an Append function gives the
// answer.
func (t *Nodes) Take(op jute.OpCode, session int64, ids []jute.ID, path string) *Long {
	if op == jute.OpGetEphemerals {
		h := t.Held.By[session]
		if h == nil || !h.long() {
			return nil
		}
		return &Long{nodes: slices.Clone(h.Nodes), ephemeral: true, prefix: path}
	}
	n, code := t.readable(ids, path, jute.PermRead)
	if code != jute.OK || n.Dir == nil || !n.Dir.long() {
		return nil
	}
	l := &Long{kept: n.Dir.kept(), dir: n.Dir}
	if l.kept == nil {
		l.nodes, l.mark = slices.Clone(n.Dir.Nodes), new([]byte)
		n.Dir.cache.Store(l.mark)
	}
	if op == jute.OpGetChildren2 {
		l.Stat = n.AppendStat(nil)
	}
	return l
}

// IsLong reports whether Take would begin the answer to a request.
func (t *Nodes) IsLong(op jute.OpCode, session int64, body []byte) bool {
	d := jute.NewDecoder(body)
	path, _ := d.String()
	switch op {
	case jute.OpGetEphemerals:
		h := t.Held.By[session]
		return h != nil && h.long()
	case jute.OpGetChildren, jute.OpGetChildren2:
		n := t.At(path)
		return n != nil && n.Dir != nil && n.Dir.long()
	}
	return false
}

// List returns the list. The caller must not change it, because other answers may share it.
func (l *Long) List() []byte {
	switch {
	case l.kept != nil:
	case l.ephemeral:
		l.kept = appendEphemerals(nil, l.nodes, l.prefix)
	default:
		size := 4
		for _, n := range l.nodes {
			size += 4 + len(n.Name)
		}
		list := appendNames(make([]byte, 0, size), l.nodes)
		if size <= maxKeptLen {
			l.dir.cache.CompareAndSwap(l.mark, &list)
		}
		l.kept, l.nodes = list, nil
	}
	return l.kept
}

// A list of more than manyChildren children, or of names with more than maxCacheLen bytes, is not built while
// the state is locked.
const manyChildren = 100_000

func (d *Dir) long() bool { return len(d.Nodes) > manyChildren || d.Names > maxCacheLen }

// Limits of a list of ephemeral nodes that is built while the state is locked: the number of nodes, and the
// bytes of their paths.
const (
	manyEphemerals = 2000
	longEphemerals = 256 << 10
)

func (h *Holding) long() bool { return len(h.Nodes) > manyEphemerals || h.Paths > longEphemerals }
