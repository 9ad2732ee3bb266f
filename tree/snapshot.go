package tree

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/digest"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// The stream of a snapshot is a list of records, each beginning with one of
// these bytes:
//
//	header  version u8, zxid i64, digest i64, nodes i64
//	acl     list (numbered from 0 in the order in which they come)
//	node    shared u32, rest of the path, data, acl number u32, czxid, mzxid,
//	        pzxid, ctime, mtime, owner i64, version, cv, aversion i32, kind u8
//	end     nodes i64
//
// in the encoding of package jute. The header comes first, the end last. Every node comes once and after its
// parent. `shared` is how many bytes a node's path has in common with the path of the previous node.
// These bytes are left out. Otherwise a large directory deep in a small tree would make a huge snapshot.
const (
	recHeader = 'H'
	recACL    = 'A'
	recNode   = 'N'
	recEnd    = 'E'
)

const snapshotVersion = 1

// maxChunk bounds how long one call of Append holds the read lock: a chunk ends when it has this many bytes,
// even if it could have more nodes.
const maxChunk = 256 << 10

// Snapshot is the tree as it was when StartSnapshot was called. While the snapshot is open, the first change
// to a node that was not yet written out keeps a copy of the node. Nothing else slows down.
type Snapshot struct {
	tree   *Tree
	mark   uint32 // Node.Mark of the nodes of which the snapshot needs nothing more
	zxid   int64
	hash   digest.Sum
	nodes  int // number of nodes at the start
	stage  snapshotStage
	acls   map[*acl.Set]uint32 // the numbers of the ACLs already written
	last   []byte              // path of the node written last
	out    int                 // nodes written
	stack  []walkFrame
	path   []byte // path of the node being visited; empty for the root
	closed bool

	// changed holds the old state of nodes that changed before they were written; deleted holds
	// nodes that are gone, children before their parents.
	changed map[*nodes.Node]nodes.State
	deleted []deletedNode
}

type snapshotStage uint8

const (
	stageHeader  snapshotStage = iota
	stageWalk                  // the nodes that are in the tree
	stageDeleted               // the nodes that were deleted since the start
	stageDone
)

// walkFrame is a directory being walked: its children at the positions 0 to left-1 must still be written.
type walkFrame struct {
	node *nodes.Node
	left int
	path int // length of its path
}

type deletedNode struct {
	path string
	nodes.State
}

// StartSnapshot begins a snapshot. No other goroutine may use the tree during the call, as for a
// change. Only one snapshot can be open at a time.
func (t *Tree) StartSnapshot() *Snapshot {
	if t.snap != nil {
		panic("tree: two snapshots at a time")
	}
	// The first mark is 1, because nodes that no snapshot has met have the mark 0. Marks would wrap after a
	// century.
	t.snaps++
	t.snap = &Snapshot{
		tree: t, mark: t.snaps, zxid: t.zxid, hash: t.hash, nodes: t.count,
		acls: map[*acl.Set]uint32{}, changed: map[*nodes.Node]nodes.State{},
	}
	return t.snap
}

// Close ends the snapshot, complete or not. No other goroutine may use the tree during the call,
// as for a change.
func (s *Snapshot) Close() {
	if !s.closed {
		s.closed = true
		s.tree.snap = nil
		s.changed, s.deleted, s.acls, s.stack = nil, nil, nil, nil
	}
}

// Append appends the next chunk, with up to n nodes, and reports whether it was the last. While Append runs,
// the caller allows other reads but no changes.
func (s *Snapshot) Append(b []byte, n int) (out []byte, done bool) {
	start := len(b)
	if s.stage == stageHeader {
		b = s.header(b)
		s.stage = stageWalk
		b = s.visit(b, s.tree.Root, 0)
		n--
	}
	for ; n > 0 && len(b)-start < maxChunk && s.stage != stageDone; n-- {
		switch {
		case len(s.stack) > 0:
			b = s.step(b)
		case len(s.deleted) > 0:
			s.stage = stageDeleted
			last := len(s.deleted) - 1
			b = s.node(b, s.deleted[last].path, 0, &s.deleted[last].State)
			s.deleted[last] = deletedNode{}
			s.deleted = s.deleted[:last]
		default:
			s.stage = stageDone
			b = s.end(b)
		}
	}
	return b, s.stage == stageDone
}

