package tree

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// Change is one write being applied: its client, its time, and its results.
type Change struct {
	Zxid    int64     // the zxid of the write if it changes something; above all earlier zxids
	Time    int64     // ms since 1970, as the leader says
	Session int64     // session of the client, and owner of the ephemeral nodes that it creates
	IDs     []jute.ID // identities of the client; scheme "super" passes every ACL
	NoQuota bool      // hard quotas are not enforced
	Budget  int       // how many steps the write may take, but not less than MaxSteps
	NoTTL   bool      // a create with a time to live is answered with UNIMPLEMENTED
	Full    bool      // requests that need more room are answered with THROTTLEDOP
	// With OneLayout, a create of a contender is answered with NOAUTH if a living contender would not see the
	// new one. Divided says that the newest request was refused for this reason.
	OneLayout, Divided bool

	// Events are the changes for which watches may wait, in the order in which the watches must fire. The
	// operations append to Events.
	Events []Event

	// Steps is what the newest request has cost so far.
	Steps int

	asked acl.Asker
}

// Event is something that happened to a node.
type Event struct {
	Type jute.EventType
	Path string
	ACL  *acl.Set // ACL of the node at Path when the event happened
}

// fixACL calls acl.Fix for the client of the change, and counts its steps.
func (c *Change) fixACL(list []jute.ACL, nullID bool) ([]jute.ACL, jute.ErrCode) {
	fixed, code := acl.Fix(list, c.IDs, nullID)
	c.spend(bounds.ACLSteps * max(0, len(list)+len(fixed)-2)) // one entry of each list costs nothing extra
	return fixed, code
}

// allowed() reports whether the client has one of the permissions in perm on n.
func (c *Change) allowed(n *nodes.Node, perm int32) bool {
	if !c.asked.Recalls(n.ACL) {
		c.spend(1 + len(c.IDs)/2)
	}
	return c.asked.Allows(n.ACL, c.IDs, perm)
}

// intern() returns the stored form of the ACL that a client gives to a node.
func (t *Tree) intern(c *Change, acl []jute.ACL) *acl.Set {
	set := t.acls.Intern(acl)
	if set.Nodes() == 0 {
		c.spend(bounds.NewACLSteps * (1 + len(acl)))
	}
	return set
}

func (c *Change) tell(t jute.EventType, path string, n *nodes.Node) {
	c.Events = append(c.Events, Event{t, path, n.ACL})
}

// Only the functions below change a tree. Each of them updates every derived index, and rollback can undo it.

// link() puts n under its parent. If n was there before, p is its old position. If p is -1, n comes at the
// end.
func (t *Tree) link(n *nodes.Node, p int) {
	if n.Parent.Dir == nil {
		n.Parent.Dir = &nodes.Dir{}
	}
	if d := n.Parent.Dir; p < 0 {
		d.Add(t.Seed, n)
	} else {
		d.Restore(t.Seed, n, p)
	}
	t.acls.Retain(n.ACL)
	t.count++
	t.size += int64(nodes.PathLen(n))
	t.spread(n, 1, int64(len(n.Data)))
	switch n.Kind {
	case nodes.EphemeralNode:
		t.Held.Add(n)
		t.countKin(n, 1)
	case nodes.ContainerNode, nodes.TTLNode:
		n.Slot = int32(len(t.reapable))
		t.reapable = append(t.reapable, n)
	}
	if hasQuotaText(n) {
		if _, known := t.quotaTexts[n]; !known { // if a rollback brings the node back, its text is known
			t.quotaTexts[n] = readQuotaText(n.Data)
		}
	}
	if n.Name == limitsName {
		if p := quotaOf(nodes.PathOf(n.Parent)); p != "" {
			t.quotas++
		}
	}
}

// unlink() removes n, which has no children, from its parent and returns the position that n had there.
func (t *Tree) unlink(n *nodes.Node) int {
	p := n.Parent.Dir.Remove(t.Seed, n.Name)
	delete(t.kins, n)
	t.acls.Release(n.ACL)
	t.count--
	t.size -= int64(nodes.PathLen(n))
	t.spread(n, -1, -int64(len(n.Data)))
	switch n.Kind {
	case nodes.EphemeralNode:
		t.Held.Remove(n)
		t.countKin(n, -1)
	case nodes.ContainerNode, nodes.TTLNode:
		t.reapable = nodes.DropSlot(t.reapable, n)
	}
	if n.Name == limitsName {
		if p := quotaOf(nodes.PathOf(n.Parent)); p != "" {
			t.quotas--
		}
	}
	if hasQuotaText(n) && t.undo == nil { // a multi may still fail and put n back
		delete(t.quotaTexts, n)
	}
	return p
}

