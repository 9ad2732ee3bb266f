package history

import (
	"cmp"
	"slices"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/watches"
)

// item is one step of the replay.
type item struct {
	zxid  int64
	phase int // order within a zxid: changes, reads of the state, connections that end
	at    int // index of a record; in the last phase: number of a connection
}

const (
	change = iota // an acknowledged write
	proved        // a write known only by its traces
	look
	leave
)

// replay() replays all zxids in order.
func (c *checker) replay() {
	c.model = newModel(c.Root)
	var items []item
	for i, r := range c.records {
		if o := r.Op; o != nil && !o.Unknown {
			phase := look
			if isWrite(o.Op) && o.Code == jute.OK {
				phase = change
			}
			items = append(items, item{o.Zxid, phase, i})
		}
		if r.Backup != nil {
			items = append(items, item{r.Backup.Zxid, look, i})
		}
	}
	for zxid, f := range c.facts {
		if _, ok := c.acked[zxid]; ok {
			continue
		}
		items = append(items, item{zxid, proved, f.record})
	}
	for id, k := range c.conns {
		items = append(items, item{k.last, leave, id})
	}
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.zxid, b.zxid), cmp.Compare(a.phase, b.phase), cmp.Compare(a.at, b.at))
	})
	for _, it := range items {
		if it.phase == change || it.phase == look {
			c.now = it.at
		}
		switch it.phase {
		case change:
			c.write(it.at)
		case proved:
			c.resolve(it.zxid, c.facts[it.zxid])
		case look:
			c.look(it.at)
		case leave:
			for _, w := range []*watches.Table[int]{c.model.oneShot, c.model.lasting} {
				for more := w.Drop(it.at); more; {
					more = w.Sweep(1 << 20)
				}
			}
		}
	}
}

// write() applies an acknowledged write.
func (c *checker) write(record int) {
	o := c.records[record].Op
	m := moment{zxid: o.Zxid, exact: true, acked: true}
	switch o.Op {
	case jute.OpCloseSession:
		c.endSession(o.Session, c.facts[o.Zxid], m)
	case jute.OpMulti:
		for i := range o.Steps {
			c.step(&o.Steps[i], o, m, record)
		}
	default:
		c.step(&o.Step, o, m, record)
	}
}

// step() applies one successful step.
func (c *checker) step(s *Step, o *Op, m moment, record int) {
	path, before := s.Path, m.zxid-1
	if isCreate(s.Op) && s.Created != "" {
		path = s.Created
	}
	if !c.within(path) {
		return
	}
	var n *node
	if isCreate(s.Op) {
		if n = c.makeNode(s, path, o.Session, m, record); n == nil {
			return
		}
	} else if n = c.there(path, before, record, s.Op.String()+" succeeded"); n == nil {
		return
	}
	c.permitted(s, o.Conn, before, record)
	switch s.Op {
	case jute.OpDelete:
		c.catchUpVersion(n, s.Version, before, record)
		for _, kid := range n.children() {
			c.missing(kid.path, before, record, "its parent was deleted")
		}
		c.remove(n, m)
		return
	case jute.OpSetData:
		c.catchUpVersion(n, s.Version, before, record)
		if s.Stat != nil && s.Stat.Version > n.version+1 {
			n.version += c.use(c.loose.sets[path], n.seenState, m.zxid, s.Stat.Version-n.version-1)
		}
		c.setData(n, s, m)
	case jute.OpSetACL:
		if s.Version != -1 && s.Version > n.aversion {
			n.aversion += c.use(c.loose.acls[path], n.seenState, m.zxid, s.Version-n.aversion)
		}
		if s.Version != -1 && s.Version != n.aversion {
			c.fail("G6", record, "setACL of ACL version %d succeeded at version %d", s.Version, n.aversion)
		}
		if s.Stat != nil && s.Stat.Aversion > n.aversion+1 {
			n.aversion += c.use(c.loose.acls[path], n.seenState, m.zxid, s.Stat.Aversion-n.aversion-1)
		}
		n.aversion++
		n.acl, n.aclFrom = normal(s.ACL), m.zxid
	case jute.OpCheck:
		c.catchUpVersion(n, s.Version, before, record)
		return
	}
	if s.Stat != nil {
		c.compare(n, s.Stat, m.zxid, record)
	}
}