// step() writes the next child of the directory on top of the stack, or leaves
// the directory.
func (s *Snapshot) step(b []byte) []byte {
	f := &s.stack[len(s.stack)-1]
	s.path = s.path[:f.path]
	if f.left = min(f.left, f.node.Children()); f.left == 0 {
		s.stack = s.stack[:len(s.stack)-1]
		return b
	}
	f.left--
	n := f.node.Dir.Nodes[f.left]
	if n.Mark == s.mark {
		return b // the child was made since the start, or moved here after it was written
	}
	s.path = append(append(s.path, '/'), n.Name...)
	return s.visit(b, n, f.path)
}

// visit() writes n, whose path is in s.path, and steps into it. The node written last is n's parent or is
// below this parent. So both paths begin with the same bytes; `shared` is their number.
func (s *Snapshot) visit(b []byte, n *nodes.Node, shared int) []byte {
	n.Mark = s.mark // only the walk and changes look at marks, and they never run at once
	st := &n.State
	if old, ok := s.changed[n]; ok {
		st = &old
	}
	path := nodes.StringOf(s.path)
	if n.Parent == nil {
		path = "/"
	}
	s.stack = append(s.stack, walkFrame{n, n.Children(), len(s.path)})
	return s.node(b, path, shared, st)
}

// Changes call the three methods below. A nil snapshot is one that is not open.

// keep() saves the state of n before it changes.
func (s *Snapshot) keep(n *nodes.Node) {
	if s == nil || n.Mark == s.mark {
		return
	}
	if _, ok := s.changed[n]; !ok {
		s.changed[n] = n.State
	}
}

// keepDeleted saves n before it is taken out. If a failing multi puts n back, the snapshot needs nothing more
// of n.
func (s *Snapshot) keepDeleted(n *nodes.Node, path string) {
	if s == nil || n.Mark == s.mark {
		return
	}
	st, ok := s.changed[n]
	if !ok {
		st = n.State
	}
	n.Mark = s.mark
	s.deleted = append(s.deleted, deletedNode{path, st})
}

// skip() marks a new node, which is not part of the snapshot.
func (s *Snapshot) skip(n *nodes.Node) {
	if s != nil {
		n.Mark = s.mark
	}
}

func (s *Snapshot) header(b []byte) []byte {
	b = append(b, recHeader, snapshotVersion)
	b = jute.AppendLong(b, s.zxid)
	b = jute.AppendLong(b, int64(s.hash))
	return jute.AppendLong(b, int64(s.nodes))
}

func (s *Snapshot) end(b []byte) []byte { return jute.AppendLong(append(b, recEnd), int64(s.out)) }

// node() writes a node. Its path and the path of the previous node have the first `shared` bytes in common,
// and perhaps more.
func (s *Snapshot) node(b []byte, path string, shared int, st *nodes.State) []byte {
	id, ok := s.acls[st.ACL]
	if !ok {
		id = uint32(len(s.acls))
		s.acls[st.ACL] = id
		b = append(b, recACL)
		b = append(b, st.ACL.Key()...)
	}
	s.out++
	b = append(b, recNode)
	for shared < min(len(path), len(s.last)) && path[shared] == s.last[shared] {
		shared++
	}
	s.last = append(s.last[:shared], path[shared:]...)
	b = jute.AppendInt(b, int32(shared))
	b = jute.AppendString(b, path[shared:])
	if st.Null {
		b = jute.AppendInt(b, -1)
	} else {
		b = jute.AppendString(b, st.Data)
	}
	b = jute.AppendInt(b, int32(id))
	for _, v := range [...]int64{st.Czxid, st.Mzxid, st.Pzxid, st.Ctime, st.Mtime, st.Owner} {
		b = jute.AppendLong(b, v)
	}
	for _, v := range [...]int32{st.Version, st.CV, st.Aversion} {
		b = jute.AppendInt(b, v)
	}
	return append(b, byte(st.Kind))
}
