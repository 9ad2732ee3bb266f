package tree

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
)

// Change is one write being applied: its client, its time, and its results.
type Change struct {
	Zxid    int64     // the zxid of the write if it changes something; above all earlier ones
	Time    int64     // ms since 1970, the leader's word
	Session int64     // the asker, and the owner of ephemerals
	IDs     []jute.ID // identities of the asker; scheme "super" passes every ACL
	NoQuota bool      // hard quotas are not enforced
	Budget  int       // how many steps it may take; at most MaxSteps
	NoTTL   bool      // nodes with a time to live are answered with UNIMPLEMENTED
	Full    bool      // requests that need more room are answered with THROTTLEDOP
	// OneLayout refuses, with NOAUTH, a contender that a living one would not see. Divided says that the
	// newest request was refused for this reason.
	OneLayout, Divided bool

	// Events are the changes for which watches may wait, in the order in which the watches must fire. The
	// operations append to it.
	Events []Event

	// Steps is what the newest request has cost so far.
	Steps int

	asked acl.Asker
}

// Event is something that happened to a node.
type Event struct {
	Type jute.EventType
	Path string
	ACL  *acl.Set // of the node named, when it happened
}

// fixACL is FixACL for the client that asks.
func (c *Change) fixACL(list []jute.ACL, nullID bool) ([]jute.ACL, jute.ErrCode) {
	fixed, code := acl.Fix(list, c.IDs, nullID)
	c.spend(bounds.AclSteps * max(0, len(list)+len(fixed)-2)) // an operation pays for one entry
	return fixed, code
}

// allowed reports whether the client has one of the permissions in perm on n.
func (c *Change) allowed(n *node, perm int32) bool {
	if !c.asked.Recalls(n.acl) {
		c.spend(1 + len(c.IDs)/2)
	}
	return c.asked.Allows(n.acl, c.IDs, perm)
}

// intern returns the stored form of the ACL that a client gives to a node.
func (t *Tree) intern(c *Change, acl []jute.ACL) *acl.Set {
	set := t.acls.Intern(acl)
	if set.Nodes() == 0 {
		c.spend(bounds.NewACLSteps * (1 + len(acl)))
	}
	return set
}

func (c *Change) tell(t jute.EventType, path string, n *node) {
	c.Events = append(c.Events, Event{t, path, n.acl})
}

// Only the steps below change a tree. Each keeps every derived index in step, and rollback can
// take it back.

// link puts n under its parent, at position p if it stood there before, or
// else at the end (-1).
func (t *Tree) link(n *node, p int) {
	if n.parent.dir == nil {
		n.parent.dir = &dir{}
	}
	if d := n.parent.dir; p < 0 {
		d.add(t.seed, n)
	} else {
		d.restore(t.seed, n, p)
	}
	t.acls.Retain(n.acl)
	t.count++
	t.size += int64(pathLen(n))
	t.spread(n, 1, int64(len(n.data)))
	switch n.kind {
	case EphemeralNode:
		t.held.add(n)
		t.countKin(n, 1)
	case ContainerNode, TTLNode:
		n.slot = int32(len(t.reapable))
		t.reapable = append(t.reapable, n)
	}
	if hasQuotaText(n) {
		if _, known := t.quotaTexts[n]; !known { // if a rollback brings the node back, its text is known
			t.quotaTexts[n] = readQuotaText(n.data)
		}
	}
	if n.name == limitsName {
		if p := quotaOf(pathOf(n.parent)); p != "" {
			t.quotas++
		}
	}
}

// unlink takes n, which has no children, from its parent and returns the
// position it had there.
func (t *Tree) unlink(n *node) int {
	p := n.parent.dir.remove(t.seed, n.name)
	delete(t.kins, n)
	t.acls.Release(n.acl)
	t.count--
	t.size -= int64(pathLen(n))
	t.spread(n, -1, -int64(len(n.data)))
	switch n.kind {
	case EphemeralNode:
		t.held.remove(n)
		t.countKin(n, -1)
	case ContainerNode, TTLNode:
		t.reapable = dropSlot(t.reapable, n)
	}
	if n.name == limitsName {
		if p := quotaOf(pathOf(n.parent)); p != "" {
			t.quotas--
		}
	}
	if hasQuotaText(n) && t.undo == nil { // a multi may still fail
		delete(t.quotaTexts, n)
	}
	return p
}

// spread updates the counts that the ancestors of n keep of their descendants.
func (t *Tree) spread(n *node, count int, bytes int64) {
	t.size += bytes
	for a := n.parent; a != nil; a = a.parent {
		a.dir.count += count
		a.dir.bytes += bytes
	}
}