// catchUpVersion checks that a write with a version could succeed.
func (c *checker) catchUpVersion(n *node, version int32, zxid int64, record int) {
	switch {
	case version == -1 || n.isVersion(version):
		return
	case n.mzxid == unknown && version > n.version:
		n.version = version
		return
	case version > n.version:
		if n.version += c.use(c.loose.sets[n.path], n.seenState, zxid+1, version-n.version); n.version == version {
			return
		}
	}
	if c.reborn(n, zxid+1) {
		n.version, n.mzxid = version, unknown
		return
	}
	c.fail("G6", record, "%s: version %d was accepted, must be %d", n.path, version, n.version)
}

// reborn() reports whether the node may have been replaced by one that no client has seen yet: an unanswered
// write or the end of a session deleted it, and an unanswered write made it again.
func (c *checker) reborn(n *node, zxid int64) bool {
	gone := possible(c.loose.deletes[n.path], n.seenState, zxid) || c.mayGo(n, zxid)
	return gone && possible(c.loose.creates[n.path], n.seenState, zxid)
}

// makeNode applies a create.
func (c *checker) makeNode(s *Step, path string, session int64, m moment, record int) *node {
	before := m.zxid - 1
	c.missing(path, before, record, "it was created")
	if parent := parentOf(path); c.within(parent) && path != "/" {
		p := c.there(parent, before, record, "a child was created")
		if p == nil {
			return nil
		}
		if p.owner != 0 {
			c.fail("G6", record, "the ephemeral node %s has a child", parent)
		}
		if sequential(s.Flags) {
			c.checkSequence(p, s, path, m, record)
		}
	}
	if !ephemeral(s) {
		return c.create(path, s, 0, m)
	}
	if c.session(session).ended {
		c.fail("G12", record, "session %#x created %s after its end", session, path)
	}
	return c.create(path, s, session, m)
}

// checkSequence checks the number in the path of a new sequential node.
func (c *checker) checkSequence(p *node, s *Step, path string, m moment, record int) {
	n, ok := sequenceOf(path, s.Path)
	if !ok {
		c.fail("G19", record, "%s is no sequential name for %s", path, s.Path)
		return
	}
	most := p.made
	if n != p.made {
		made, _ := c.open(p, m.zxid)
		most += made
	}
	if n < p.seenMade || n > most {
		c.fail("G19", record, "%s: number must be %d to %d", path, p.seenMade, most)
	}
	p.seenMade = max(p.seenMade, n)
}

// look() checks a read, a refused write or a change of watches.
func (c *checker) look(record int) {
	o := c.records[record].Op
	if o == nil {
		c.backup(c.records[record].Backup, record)
		return
	}
	switch o.Op {
	case jute.OpExists, jute.OpGetData, jute.OpGetACL, jute.OpGetChildren, jute.OpGetChildren2:
		c.read(o, record)
	case jute.OpSetWatches, jute.OpSetWatches2:
		c.setWatches(o, record)
	case jute.OpAddWatch:
		if o.Code == jute.OK && c.within(o.Path) {
			k := watches.Persistent
			if o.Mode == 1 {
				k = watches.Recursive
			}
			c.watch(o.Conn, o.Path, k)
		}
	case jute.OpRemoveWatches:
		if o.Code == jute.OK {
			c.model.oneShot.Remove(o.Conn, o.Path, o.Mode)
			c.model.lasting.Remove(o.Conn, o.Path, o.Mode)
		}
	case jute.OpMulti:
		c.refusedMulti(o, record)
	default:
		if isWrite(o.Op) && o.Op != jute.OpCloseSession {
			c.refused(&o.Step, o, record)
		}
	}
}

