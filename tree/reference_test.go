package tree_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/rights"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/bounds"
)

// Node is a node of a Model. It has the fields of a Stat that the Model does not derive, and fields that a
// Stat lacks.
type Node struct {
	jute.Stat
	Data []byte
	ACL  []jute.ACL
	CV   int32 // children that the node ever had
	Kind tree.NodeKind
	TTL  int64
}

// Model does the same as a tree.Tree, in the simplest way: a map of nodes by path, copied for each multi and
// searched for each list of children. Where the tree and the model differ, the specification decides which of
// them is wrong. Both use bounds.ValidPath and acl.Fix, which have tests of their own.
type Model struct {
	Nodes  map[string]Node
	before map[string]Node // the nodes before the multi being applied
}

// NewModel returns the model of a fresh tree.
func NewModel() *Model {
	read := []jute.ACL{{Perms: jute.PermRead, ID: jute.WorldAnyone[0].ID}}
	return &Model{Nodes: map[string]Node{
		"/":                 {ACL: jute.WorldAnyone, Data: []byte{}},
		"/zookeeper":        {ACL: jute.WorldAnyone, Data: []byte{}},
		"/zookeeper/quota":  {ACL: jute.WorldAnyone, Data: []byte{}},
		"/zookeeper/config": {ACL: read, Data: []byte{}, Stat: jute.Stat{Aversion: -1}},
	}}
}

func parent(path string) string { return cmp.Or(path[:strings.LastIndex(path, "/")], "/") }

// Children returns the sorted names of the children of path.
func (m *Model) Children(path string) []string {
	var names []string
	for p := range m.Nodes {
		if p != "/" && parent(p) == path {
			names = append(names, p[strings.LastIndex(p, "/")+1:])
		}
	}
	slices.Sort(names)
	return names
}

// Stat returns what a client sees of the node at path.
func (m *Model) Stat(path string) jute.Stat {
	n := m.Nodes[path]
	s := n.Stat
	s.DataLength = int32(len(n.Data))
	s.NumChildren = int32(len(m.Children(path)))
	s.Cversion = 2*n.CV - s.NumChildren
	return s
}

func (m *Model) allowed(c *tree.Change, path string, perm int32) bool {
	return rights.Allowed(m.Nodes[path].ACL, c.IDs, perm)
}

// Apply does what tree.Tree.Apply does.
func (m *Model) Apply(c *tree.Change, op jute.OpCode, body, reply []byte) ([]byte, jute.ErrCode, bool) {
	d := jute.NewDecoder(body)
	if op == jute.OpMulti {
		return m.multi(c, &d, reply)
	}
	if op == jute.OpCheck {
		return reply, jute.Unimplemented, false
	}
	run := m.decode(&d, op)
	if d.Err() != nil {
		return reply, jute.MarshallingError, false
	}
	out, code := run(c)
	if code != jute.OK {
		return reply, code, false
	}
	return append(reply, out...), code, true
}

// decode() reads the body of an operation and returns the function that runs it.
func (m *Model) decode(d *jute.Decoder, op jute.OpCode) func(*tree.Change) ([]byte, jute.ErrCode) {
	switch op {
	case jute.OpCreate, jute.OpCreate2, jute.OpCreateContainer, jute.OpCreateTTL:
		r := d.CreateRequest(op)
		return func(c *tree.Change) ([]byte, jute.ErrCode) { return m.create(c, op, r) }
	case jute.OpDelete, jute.OpCheck:
		r := d.PathVersion()
		return func(c *tree.Change) ([]byte, jute.ErrCode) {
			if op == jute.OpCheck {
				return nil, m.check(c, r, jute.PermRead, m.Nodes[r.Path].Version)
			}
			return nil, m.delete(c, r)
		}
	case jute.OpSetData:
		r := d.SetDataRequest()
		return func(c *tree.Change) ([]byte, jute.ErrCode) { return m.setData(c, r) }
	case jute.OpSetACL:
		r := d.SetACLRequest()
		return func(c *tree.Change) ([]byte, jute.ErrCode) { return m.setACL(c, r) }
	}
	code := jute.Unimplemented
	if op == jute.OpDeleteContainer {
		code = jute.BadArguments
	}
	return func(*tree.Change) ([]byte, jute.ErrCode) { return nil, code }
}