// setData replaces the data of a node.
func (t *Tree) setData(n *node, data string, null bool) {
	t.spread(n, 0, int64(len(data)-len(n.data)))
	n.data, n.null = data, null
	if hasQuotaText(n) {
		t.quotaTexts[n] = readQuotaText(data)
	}
}

// The complete changes: they also set stamps and counts, append events and update the digest.

// addNode makes a node of the given state under parent.
func (t *Tree) addNode(c *Change, parent *node, path string, s state) *node {
	t.snap.keep(parent)
	_, name, _ := bounds.SplitPath(path)
	s.czxid, s.mzxid, s.pzxid = c.Zxid, c.Zxid, c.Zxid
	s.ctime, s.mtime = c.Time, c.Time
	n := &node{state: s, name: strings.Clone(name), parent: parent}
	t.snap.skip(n)
	t.link(n, -1)
	t.undo.created(n)
	parent.cv++
	parent.pzxid = c.Zxid
	t.zxid = c.Zxid
	t.charge(c, path, 1, int64(len(n.data)))
	t.fillStats(n)
	t.mix(mixCreate, path, n)
	t.hash.Int(uint64(uint32(parent.cv)))
	c.tell(jute.EventCreated, path, n)
	c.tell(jute.EventChildrenChanged, bounds.ParentPath(path), parent)
	return n
}

// removeNode deletes n, which has no children.
func (t *Tree) removeNode(c *Change, n *node, path string) {
	t.mix(mixDelete, path, n)
	t.hash.Int(uint64(c.Zxid))
	t.snap.keep(n.parent)
	t.snap.keepDeleted(n, path)
	t.undo.deleted(n, t.unlink(n))
	n.parent.pzxid = c.Zxid
	t.zxid = c.Zxid
	t.charge(c, path, -1, -int64(len(n.data)))
	c.tell(jute.EventDeleted, path, n)
	c.tell(jute.EventChildrenChanged, bounds.ParentPath(path), n.parent)
}

// writeData gives n new data.
func (t *Tree) writeData(c *Change, n *node, path string, data string, null bool, version int32) {
	t.snap.keep(n)
	t.undo.writing(n)
	if hasQuotaText(n) {
		t.undo.counting(t, n)
	}
	grow := int64(len(data) - len(n.data))
	t.setData(n, data, null)
	n.version = version
	n.mzxid, n.mtime = c.Zxid, c.Time
	t.zxid = c.Zxid
	t.charge(c, path, 0, grow)
	t.mix(mixSetData, path, n)
	c.tell(jute.EventDataChanged, path, n)
}

// next returns the version after v. It skips -1, which as an argument means
// "any".
func next(v int32) int32 {
	if v == -2 {
		return 0
	}
	return v + 1
}

// changeACL gives n a new ACL. It changes none of n's zxids and fires no event.
func (t *Tree) changeACL(c *Change, n *node, path string, acl []jute.ACL) {
	t.snap.keep(n)
	set := t.intern(c, acl)
	t.acls.Retain(set)
	t.acls.Release(n.acl)
	n.acl = set
	n.aversion = next(n.aversion)
	t.zxid = c.Zxid
	t.mix(mixSetACL, path, n)
	t.hash.Int(uint64(c.Zxid))
}

// The kinds of changes that are mixed into the digest.
const (
	mixCreate = iota + 1
	mixDelete
	mixSetData
	mixSetACL
)

// mix mixes into the digest a change of kind what, and the node as it is after it.
func (t *Tree) mix(what uint64, path string, n *node) {
	h := &t.hash
	kind := uint64(n.kind)
	if n.null {
		kind |= 1 << 8
	}
	h.Pair(what, kind)
	h.Text(path)
	h.Text(n.data)
	h.Int(n.acl.Sum())
	h.Pair(uint64(n.czxid), uint64(n.mzxid))
	h.Pair(uint64(n.mtime), uint64(n.owner))
	h.Pair(uint64(uint32(n.version))<<32|uint64(uint32(n.aversion)), uint64(n.pzxid))
	h.Int(uint64(uint32(n.cv))<<32 | uint64(n.children()))
}

// spend counts n steps. It returns false when the budget is used up, for this and all later calls.
func (c *Change) spend(n int) bool {
	if budget := max(c.Budget, bounds.MaxSteps); c.Steps+n > budget {
		c.Steps = budget
		return false
	}
	c.Steps += n
	return true
}
