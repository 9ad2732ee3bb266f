package history

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// demand is a change that an unanswered write must have made, with the writes that may have made it. Each
// write can explain only one change. When a new demand finds all of its writes taken, the demands that took
// them move to other writes where possible (bipartite matching by augmenting paths).
type demand struct {
	claims []claim
	taken  claim // the claim that the demand has now
}

// claim is the steps that a demand takes together: all steps of a write if the zxid of the change is known,
// and otherwise one step. A claim leaves out a sequential node of a multi if no client saw the node's name at
// that zxid. When a client sees this node, a later demand claims it.
type claim []*looseStep

// demand() places a new demand. It returns nil if other demands need all of its claims.
func (c *checker) demand(claims []claim) *demand {
	d := &demand{claims: claims}
	if len(claims) == 0 || !d.place(map[*looseStep]bool{}) {
		return nil
	}
	return d
}

// place() gives d a claim without steps that are in `tried`, and moves other demands out of the way.
func (d *demand) place(tried map[*looseStep]bool) bool {
	untried := func(cl claim) bool {
		return !slices.ContainsFunc(cl, func(l *looseStep) bool { return tried[l] })
	}
	for _, cl := range d.claims {
		if untried(cl) && len(cl.others(d)) == 0 {
			d.take(cl)
			return true
		}
	}
	for _, cl := range d.claims {
		if !untried(cl) {
			continue
		}
		for _, l := range cl {
			tried[l] = true
		}
		for _, o := range cl.others(d) {
			o.place(tried)
		}
		if len(cl.others(d)) == 0 {
			d.take(cl)
			return true
		}
	}
	return false
}

// others() returns the demands besides d that hold steps of the claim.
func (cl claim) others(d *demand) (list []*demand) {
	for _, l := range cl {
		if l.by != nil && l.by != d && !l.spare && !slices.Contains(list, l.by) {
			list = append(list, l.by)
		}
	}
	return list
}

func (d *demand) take(cl claim) {
	for _, l := range d.taken {
		l.by = nil
	}
	for _, l := range cl {
		l.by, l.spare = d, false
	}
	d.taken = cl
}

// use() places up to n demands, each for one of the steps that may have taken effect between the two zxids.
// It returns how many demands it placed.
func (c *checker) use(list []*looseStep, from, to int64, n int32) (took int32) {
	var claims []claim
	for _, l := range list {
		if l.within(from, to) {
			claims = append(claims, claim{l})
		}
	}
	for took < n && c.demand(claims) != nil {
		took++
	}
	return took
}

// candidates() returns the unanswered writes that may have made the changes at a zxid.
func (c *checker) candidates(zxid int64, f *facts) (claims []claim) {
	var list []*looseOp
	named := map[*looseOp]map[*looseStep]string{}
	take := func(steps []*looseStep) {
		for _, l := range steps {
			u := l.of
			if u.floor >= zxid || zxid > u.ceil || slices.Contains(list, u) {
				continue
			}
			if paths, ok := u.explains(f); ok {
				list = append(list, u)
				named[u] = paths
			}
		}
	}
	for _, path := range sorted(f.created) {
		take(c.loose.creates[path])
		take(c.loose.seqs[parentOf(path)])
	}
	for _, path := range sorted(f.set) {
		take(c.loose.sets[path])
	}
	for _, path := range sorted(f.deleted) {
		take(c.loose.deletes[path])
	}
	slices.SortFunc(list, func(a, b *looseOp) int {
		return cmp.Or(cmp.Compare(a.untold(f), b.untold(f)), cmp.Compare(a.ceil, b.ceil),
			cmp.Compare(a.op.Start, b.op.Start), cmp.Compare(a.op.Conn, b.op.Conn),
			cmp.Compare(a.op.Seq, b.op.Seq))
	})
	for _, u := range list {
		claims = append(claims, slices.DeleteFunc(slices.Clone(u.steps), func(l *looseStep) bool {
			return isCreate(l.Op) && sequential(l.Flags) && named[u][l] == ""
		}))
	}
	return claims
}