func (m *Model) create(c *tree.Change, op jute.OpCode, r jute.CreateRequest) ([]byte, jute.ErrCode) {
	n := Node{Data: slices.Clone(r.Data)}
	n.Czxid, n.Mzxid, n.Pzxid, n.Ctime, n.Mtime = c.Zxid, c.Zxid, c.Zxid, c.Time, c.Time
	ttl := r.Flags == jute.FlagPersistentTTL || r.Flags == jute.FlagPersistentSequentialTTL
	switch {
	case r.Flags < 0 || r.Flags > 6:
		return nil, jute.BadArguments
	case ttl && c.NoTTL:
		return nil, jute.Unimplemented
	case ttl != (op == jute.OpCreateTTL) || ttl && (r.TTL < 1 || r.TTL > jute.MaxTTL):
		return nil, jute.BadArguments
	case ttl:
		n.Kind, n.TTL = tree.TTLNode, r.TTL
	case op == jute.OpCreateContainer:
		n.Kind = tree.ContainerNode
	case r.Flags == jute.FlagEphemeral || r.Flags == jute.FlagEphemeralSequential:
		if c.Session == 0 {
			return nil, jute.SessionExpired
		}
		n.Kind, n.EphemeralOwner = tree.EphemeralNode, c.Session
	}
	if r.NoPath {
		return nil, jute.MarshallingError
	}
	path := strings.Clone(r.Path)
	if !strings.Contains(path, "/") || strings.Contains(path, "\x00") {
		return nil, jute.BadArguments
	}
	acl, code := acl.Fix(r.ACL, c.IDs, r.NullACLID)
	if code != jute.OK {
		return nil, code
	}
	n.ACL = cloneACL(acl)
	dir := parent(path)
	p, ok := m.Nodes[dir]
	if !ok {
		return nil, jute.NoNode
	}
	if !m.allowed(c, dir, jute.PermCreate) {
		return nil, jute.NoAuth
	}
	if r.Flags == 2 || r.Flags == 3 || r.Flags == 6 {
		path += fmt.Sprintf("%010d", p.CV)
	}
	if !bounds.ValidPath(path) {
		return nil, jute.BadArguments
	}
	if _, ok := m.Nodes[path]; ok {
		return nil, jute.NodeExists
	}
	if p.Kind == tree.EphemeralNode {
		return nil, jute.NoChildrenForEphemerals
	}
	if c.OneLayout && n.Kind == tree.EphemeralNode && m.divides(dir, path) {
		return nil, jute.NoAuth
	}
	if m.overQuota(c, path, 1, len(n.Data)) {
		return nil, jute.QuotaExceeded
	}
	p.CV++
	p.Pzxid = c.Zxid
	m.Nodes[dir] = p
	m.Nodes[path] = n
	m.charge(path, 1, len(n.Data))
	m.fillStats(path)
	tell(c, jute.EventCreated, path, n)
	tell(c, jute.EventChildrenChanged, dir, p)
	out := jute.AppendString(nil, path)
	if op != jute.OpCreate {
		s := m.Stat(path)
		out = jute.AppendStat(out, &s)
	}
	return out, jute.OK
}

// divides() reports whether the path `dir` has a contender of another layout. The new contender at `path` and
// that contender would not see each other.
func (m *Model) divides(dir, path string) bool {
	own := recipe.KinOf(recipe.Base(path))
	for other, n := range m.Nodes {
		kin := recipe.KinOf(recipe.Base(other))
		switch {
		case other == "/" || n.Kind != tree.EphemeralNode:
		case parent(other) == dir && own.Blind().Has(kin),
			parent(other) == recipe.Join(dir, "leases") && recipe.Queues.Has(own) && recipe.Permits.Has(kin),
			recipe.Base(dir) == "leases" && parent(other) == parent(dir) && recipe.Permits.Has(own) &&
				recipe.Queues.Has(kin):
			return true
		}
	}
	return false
}

func (m *Model) delete(c *tree.Change, r jute.PathVersion) jute.ErrCode {
	if r.NoPath {
		return jute.MarshallingError
	}
	builtin := []string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"}
	if !strings.Contains(r.Path, "/") || strings.Contains(r.Path, "\x00") || slices.Contains(builtin, r.Path) {
		return jute.BadArguments
	}
	if _, ok := m.Nodes[parent(r.Path)]; !ok {
		return jute.NoNode
	}
	if !m.allowed(c, parent(r.Path), jute.PermDelete) {
		return jute.NoAuth
	}
	n, ok := m.Nodes[r.Path]
	switch {
	case !ok:
		return jute.NoNode
	case r.Version != -1 && r.Version != n.Version:
		return jute.BadVersion
	case len(m.Children(r.Path)) > 0:
		return jute.NotEmpty
	}
	m.remove(c, strings.Clone(r.Path))
	return jute.OK
}

