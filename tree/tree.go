package tree

import (
	"hash/maphash"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/digest"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// The types that readers of a tree use. They are declared in package nodes, which other packages do not
// import.
type (
	Info          = nodes.Info
	NodeKind      = nodes.NodeKind
	Ref           = nodes.Ref
	Long          = nodes.Long
	EphemeralWalk = nodes.EphemeralWalk
	ChildWalk     = nodes.ChildWalk
)

// The kinds of nodes.
const (
	PlainNode     = nodes.PlainNode
	EphemeralNode = nodes.EphemeralNode
	ContainerNode = nodes.ContainerNode
	TTLNode       = nodes.TTLNode
)

// Tree holds the znodes of a server. One writer at a time may change it. Several reads may run at once, but
// not during a change; the caller's lock ensures this.
type Tree struct {
	nodes.Nodes
	lim   limits
	zxid  int64 // zxid of the newest change
	hash  digest.Sum
	count int   // nodes, the root included
	size  int64 // bytes of all paths and data

	acls       acl.Table
	reapable   []*nodes.Node // containers and TTL nodes; Node.Slot is a node's position here
	quotas     int           // number of activated quotas
	quotaTexts map[*nodes.Node]quotaText
	kins       map[*nodes.Node]*kins // contenders by kin, in the directories counted for Change.OneLayout

	undo  *undoLog  // undo log of the multi that is being applied; otherwise nil
	buf   []byte    // scratch space for names and keys
	snap  *Snapshot // the open snapshot, or nil
	snaps uint32    // number of snapshots begun, which is the mark of the newest
}

func newTree() *Tree {
	t := &Tree{lim: defaultLimits, acls: acl.NewTable(), quotaTexts: map[*nodes.Node]quotaText{}}
	t.Seed, t.Held.By, t.MultiRead = maphash.MakeSeed(), map[int64]*nodes.Holding{}, bounds.MaxMultiReadReply
	return t
}

// Count returns how many nodes there are.
func (t *Tree) Count() int { return t.count }

// Bytes returns the bytes of all paths and data.
func (t *Tree) Bytes() int64 { return t.size }

// ACLBytes returns the bytes of all ACLs, each counted once however many nodes have it.
func (t *Tree) ACLBytes() int64 { return t.acls.Bytes() }

// Digest returns the rolling hash over all changes ever made. Trees that made the same changes have the same
// digest.
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

// limits are the bounds that tests make smaller.
type limits struct {
	children   int
	listing    int
	ephemerals int
}

var defaultLimits = limits{bounds.MaxChildren, bounds.MaxListing, bounds.MaxEphemerals}

// The nodes every tree has. They can not be deleted.
const (
	zookeeperPath = "/zookeeper"
	quotaPath     = "/zookeeper/quota"
	configPath    = "/zookeeper/config"
)