// spread() updates the counts that the ancestors of n keep of their descendants.
func (t *Tree) spread(n *nodes.Node, count int, bytes int64) {
	t.size += bytes
	for a := n.Parent; a != nil; a = a.Parent {
		a.Dir.Count += count
		a.Dir.Bytes += bytes
	}
}

// setData replaces the data of a node.
func (t *Tree) setData(n *nodes.Node, data string, null bool) {
	t.spread(n, 0, int64(len(data)-len(n.Data)))
	n.Data, n.Null = data, null
	if hasQuotaText(n) {
		t.quotaTexts[n] = readQuotaText(data)
	}
}

// The functions below are complete changes: they also set stamps and counts, append events and update the
// digest.

// addNode makes a node of the given state under parent.
func (t *Tree) addNode(c *Change, parent *nodes.Node, path string, s nodes.State) *nodes.Node {
	t.snap.keep(parent)
	_, name, _ := bounds.SplitPath(path)
	s.Czxid, s.Mzxid, s.Pzxid = c.Zxid, c.Zxid, c.Zxid
	s.Ctime, s.Mtime = c.Time, c.Time
	n := &nodes.Node{State: s, Name: strings.Clone(name), Parent: parent}
	t.snap.skip(n)
	t.link(n, -1)
	t.undo.created(n)
	parent.CV++
	parent.Pzxid = c.Zxid
	t.zxid = c.Zxid
	t.charge(c, path, 1, int64(len(n.Data)))
	t.fillStats(n)
	t.mix(mixCreate, path, n)
	t.hash.Int(uint64(uint32(parent.CV)))
	c.tell(jute.EventCreated, path, n)
	c.tell(jute.EventChildrenChanged, bounds.ParentPath(path), parent)
	return n
}

// removeNode deletes n, which has no children.
func (t *Tree) removeNode(c *Change, n *nodes.Node, path string) {
	t.mix(mixDelete, path, n)
	t.hash.Int(uint64(c.Zxid))
	t.snap.keep(n.Parent)
	t.snap.keepDeleted(n, path)
	t.undo.deleted(n, t.unlink(n))
	n.Parent.Pzxid = c.Zxid
	t.zxid = c.Zxid
	t.charge(c, path, -1, -int64(len(n.Data)))
	c.tell(jute.EventDeleted, path, n)
	c.tell(jute.EventChildrenChanged, bounds.ParentPath(path), n.Parent)
}

// writeData gives n new data.
func (t *Tree) writeData(c *Change, n *nodes.Node, path string, data string, null bool, version int32) {
	t.snap.keep(n)
	t.undo.writing(n)
	if hasQuotaText(n) {
		t.undo.counting(t, n)
	}
	grow := int64(len(data) - len(n.Data))
	t.setData(n, data, null)
	n.Version = version
	n.Mzxid, n.Mtime = c.Zxid, c.Time
	t.zxid = c.Zxid
	t.charge(c, path, 0, grow)
	t.mix(mixSetData, path, n)
	c.tell(jute.EventDataChanged, path, n)
}

// next() returns the version after v. It skips -1, which as an argument means
// "any".
func next(v int32) int32 {
	if v == -2 {
		return 0
	}
	return v + 1
}

// changeACL gives n a new ACL. It changes none of n's zxids and fires no event.
func (t *Tree) changeACL(c *Change, n *nodes.Node, path string, acl []jute.ACL) {
	t.snap.keep(n)
	set := t.intern(c, acl)
	t.acls.Retain(set)
	t.acls.Release(n.ACL)
	n.ACL = set
	n.Aversion = next(n.Aversion)
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

// mix() mixes a change into the digest: its kind (the parameter `what`) and the node after the change.
func (t *Tree) mix(what uint64, path string, n *nodes.Node) {
	h := &t.hash
	kind := uint64(n.Kind)
	if n.Null {
		kind |= 1 << 8
	}
	h.Pair(what, kind)
	h.Text(path)
	h.Text(n.Data)
	h.Int(n.ACL.Sum())
	h.Pair(uint64(n.Czxid), uint64(n.Mzxid))
	h.Pair(uint64(n.Mtime), uint64(n.Owner))
	h.Pair(uint64(uint32(n.Version))<<32|uint64(uint32(n.Aversion)), uint64(n.Pzxid))
	h.Int(uint64(uint32(n.CV))<<32 | uint64(n.Children()))
}

// spend() counts n steps. It returns false when the budget is used up, for this and all later calls.
func (c *Change) spend(n int) bool {
	if budget := max(c.Budget, bounds.MaxSteps); c.Steps+n > budget {
		c.Steps = budget
		return false
	}
	c.Steps += n
	return true
}