func (m *Model) remove(c *tree.Change, path string) {
	n, dir := m.Nodes[path], parent(path)
	delete(m.Nodes, path)
	p := m.Nodes[dir]
	p.Pzxid = c.Zxid
	m.Nodes[dir] = p
	m.charge(path, -1, -len(n.Data))
	tell(c, jute.EventDeleted, path, n)
	tell(c, jute.EventChildrenChanged, dir, p)
}

// check() makes the checks of a request that names its node by a full path.
func (m *Model) check(c *tree.Change, r jute.PathVersion, perm, version int32) jute.ErrCode {
	_, ok := m.Nodes[r.Path]
	switch {
	case r.NoPath || !bounds.ValidPath(r.Path):
		return jute.BadArguments
	case !ok:
		return jute.NoNode
	case !m.allowed(c, r.Path, perm):
		return jute.NoAuth
	case r.Version != -1 && r.Version != version:
		return jute.BadVersion
	}
	return jute.OK
}

func (m *Model) setData(c *tree.Change, r jute.SetDataRequest) ([]byte, jute.ErrCode) {
	n, path := m.Nodes[r.Path], strings.Clone(r.Path)
	code := m.check(c, r.PathVersion, jute.PermWrite, n.Version)
	more := len(r.Data) - len(n.Data)
	if (code == jute.OK || code == jute.BadVersion) && m.overQuota(c, path, 0, more) {
		code = jute.QuotaExceeded
	}
	if code != jute.OK {
		return nil, code
	}
	m.write(c, path, r.Data, next(n.Version))
	s := m.Stat(path)
	return jute.AppendStat(nil, &s), jute.OK
}

func (m *Model) write(c *tree.Change, path string, data []byte, version int32) {
	n := m.Nodes[path]
	more := len(data) - len(n.Data)
	n.Data, n.Version, n.Mzxid, n.Mtime = slices.Clone(data), version, c.Zxid, c.Time
	m.Nodes[path] = n
	m.charge(path, 0, more)
	tell(c, jute.EventDataChanged, path, n)
}

func (m *Model) setACL(c *tree.Change, r jute.SetACLRequest) ([]byte, jute.ErrCode) {
	if r.NoPath || !bounds.ValidPath(r.Path) {
		return nil, jute.BadArguments
	}
	acl, code := acl.Fix(r.ACL, c.IDs, r.NullACLID)
	n, path := m.Nodes[r.Path], strings.Clone(r.Path)
	if code == jute.OK {
		code = m.check(c, r.PathVersion, jute.PermAdmin, n.Aversion)
	}
	if code != jute.OK {
		return nil, code
	}
	n.ACL, n.Aversion = cloneACL(acl), next(n.Aversion)
	m.Nodes[path] = n
	s := m.Stat(path)
	return jute.AppendStat(nil, &s), jute.OK
}

func next(v int32) int32 {
	if v == -2 {
		return 0
	}
	return v + 1
}

func tell(c *tree.Change, t jute.EventType, path string, n Node) {
	c.Events = append(c.Events, tree.Event{Type: t, Path: path, ACL: acl.New(n.ACL)})
}

func cloneACL(acl []jute.ACL) []jute.ACL {
	out := slices.Clone(acl)
	for i := range out {
		out[i].Scheme, out[i].ID.ID = strings.Clone(out[i].Scheme), strings.Clone(out[i].ID.ID)
	}
	return out
}

// CloseSession does what tree.Tree.CloseSession does.
func (m *Model) CloseSession(c *tree.Change, session int64) {
	var paths []string
	for p, n := range m.Nodes {
		if n.Kind == tree.EphemeralNode && n.EphemeralOwner == session {
			paths = append(paths, p)
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.Nodes[a].Czxid, m.Nodes[b].Czxid), cmp.Compare(a, b))
	})
	for _, p := range paths {
		m.remove(c, p)
	}
}

// Reap does what tree.Tree.Reap does.
func (m *Model) Reap(c *tree.Change, path string, now int64) bool {
	n := m.Nodes[path]
	due := n.Kind == tree.ContainerNode && n.CV != 0 || n.Kind == tree.TTLNode && now-n.Mtime > n.TTL
	if !due || len(m.Children(path)) > 0 {
		return false
	}
	m.remove(c, path)
	return true
}

// SetConfig does what tree.Tree.SetConfig does.
func (m *Model) SetConfig(c *tree.Change, text []byte) { m.write(c, "/zookeeper/config", text, -1) }

// SetCounter does what tree.Tree.SetCounter does.
func (m *Model) SetCounter(path string, cv int32) bool {
	n, ok := m.Nodes[path]
	if ok {
		n.CV = cv
		m.Nodes[path] = n
	}
	return ok
}