func (c *checker) read(o *Op, record int) {
	if !c.within(o.Path) {
		return
	}
	switch o.Code {
	case jute.NoNode:
		if c.missing(o.Path, o.Zxid, record, "a read did not find it") && o.Watch && o.Op == jute.OpExists {
			c.watch(o.Conn, o.Path, watches.Data)
		}
		return
	case jute.NoAuth:
		c.forbidden(&o.Step, o.Conn, o.Zxid, record)
		return
	case jute.OK:
	default:
		return
	}
	n := c.there(o.Path, o.Zxid, record, "a read found it")
	if n == nil {
		return
	}
	c.permitted(&o.Step, o.Conn, o.Zxid, record)
	if o.Op == jute.OpGetChildren || o.Op == jute.OpGetChildren2 {
		c.compareChildren(n, o, record)
	}
	if o.Stat != nil {
		c.compare(n, o.Stat, o.Zxid, record)
	}
	k := watches.Data
	switch o.Op {
	case jute.OpGetData:
		c.compareData(n, o.Value, record)
	case jute.OpGetACL:
		c.compareACL(n, o.ACL, c.ids(o.Conn), o.Zxid, record)
	case jute.OpGetChildren, jute.OpGetChildren2:
		k = watches.Child
	}
	if o.Watch {
		c.watch(o.Conn, o.Path, k)
	}
}

// compareChildren compares a list of children with the node.
func (c *checker) compareChildren(n *node, o *Op, record int) {
	prefix := n.path + "/"
	if n.path == "/" {
		prefix = "/"
	}
	listed := make(map[string]bool, len(o.Children))
	for _, name := range o.Children {
		if path := prefix + name; listed[path] {
			c.fail("G6", record, "%s is listed twice", path)
		} else if c.within(path) {
			listed[path] = true
		}
	}
	var lacking []string
	for path := range n.kids {
		if !listed[path] {
			lacking = append(lacking, path)
		}
	}
	// Check the children that are not listed first: they may show that a session has ended. If they do, a listed
	// node of that session is another node.
	slices.Sort(lacking)
	for _, path := range lacking {
		c.missing(path, o.Zxid, record, "it is not listed")
	}
	for _, path := range sorted(listed) {
		c.there(path, o.Zxid, record, "it is listed")
	}
}

// refused() checks that a write had to fail with the error it got.
func (c *checker) refused(s *Step, o *Op, record int) {
	if !c.within(s.Path) {
		return
	}
	zxid := o.Zxid
	const why = "a write was refused"
	parent := parentOf(s.Path)
	switch s.Code {
	case jute.NoAuth:
		c.forbidden(s, o.Conn, zxid, record)
	case jute.NoNode:
		if !isCreate(s.Op) {
			c.missing(s.Path, zxid, record, why)
		} else if c.within(parent) {
			c.missing(parent, zxid, record, why)
		}
	case jute.NodeExists:
		if !sequential(s.Flags) {
			c.there(s.Path, zxid, record, why)
		}
	case jute.NoChildrenForEphemerals:
		if n := c.there(parent, zxid, record, why); n != nil && n.owner == 0 && n.makers == nil &&
			!c.reborn(n, zxid) {
			c.fail("G6", record, "%s is not ephemeral", parent)
		}
	case jute.NotEmpty:
		if n := c.there(s.Path, zxid, record, why); n != nil && len(n.kids) == 0 {
			if made, _ := c.open(n, zxid); made == 0 {
				c.fail("G6", record, "%s has no children", s.Path)
			}
		}
	case jute.BadVersion:
		n := c.there(s.Path, zxid, record, why)
		if n == nil {
			return
		}
		c.permitted(s, o.Conn, zxid, record) // the servers look at permissions first
		version, list := n.version, c.loose.sets[s.Path]
		if s.Op == jute.OpSetACL {
			version, list = n.aversion, c.loose.acls[s.Path]
		}
		if s.Version == -1 {
			c.fail("G6", record, "any version must do")
		} else if s.Version == version && (s.Op == jute.OpSetACL || n.less+n.more == 0) && n.mzxid != unknown &&
			!possible(list, n.seenState, zxid) && !c.reborn(n, zxid) {
			c.fail("G6", record, "%s has the version asked for", s.Path)
		}
	}
}

// refusedMulti checks the step that made a multi fail, unless an earlier step of the multi may have been the
// cause.
func (c *checker) refusedMulti(o *Op, record int) {
	for i := range o.Steps {
		s := &o.Steps[i]
		if s.Code == jute.OK {
			continue
		}
		for j := range o.Steps[:i] {
			a, b := o.Steps[j].Path, s.Path
			if a == b || parentOf(a) == b || parentOf(b) == a || o.Steps[j].Created == b {
				return
			}
		}
		c.refused(s, o, record)
		return
	}
}
