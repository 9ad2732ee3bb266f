package tree

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/digest"
)

// NodeKind says what keeps a node alive.
type NodeKind uint8

// The kinds of nodes. The numbers stand in snapshots.
const (
	PlainNode     NodeKind = iota // lives until it is deleted
	EphemeralNode                 // lives until its session ends
	ContainerNode                 // lives until it has lost its last child
	TTLNode                       // lives until it has had no children and no change for its time to live
)

// state is the part of a node that a snapshot writes.
type state struct {
	data  string // immutable, so that copies of a state share it
	acl   *acl.Set
	czxid int64
	mzxid int64
	pzxid int64
	ctime int64
	mtime int64
	owner int64 // EphemeralNode: the session. TTLNode: time to live, ms. Else 0

	version  int32
	cv       int32 // children ever created; not the cversion that clients see
	aversion int32
	kind     NodeKind
	null     bool // the data is null, which is not the same as empty
}

// node is an entry of the tree. At a million of them every word counts.
type node struct {
	state
	slot   int32  // its index in its session's ephemerals or in Tree.reapable
	mark   uint32 // number of the snapshot that needs nothing more of this node
	name   string // "" for the root
	parent *node  // nil: this node is the root
	dir    *dir   // nil: the node has never had a child
}

func (n *node) children() int {
	if n.dir == nil {
		return 0
	}
	return len(n.dir.nodes)
}

// stat returns what clients see. The built-in nodes were never counted in
// their parents' cv, so the cversion of / and /zookeeper starts negative, and
// tools know them so.
func (n *node) stat() jute.Stat {
	children := int32(n.children())
	s := jute.Stat{
		Czxid: n.czxid, Mzxid: n.mzxid, Ctime: n.ctime, Mtime: n.mtime,
		Version: n.version, Cversion: 2*n.cv - children, Aversion: n.aversion,
		DataLength: int32(len(n.data)), NumChildren: children, Pzxid: n.pzxid,
	}
	if n.kind == EphemeralNode {
		s.EphemeralOwner = n.owner
	}
	return s
}

func (n *node) appendStat(b []byte) []byte {
	s := n.stat()
	return jute.AppendStat(b, &s)
}

func (n *node) appendData(b []byte) []byte {
	if n.null {
		return jute.AppendInt(b, -1)
	}
	return jute.AppendString(b, n.data)
}

// Tree holds the znodes of a server. One writer at a time may change it. Several reads may run at once, but
// not during a change; the caller's lock ensures this.
type Tree struct {
	root  *node
	seed  maphash.Seed
	lim   limits
	zxid  int64 // of the newest change
	hash  digest.Sum
	count int   // nodes, the root included
	size  int64 // bytes of all paths and data

	acls       acl.Table
	ephemerals map[int64]*holding // by session
	owners     []*holding         // the same, for walks in pieces; holding.slot is the position
	owned      int                // ephemerals of all sessions
	reapable   []*node            // containers and TTL nodes; node.slot is the position
	quotas     int                // activated ones
	quotaTexts map[*node]quotaText
	kins       map[*node]*kins // kin of directories in which Change.OneLayout had to be obeyed

	undo  *undoLog  // undo log of the multi that is being applied; otherwise nil
	buf   []byte    // scratch of names and keys
	snap  *Snapshot // the open one, or nil
	snaps uint32    // how many were begun: the newest one's mark
}

// New returns a tree with the nodes that every tree has.
func New() *Tree {
	t := newTree()
	world := t.acls.Intern(jute.WorldAnyone)
	t.root = &node{state: state{acl: world}}
	t.acls.Retain(world)
	t.count, t.size = 1, 1
	zk := t.builtin(t.root, "zookeeper", world)
	t.builtin(zk, "config",
		t.acls.Intern([]jute.ACL{{Perms: jute.PermRead, ID: jute.WorldAnyone[0].ID}})).aversion = -1
	t.builtin(zk, "quota", world)
	return t
}

func newTree() *Tree {
	return &Tree{
		seed: maphash.MakeSeed(), lim: defaultLimits, acls: acl.NewTable(),
		ephemerals: map[int64]*holding{}, quotaTexts: map[*node]quotaText{},
	}
}

func (t *Tree) builtin(parent *node, name string, acl *acl.Set) *node {
	n := &node{state: state{acl: acl}, name: name, parent: parent}
	t.link(n, -1)
	return n
}

// find returns the node at path. It returns nil if there is no such node. It accepts any string: an illegal
// path names no node, except that "" names the root as "/" does.
func (t *Tree) find(path string) *node {
	if path == "" || path == "/" {
		return t.root
	}
	if path[0] != '/' {
		return nil
	}
	n := t.root
	for rest := path[1:]; ; {
		name, more, found := strings.Cut(rest, "/")
		p := n.dir.find(t.seed, name)
		if p < 0 {
			return nil
		}
		n = n.dir.nodes[p]
		if !found {
			return n
		}
		rest = more
	}
}

// child returns the child of n called name. It returns nil if n has no such child.
func (t *Tree) child(n *node, name string) *node {
	if p := n.dir.find(t.seed, name); p >= 0 {
		return n.dir.nodes[p]
	}
	return nil
}

// pathLen returns the length of n's path.
func pathLen(n *node) int {
	if n.parent == nil {
		return 1
	}
	size := 0
	for ; n.parent != nil; n = n.parent {
		size += 1 + len(n.name)
	}
	return size
}

// appendPath appends n's path.
func appendPath(b []byte, n *node) []byte {
	if n.parent == nil {
		return append(b, '/')
	}
	at := len(b) + pathLen(n)
	b = slices.Grow(b, at-len(b))[:at]
	for ; n.parent != nil; n = n.parent {
		at -= len(n.name)
		copy(b[at:], n.name)
		at--
		b[at] = '/'
	}
	return b
}

func pathOf(n *node) string { return string(appendPath(nil, n)) }

// Count returns how many nodes there are.
func (t *Tree) Count() int { return t.count }

// Bytes returns the bytes of all paths and data.
func (t *Tree) Bytes() int64 { return t.size }

// ACLBytes returns the bytes of all ACLs, each counted once however many nodes have it.
func (t *Tree) ACLBytes() int64 { return t.acls.Bytes() }

// Digest returns the rolling hash over all changes ever made. Trees that made
// the same changes have the same one.
func (t *Tree) Digest() uint64 { return uint64(t.hash) }

// quotaText holds the numbers in the text of a quota's node. The text is parsed when it is written, because
// it may be a megabyte long and every change below the quota needs it.
type quotaText struct{ count, bytes, countLimit, byteLimit int64 }
