package history

import (
	"cmp"
	"maps"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// there() returns the node that a reply shows to exist at zxid. If the model has no such node,
// an unanswered create may explain it.
func (c *checker) there(path string, zxid int64, record int, why string) *node {
	n := c.model.nodes[path]
	if n != nil && n.owner != 0 && c.session(n.owner).endBy <= zxid && !c.replaced(n, zxid) {
		c.fail("G12", record, "%s is there at zxid %d though its session %#x had ended", path, zxid, n.owner)
	}
	n = c.model.nodes[path]
	if n == nil && c.appear(path, zxid) {
		n = c.model.nodes[path]
	}
	if n == nil {
		c.fail("G6", record, "%s must not exist at zxid %d, but %s", path, zxid, why)
		return nil
	}
	n.seen = max(n.seen, zxid)
	return n
}

// replaced() reports whether the ephemeral node n may have gone with its ended session, and an unanswered
// write may have made another node in its place. If so, the model takes the other node. No event is expected:
// an event would have shown the zxid of the change.
func (c *checker) replaced(n *node, zxid int64) bool {
	if len(n.kids) > 0 || !c.mayGo(n, zxid) {
		return false
	}
	m := moment{zxid: zxid, silent: true}
	c.remove(n, m)
	if c.appearAt(n.path, m) {
		return true
	}
	c.create(n.path, &Step{Op: jute.OpCreate, Data: n.data}, 0, m)
	return false
}

// appear() makes path exist by an unanswered create.
func (c *checker) appear(path string, zxid int64) bool { return c.appearAt(path, moment{zxid: zxid}) }

func (c *checker) appearAt(path string, m moment) bool {
	zxid := m.zxid
	if parent := parentOf(path); c.within(parent) && path != "/" && c.model.nodes[parent] == nil &&
		!c.appear(parent, zxid) {
		return false
	}
	var claims []claim
	for _, list := range [][]*looseStep{c.loose.creates[path], c.loose.seqs[parentOf(path)]} {
		for _, l := range list {
			if l.within(c.model.absent[path], zxid) && l.makes(path, nil) {
				claims = append(claims, claim{l})
			}
		}
	}
	d := c.demand(claims)
	if d == nil {
		return false
	}
	c.createLoose(path, d, d.taken[0], m)
	return true
}

// createLoose adds the node that step l, or another claim of d, created.
func (c *checker) createLoose(path string, d *demand, l *looseStep, m moment) {
	var makers []*looseStep
	open := false
	for _, cl := range d.claims {
		for _, o := range cl {
			if o.makes(path, nil) {
				makers = append(makers, o)
				open = open || o.maker() != l.maker()
			}
		}
	}
	if !open {
		c.create(path, l.Step, l.maker(), m)
		return
	}
	c.create(path, l.Step, 0, m).makers = makers
}

// missing() checks that no node was at path at zxid. If the model has a node there, an
// unanswered delete or the end of a session may explain it.
func (c *checker) missing(path string, zxid int64, record int, why string) bool {
	n := c.model.nodes[path]
	if n != nil && !c.vanish(n, zxid) {
		rule := "G6"
		if n.owner != 0 && !c.session(n.owner).ended {
			rule = "G12"
		}
		c.fail(rule, record, "%s must exist at zxid %d, but %s", path, zxid, why)
		c.forget(n)
		return false
	}
	c.model.absent[path] = max(c.model.absent[path], zxid)
	return true
}

// forget() removes from the model a node that has gone without a reason, so that the loss is reported only
// once.
func (c *checker) forget(n *node) {
	for _, kid := range n.children() {
		c.forget(kid)
	}
	delete(c.model.nodes, n.path)
	delete(c.model.owned[n.owner], n.path)
	if p := c.model.parent(n.path); p != nil {
		delete(p.kids, n.path)
	}
}

// vanish() removes a node for a reason that no answer proves, such as an unanswered delete. If there is more
// than one possible reason, it believes none of them.
func (c *checker) vanish(n *node, zxid int64) bool {
	if n.seen >= zxid {
		return false
	}
	for _, kid := range n.children() {
		if !c.vanish(kid, zxid) {
			return false
		}
	}
	if c.model.nodes[n.path] != n {
		return true // the end of a child's session has removed this node, too
	}
	var claims []claim
	for _, l := range c.loose.deletes[n.path] {
		if l.within(n.seen, zxid) {
			claims = append(claims, claim{l})
		}
	}
	m := moment{zxid: zxid}
	switch ends := c.mayGo(n, zxid); {
	case ends && len(claims) == 0 && n.owner != 0:
		c.endSession(n.owner, nil, m)
	case ends || c.demand(claims) != nil || c.passedOn(n, zxid):
		c.remove(n, m)
	default:
		return false
	}
	return true
}

// mayGo reports whether the node can have gone at or before `zxid` without a client's delete.
func (c *checker) mayGo(n *node, zxid int64) bool {
	if n.swept || n.owner != 0 && c.mayEnd(n.owner, zxid) {
		return true
	}
	return slices.ContainsFunc(n.makers, func(l *looseStep) bool { return c.passing(l, zxid) })
}

// resolve() makes the changes at a zxid that is not the zxid of an acknowledged write.
func (c *checker) resolve(zxid int64, f *facts) {
	m := moment{zxid: zxid, exact: true}
	switch {
	case f.by != nil:
		c.applyLoose(f, m)
	case len(f.created)+len(f.set) > 0:
		c.fail("G3", f.record, "nobody, or nobody at that time, asked for the change of zxid %d", zxid)
		c.adopt(f, m)
	case len(f.deleted) > 0:
		c.resolveDeleted(f, m)
	default:
		c.resolveLists(f, m)
	}
}

// resolveDeleted explains deletions by an unanswered write, by the end of a session, or by the sweep of a
// container.
func (c *checker) resolveDeleted(f *facts, m moment) {
	var nodes []*node
	ends, owner := true, int64(0)
	for _, path := range sorted(f.deleted) {
		n := c.model.nodes[path]
		if n == nil && c.appear(path, m.zxid-1) {
			n = c.model.nodes[path]
		}
		if n == nil {
			c.fail("G16", f.record, "%s was not there to be deleted at zxid %d", path, m.zxid)
			return
		}
		nodes = append(nodes, n)
		if owner == 0 {
			owner = n.owner
		}
		ends = ends && c.mayGo(n, m.zxid) && (n.owner == 0 || n.owner == owner)
	}
	claims := c.candidates(m.zxid, f)
	if !ends && f.by == nil {
		owner, ends = c.oneOwner(nodes, m.zxid)
	}
	switch {
	case ends:
		m.end = true
		// If another session may have made one of the nodes again, `owner` may not be the session that has ended.
		again := slices.ContainsFunc(nodes, func(n *node) bool { return n.owner == owner && c.passedOn(n, m.zxid) })
		if len(claims) == 0 && owner != 0 && !again {
			c.endSession(owner, f, m)
			return
		}
		for _, n := range nodes {
			c.remove(n, m)
		}
		c.resolveLists(f, m)
	default:
		if f.by = c.demand(claims); f.by != nil {
			c.applyLoose(f, m)
			return
		}
		for _, n := range nodes {
			rule := "G3"
			if n.owner != 0 {
				rule = "G12"
			}
			c.fail(rule, f.record, "no request deleted %s at zxid %d", n.path, m.zxid)
			c.forget(n)
		}
	}
}

// oneOwner finds a session whose end may have deleted all of the nodes at zxid. Nodes of other sessions may
// have gone before, and unanswered writes of that session may have made new nodes in their place. If so, the
// model takes the new nodes.
func (c *checker) oneOwner(nodes []*node, zxid int64) (owner int64, ok bool) {
	for _, o := range nodes {
		id := o.owner
		if id == 0 || !c.mayEnd(id, zxid) {
			continue
		}
		others := map[*node][]claim{}
		fits := func(n *node) bool {
			if n.owner == id {
				return true
			}
			if n.owner == 0 || len(n.kids) > 0 || !c.mayGo(n, zxid) {
				return false
			}
			for _, l := range c.loose.creates[n.path] {
				if l.maker() == id && l.within(n.seenState, zxid) {
					others[n] = append(others[n], claim{l})
				}
			}
			return others[n] != nil
		}
		if slices.ContainsFunc(nodes, func(n *node) bool { return !fits(n) }) {
			continue
		}
		silent := moment{zxid: zxid - 1, silent: true}
		for _, n := range nodes {
			if d := c.demand(others[n]); d != nil {
				c.remove(n, silent)
				c.create(n.path, d.taken[0].Step, id, silent)
			} else if n.owner != id {
				return 0, false
			}
		}
		return id, true
	}
	return 0, false
}

// resolveLists makes the changes of child lists that f shows and the model lacks.
func (c *checker) resolveLists(f *facts, m moment) {
	m.end = true
	for _, path := range sorted(f.lists) {
		times := f.lists[path]
		n := c.model.nodes[path]
		if n == nil {
			continue // the node had gone before, so no client waits for its events
		}
		if n.pzxid == m.zxid {
			times -= n.pzTimes
		}
		if times <= 0 {
			continue
		}
		if made, gone := c.open(n, m.zxid); made+gone < times {
			c.fail("G16", f.record, "nothing changed the children of %s at zxid %d", path, m.zxid)
		}
		n.pzxid, n.pzLoose = m.zxid, false
		for range times {
			c.tell(jute.EventChildrenChanged, n, m)
		}
	}
}

// endSession deletes the session's ephemerals. These include nodes that unanswered writes of the session may
// have made, if f shows that the nodes have gone.
func (c *checker) endSession(id int64, f *facts, m moment) {
	if f != nil {
		for _, path := range sorted(f.deleted) {
			if c.model.nodes[path] == nil {
				c.appear(path, m.zxid-1)
			}
			n := c.model.nodes[path]
			if n != nil && slices.ContainsFunc(n.makers, func(l *looseStep) bool { return l.maker() == id }) {
				n.makers = nil
				c.own(n, id)
			}
		}
	}
	c.session(id).ended = true
	list := slices.SortedFunc(maps.Values(c.model.owned[id]), func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.czxid, b.czxid), cmp.Compare(a.path, b.path))
	})
	m.end = true
	// If an unanswered delete may have removed a node before, only events show that the session's end removed
	// the node.
	doubt, sure := map[*node]bool{}, map[string]int{}
	for _, n := range list {
		doubt[n] = m.exact && (f == nil || !f.deleted[n.path]) && possible(c.loose.deletes[n.path], n.seenState,
			m.zxid)
		if !doubt[n] {
			sure[parentOf(n.path)]++
		}
	}
	for _, n := range list {
		if !m.exact && n.seen >= m.zxid && len(n.kids) == 0 {
			// Clients saw a node at this path at m.zxid or later: it must be another node in the place of n.
			silent := m
			silent.silent = true
			c.remove(n, silent)
			if !c.appearAt(n.path, silent) {
				c.fail("G12", c.now, "%s of session %#x is there at zxid %d, others of its nodes are not", n.path, id,
					m.zxid)
			}
			continue
		}
		at := m
		if doubt[n] && sure[parentOf(n.path)] >= f.listed(n.path) {
			at = moment{zxid: m.zxid, end: true, silent: true}
		}
		c.remove(n, at)
	}
	delete(c.model.owned, id)
	if f != nil {
		c.resolveLists(f, m)
	}
}

// listed() returns how many children of path's parent, according to f, were created or deleted.
func (f *facts) listed(path string) int {
	if f == nil {
		return 0
	}
	return f.lists[parentOf(path)]
}
