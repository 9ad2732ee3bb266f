package tree

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// kindOf returns which kind of node a create makes, and whether the node is sequential. The operation decides
// whether the node is a container or has a time to live. The flags decide whether it is ephemeral or
// sequential. So a plain create with the container flag makes a plain node. kindOf answers BADARGUMENTS for
// invalid flags, and UNIMPLEMENTED for a time to live if c.NoTTL is set.
func kindOf(c *Change, op jute.OpCode, r *jute.CreateRequest) (kind nodes.NodeKind, sequential bool,
	code jute.ErrCode) {
	switch r.Flags {
	case jute.FlagPersistent, jute.FlagContainer:
	case jute.FlagEphemeral:
		kind = nodes.EphemeralNode
	case jute.FlagPersistentSequential:
		sequential = true
	case jute.FlagEphemeralSequential:
		kind, sequential = nodes.EphemeralNode, true
	case jute.FlagPersistentTTL, jute.FlagPersistentSequentialTTL:
		if c.NoTTL {
			return 0, false, jute.Unimplemented
		}
		if op != jute.OpCreateTTL || r.TTL <= 0 || r.TTL > jute.MaxTTL {
			return 0, false, jute.BadArguments
		}
		return nodes.TTLNode, r.Flags == jute.FlagPersistentSequentialTTL, jute.OK
	default:
		return 0, false, jute.BadArguments
	}
	switch op {
	case jute.OpCreateTTL:
		return 0, false, jute.BadArguments
	case jute.OpCreateContainer:
		kind = nodes.ContainerNode
	}
	return kind, sequential, jute.OK
}

// create() answers MARSHALLINGERROR, BADARGUMENTS, UNIMPLEMENTED, INVALIDACL, NONODE, NOAUTH, NODEEXISTS,
// NOCHILDRENFOREPHEMERALS, THROTTLEDOP or QUOTAEXCEEDED. Clients can see in which order it makes its checks.
func (t *Tree) create(c *Change, op jute.OpCode, r *jute.CreateRequest, reply []byte) ([]byte, jute.ErrCode) {
	kind, sequential, code := kindOf(c, op, r)
	if code != jute.OK {
		return reply, code
	}
	if kind == nodes.EphemeralNode && c.Session == 0 {
		return reply, jute.SessionExpired // no session would own the node, so nothing would ever delete it
	}
	if r.NoPath {
		return reply, jute.MarshallingError
	}
	dir, _, ok := bounds.SplitPath(r.Path)
	if !ok {
		return reply, jute.BadArguments
	}
	if !c.spend(bounds.OpSteps + bounds.PathSteps(r.Path)) {
		return reply, jute.BadArguments
	}
	acl, code := c.fixACL(r.ACL, r.NullACLID)
	if code != jute.OK {
		return reply, code
	}
	parent := t.At(dir)
	if parent == nil {
		return reply, jute.NoNode
	}
	if !c.allowed(parent, jute.PermCreate) {
		return reply, jute.NoAuth
	}
	t.buf = append(t.buf[:0], r.Path...)
	if sequential {
		t.buf = appendSequence(t.buf, parent.CV)
	}
	path := string(t.buf)
	if !bounds.ValidPath(path) {
		return reply, jute.BadArguments
	}
	if code := t.room(c, parent, path, kind); code != jute.OK {
		return reply, code
	}
	_, name, _ := bounds.SplitPath(path)
	if kind == nodes.EphemeralNode && c.OneLayout && t.divides(parent, name) {
		c.Divided = true
		return reply, jute.NoAuth
	}
	if t.overQuota(c, path, 1, int64(len(r.Data))) {
		return reply, jute.QuotaExceeded
	}
	if !c.spend(bounds.CreateSteps + 2*bounds.EventSteps(path) + bounds.DataSteps(len(r.Data))) {
		return reply, jute.BadArguments
	}

	s := nodes.State{ACL: t.intern(c, acl), Data: string(r.Data), Null: r.Data == nil, Kind: kind}
	switch kind {
	case nodes.EphemeralNode:
		s.Owner = c.Session
	case nodes.TTLNode:
		s.Owner = r.TTL
	}
	n := t.addNode(c, parent, path, s)
	reply = jute.AppendString(reply, path)
	if op != jute.OpCreate {
		reply = n.AppendStat(reply)
	}
	return reply, jute.OK
}

// room() checks whether `parent` can take a child of the given path and kind. It answers NODEEXISTS,
// NOCHILDRENFOREPHEMERALS or THROTTLEDOP.
func (t *Tree) room(c *Change, parent *nodes.Node, path string, kind nodes.NodeKind) jute.ErrCode {
	_, name, _ := bounds.SplitPath(path)
	if path == "/" || t.Below(parent, name) != nil {
		return jute.NodeExists
	}
	if parent.Kind == nodes.EphemeralNode {
		return jute.NoChildrenForEphemerals
	}
	if d := parent.Dir; d != nil && (len(d.Nodes) >= t.lim.children || 4+d.Names+4+len(name) > t.lim.listing) {
		return jute.Throttled
	}
	if c.Full {
		return jute.Throttled
	}
	if h := t.Held.By[c.Session]; kind == nodes.EphemeralNode && h != nil && (len(h.Nodes) >= t.lim.ephemerals ||
		4+h.Paths+4+len(path) > t.lim.listing) {
		return jute.Throttled
	}
	return jute.OK
}
