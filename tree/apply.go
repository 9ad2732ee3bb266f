package tree

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// Apply runs one write of a client: it decodes body, applies it and appends the response record to reply. An
// error leaves both the tree and reply as they were. `changed` says that the write consumed its zxid. It is
// false for a multi that failed, although its code is OK and its reply holds the errors.
//
// Apply answers UNIMPLEMENTED to an operation that is not a write of the tree, and to a check outside a
// multi.
func (t *Tree) Apply(c *Change, op jute.OpCode, body, reply []byte) (out []byte, code jute.ErrCode,
	changed bool) {
	c.asked, c.Steps, c.Divided = acl.Asker{}, 0, false // drop the values of the previous request
	d := jute.NewDecoder(body)
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		r := d.CreateRequest(op)
		if d.Err() != nil {
			return reply, jute.MarshallingError, false
		}
		out, code = t.create(c, op, &r, reply)
	case jute.OpDelete:
		r := d.PathVersion()
		if d.Err() != nil || r.NoPath {
			return reply, jute.MarshallingError, false
		}
		out, code = reply, t.delete(c, &r)
	case jute.OpSetData:
		r := d.SetDataRequest()
		if d.Err() != nil {
			return reply, jute.MarshallingError, false
		}
		out, code = t.setDataOf(c, &r, reply)
	case jute.OpSetACL:
		r := d.SetACLRequest()
		if d.Err() != nil {
			return reply, jute.MarshallingError, false
		}
		out, code = t.setACL(c, &r, reply)
	case jute.OpMulti:
		return t.multi(c, &d, reply)
	case jute.OpDeleteContainer:
		return reply, jute.BadArguments, false
	default:
		return reply, jute.Unimplemented, false
	}
	if code != jute.OK {
		return reply, code, false
	}
	return out, jute.OK, true
}

// delete() answers BADARGUMENTS, NONODE, NOAUTH, BADVERSION or NOTEMPTY. It checks the version before the
// children. The parent's ACL gives the permission; the node's own ACL does not matter.
func (t *Tree) delete(c *Change, r *jute.PathVersion) jute.ErrCode {
	if !c.spend(bounds.OpSteps + bounds.PathSteps(r.Path)) {
		return jute.BadArguments
	}
	dir, name, ok := bounds.SplitPath(r.Path)
	if !ok || isBuiltin(r.Path) {
		return jute.BadArguments
	}
	parent := t.At(dir)
	if parent == nil {
		return jute.NoNode
	}
	if !c.allowed(parent, jute.PermDelete) {
		return jute.NoAuth
	}
	n := t.Below(parent, name)
	steps := bounds.DeleteSteps + 2*bounds.EventSteps(r.Path)
	if n != nil && n.ACL.Nodes() == 1 {
		steps += 2 * bounds.NewACLSteps
	}
	switch {
	case n == nil:
		return jute.NoNode
	case r.Version != -1 && r.Version != n.Version:
		return jute.BadVersion
	case n.Children() > 0:
		return jute.NotEmpty
	case !c.spend(steps + bounds.DataSteps(len(n.Data))):
		return jute.BadArguments
	}
	t.removeNode(c, n, strings.Clone(r.Path))
	return jute.OK
}

func isBuiltin(path string) bool {
	switch path {
	case "/", zookeeperPath, quotaPath, configPath:
		return true
	}
	return false
}

// setDataOf answers BADARGUMENTS, NONODE, NOAUTH, QUOTAEXCEEDED or
// BADVERSION, in this order.
func (t *Tree) setDataOf(c *Change, r *jute.SetDataRequest, reply []byte) ([]byte, jute.ErrCode) {
	n, code := t.writable(c, &r.PathVersion, jute.PermWrite)
	if code != jute.OK {
		return reply, code
	}
	if t.overQuota(c, r.Path, 0, int64(len(r.Data)-len(n.Data))) {
		return reply, jute.QuotaExceeded
	}
	if r.Version != -1 && r.Version != n.Version {
		return reply, jute.BadVersion
	}
	if c.Full && len(r.Data) > len(n.Data) {
		return reply, jute.Throttled
	}
	if !c.spend(bounds.SetSteps + bounds.EventSteps(r.Path) + bounds.DataSteps(len(r.Data))) {
		return reply, jute.BadArguments
	}
	t.writeData(c, n, strings.Clone(r.Path), string(r.Data), r.Data == nil, next(n.Version))
	return n.AppendStat(reply), jute.OK
}

// setACL answers BADARGUMENTS, INVALIDACL, NONODE, NOAUTH or BADVERSION, in this order. It compares the
// request's version with the version of the ACL, and fires no watch.
func (t *Tree) setACL(c *Change, r *jute.SetACLRequest, reply []byte) ([]byte, jute.ErrCode) {
	n, code := t.named(c, &r.PathVersion)
	if code == jute.BadArguments {
		return reply, code
	}
	acl, wrong := c.fixACL(r.ACL, r.NullACLID)
	switch {
	case wrong != jute.OK:
		return reply, wrong
	case code != jute.OK:
		return reply, code
	case !c.allowed(n, jute.PermAdmin):
		return reply, jute.NoAuth
	}
	if r.Version != -1 && r.Version != n.Aversion {
		return reply, jute.BadVersion
	}
	t.changeACL(c, n, r.Path, acl)
	c.Steps += bounds.DataSteps(len(n.Data)) // the digest hashes the data; this cost is never refused
	return n.AppendStat(reply), jute.OK
}

// check() answers BADARGUMENTS, NONODE, NOAUTH or BADVERSION.
func (t *Tree) check(c *Change, r *jute.PathVersion) jute.ErrCode {
	n, code := t.writable(c, r, jute.PermRead)
	if code == jute.OK && r.Version != -1 && r.Version != n.Version {
		return jute.BadVersion
	}
	return code
}

// writable() finds the node of a request that has the node's full path and needs perm on the node. It answers
// BADARGUMENTS, NONODE or NOAUTH.
func (t *Tree) writable(c *Change, r *jute.PathVersion, perm int32) (*nodes.Node, jute.ErrCode) {
	n, code := t.named(c, r)
	if code == jute.OK && !c.allowed(n, perm) {
		return nil, jute.NoAuth
	}
	return n, code
}

// named() finds the node of a request that has the node's full path. It answers BADARGUMENTS or NONODE. If
// the node exists, its path need not be checked character by character.
func (t *Tree) named(c *Change, r *jute.PathVersion) (*nodes.Node, jute.ErrCode) {
	if !c.spend(bounds.OpSteps+bounds.PathSteps(r.Path)) || r.NoPath || r.Path == "" ||
		!bounds.ShortPath(r.Path) {
		return nil, jute.BadArguments
	}
	if n := t.At(r.Path); n != nil {
		return n, jute.OK
	}
	if !bounds.WellFormed(r.Path) {
		return nil, jute.BadArguments
	}
	return nil, jute.NoNode
}

// SetConfig writes the text of /zookeeper/config. The node's version is always -1, as in ZooKeeper.
func (t *Tree) SetConfig(c *Change, text []byte) {
	t.writeData(c, t.At(configPath), configPath, string(text), false, -1)
}
