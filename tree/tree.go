package tree

import (
	"hash/maphash"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/digest"
)

// Tree holds the znodes of a server. One writer at a time may change it. Several reads may run at once, but
// not during a change; the caller's lock ensures this.
type Tree struct {
	nodes
	lim   limits
	zxid  int64 // of the newest change
	hash  digest.Sum
	count int   // nodes, the root included
	size  int64 // bytes of all paths and data

	acls       acl.Table
	reapable   []*node // containers and TTL nodes; node.slot is the position
	quotas     int     // activated ones
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
	t := &Tree{lim: defaultLimits, acls: acl.NewTable(), quotaTexts: map[*node]quotaText{}}
	t.seed, t.held.by, t.multiRead = maphash.MakeSeed(), map[int64]*holding{}, bounds.MaxMultiReadReply
	return t
}

func (t *Tree) builtin(parent *node, name string, acl *acl.Set) *node {
	n := &node{state: state{acl: acl}, name: name, parent: parent}
	t.link(n, -1)
	return n
}

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

// ACLs returns every ACL that a node has. The lists must not be changed.
func (t *Tree) ACLs() [][]jute.ACL {
	var all [][]jute.ACL
	t.acls.Each(func(a *acl.Set) { all = append(all, a.List()) })
	return all
}

// limits are the bounds that a test wants smaller.
type limits struct {
	children   int
	listing    int
	ephemerals int
}

var defaultLimits = limits{bounds.MaxChildren, bounds.MaxListing, bounds.MaxEphemerals}
