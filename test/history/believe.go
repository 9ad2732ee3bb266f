package history

import "github.com/zlockd/zlockd/jute"

// The functions of this file change the model once the checker believes that an unanswered write took effect.

// applyLoose makes the changes of the unanswered write that explains f, which is what clients saw of the
// changes at one zxid. If another write could explain f, too, applyLoose makes only the changes that f shows.
func (c *checker) applyLoose(f *facts, m moment) {
	d := f.by
	u := d.taken[0].of
	paths, _ := u.explains(f)
	// If another write could explain f, or if some steps may have had no effect, the order of the events at this
	// zxid is not known.
	m.end = len(d.claims) > 1 || len(d.taken) < len(u.steps)
	if len(u.steps) == 1 {
		c.prepare(u.steps[0], paths, f, m)
	}
	told := map[string]int{}
	for i, l := range u.steps {
		path := l.Path
		if p, ok := paths[l]; ok {
			path = p
		} else if isCreate(l.Op) && sequential(l.Flags) {
			continue
		}
		if len(d.claims) > 1 && !f.shows(l, path) {
			l.spare = true
			continue
		}
		if !c.within(path) {
			continue
		}
		n := c.model.nodes[path]
		if n == nil && !isCreate(l.Op) {
			if n = c.there(path, m.zxid-1, f.record, "it was changed then"); n == nil {
				continue
			}
		}
		switch {
		case isCreate(l.Op) && n != nil:
			if d.mayDelete(path) { // an earlier step of the same multi may have deleted the node
				c.emptied(n, f.record, m)
				c.remove(n, m)
			} else {
				c.missing(path, m.zxid-1, f.record, "it was created then")
			}
			fallthrough
		case isCreate(l.Op):
			c.createLoose(path, d, l, m)
		case l.Op == jute.OpDelete:
			c.emptied(n, f.record, m)
			c.remove(n, m)
		case l.Op == jute.OpSetData:
			if len(u.steps) > 1 {
				c.catchUpSets(n, u.steps[i+1:], f, m)
			}
			at := m
			if told[path]++; len(d.claims) > 1 && f.sets[path] > 0 && told[path] > f.sets[path] {
				at.silent = true // this set had no event: another write, with fewer sets, made the change
			}
			c.setData(n, l.Step, at)
		case l.Op == jute.OpSetACL:
			n.aversion++
		}
	}
	for path := range f.set {
		if n := c.model.nodes[path]; n != nil && len(d.claims) > 1 {
			less, more := d.versions(path)
			n.less, n.more = n.less+less, n.more+more
		}
	}
	c.resolveLists(f, m)
}

// catchUpSets prepares the model for a set inside a multi. If the version of the node in f shows that other
// unanswered writes set the node before, catchUpSets makes their sets. `rest` are the later steps of the
// multi.
func (c *checker) catchUpSets(n *node, rest []*looseStep, f *facts, m moment) {
	st := f.set[n.path]
	if st == nil {
		return
	}
	before := st.Version - 1
	for _, l := range rest {
		if l.Op == jute.OpSetData && l.Path == n.path {
			before--
		}
	}
	if before > n.version {
		n.version += c.use(c.loose.sets[n.path], n.seenState, m.zxid, before-n.version)
	}
}

// shows() reports whether f has the change that step l makes at path.
func (f *facts) shows(l *looseStep, path string) (ok bool) {
	switch {
	case isCreate(l.Op):
		_, ok = f.created[path]
	case l.Op == jute.OpSetData:
		if _, ok = f.set[path]; !ok {
			st := f.created[path]
			ok = st != nil && st.Mzxid == st.Czxid // created and set by one write; explains() has counted the sets
		}
	case l.Op == jute.OpDelete:
		ok = f.deleted[path]
	}
	return ok
}

// prepare() prepares the model for a write at a known zxid: other unanswered writes must have made what the
// write needs. The steps of a multi are not prepared, because they may need each other.
func (c *checker) prepare(l *looseStep, paths map[*looseStep]string, f *facts, m moment) {
	path := l.Path
	if p, ok := paths[l]; ok {
		path = p
	}
	before := m.zxid - 1
	switch {
	case !c.within(path):
	case isCreate(l.Op):
		c.missing(path, before, f.record, "it was created then")
		if parent := parentOf(path); c.within(parent) && path != "/" {
			c.there(parent, before, f.record, "a child was created then")
		}
	case l.Op == jute.OpSetData:
		n := c.there(path, before, f.record, "it was set then")
		if st := f.set[path]; n != nil && st != nil && st.Version > n.version+1 {
			n.version += c.use(c.loose.sets[path], n.seenState, m.zxid, st.Version-1-n.version)
		}
	case l.Op == jute.OpDelete:
		c.there(path, before, f.record, "it was deleted then")
	}
}

// emptied() removes the children of n from the model when a write at m has deleted n. Other unanswered writes
// must have deleted these children before. Children that stay in the model without a parent would count as
// children of the next node at the path.
func (c *checker) emptied(n *node, record int, m moment) {
	for _, kid := range n.children() {
		if kid.seen < m.zxid {
			c.missing(kid.path, m.zxid-1, record, "its parent was deleted then")
		} else { // the same multi made it, and removed it by a step that the checker did not apply
			c.forget(kid)
		}
	}
}

// adopt() makes a change in the model that no client asked for. The change has been reported as a violation.
// Without adopt() it would be reported again for each reply that shows it.
func (c *checker) adopt(f *facts, m moment) {
	for _, path := range sorted(f.created) {
		st := f.created[path]
		if c.model.nodes[path] == nil && (path == c.Root || c.model.parent(path) != nil) {
			owner := int64(0)
			if st != nil {
				owner = st.EphemeralOwner
			}
			c.create(path, &Step{Op: jute.OpCreate, Data: f.data[path]}, owner, m)
		}
	}
	for _, path := range sorted(f.set) {
		if n := c.model.nodes[path]; n != nil {
			c.setData(n, &Step{Data: f.data[path]}, m)
		}
	}
}