// possible() reports whether one of the steps may have taken effect between the two zxids.
func possible(list []*looseStep, from, to int64) bool {
	return slices.ContainsFunc(list, func(l *looseStep) bool { return l.within(from, to) })
}

// explains() reports whether the write may have made every change of f, and returns the paths of
// the nodes it created.
func (u *looseOp) explains(f *facts) (paths map[*looseStep]string, ok bool) {
	paths = map[*looseStep]string{}
	find := func(match func(*looseStep) bool) *looseStep {
		for _, l := range u.steps {
			if _, taken := paths[l]; !taken && match(l) {
				return l
			}
		}
		return nil
	}
	for _, path := range sorted(f.created) {
		st := f.created[path]
		data, read := f.data[path]
		l := find(func(l *looseStep) bool {
			if !l.makes(path, st) {
				return false
			}
			last, sets := u.setsAfter(l, path)
			if st != nil && st.Mzxid == st.Czxid && (int(st.Version) != sets || int(st.DataLength) != len(last)) {
				return false
			}
			return !read || bytes.Equal(data, last)
		})
		if l == nil {
			return nil, false
		}
		paths[l] = path
	}
	for _, path := range sorted(f.set) {
		st := f.set[path]
		data, read := f.data[path]
		if find(func(l *looseStep) bool {
			if l.Op != jute.OpSetData || l.Path != path {
				return false
			}
			last, more := u.setsAfter(l, path)
			switch {
			case more > 0: // only the last set of a node leaves the data that a client sees
				return false
			case u.sets(path) < f.sets[path]:
				return false
			case st != nil && (int(st.DataLength) != len(last) || l.Version != -1 && l.Version != st.Version-1 ||
				int(st.Version) < u.sets(path)):
				return false
			}
			return !read || bytes.Equal(data, last)
		}) == nil {
			return nil, false
		}
	}
	for _, path := range sorted(f.deleted) {
		if find(func(l *looseStep) bool { return l.Op == jute.OpDelete && l.Path == path }) == nil {
			return nil, false
		}
	}
	for _, path := range sorted(f.lists) {
		if !slices.ContainsFunc(u.steps, func(l *looseStep) bool {
			return (isCreate(l.Op) || l.Op == jute.OpDelete) && parentOf(l.Path) == path
		}) {
			return nil, false
		}
	}
	return paths, true
}

// untold() counts the sets of the write for which f lacks an event, at the nodes for which f has events of
// sets. A write with such sets is unlikely to explain f.
func (u *looseOp) untold(f *facts) (n int) {
	for path, told := range f.sets {
		n += max(0, u.sets(path)-told)
	}
	return n
}

// versions() returns by how much the version of path may differ if another of the demand's
// claims is the right one.
func (d *demand) versions(path string) (less, more int32) {
	has := d.taken[0].of.sets(path)
	for _, cl := range d.claims {
		by := int32(cl[0].of.sets(path) - has)
		less, more = max(less, -by), max(more, by)
	}
	return less, more
}

// sets() counts the sets of path.
func (u *looseOp) sets(path string) (n int) {
	for _, l := range u.steps {
		if l.Op == jute.OpSetData && l.Path == path {
			n++
		}
	}
	return n
}

// setsAfter counts the sets of path after the step `made`, and returns the data that they leave.
func (u *looseOp) setsAfter(made *looseStep, path string) (data []byte, sets int) {
	data = made.Data
	for _, l := range u.steps[slices.Index(u.steps, made)+1:] {
		if l.Op == jute.OpSetData && l.Path == path {
			data = l.Data
			sets++
		}
	}
	return data, sets
}

// mayDelete reports whether one of the demand's possible writes deletes path.
func (d *demand) mayDelete(path string) bool {
	for _, cl := range d.claims {
		for _, l := range cl[0].of.steps {
			if l.Op == jute.OpDelete && l.Path == path {
				return true
			}
		}
	}
	return false
}
