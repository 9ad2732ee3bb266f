package turns

import (
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
)

// kin is a group of contenders in one directory. All contenders of a group see each other. Usually all
// contenders of a layout are one group. The layout has several groups if the program of one contender does
// not look at all the others.
type kin struct {
	layout recipe.Layout
	list   []item
}

// locks() turns the ephemeral children of one directory into locks. As a rule they are one lock, but each
// node without a number may be a lock of its own.
func (d *Dir) locks(w Watches, left *int) []recipe.Queue {
	kins, lone := split(items(d))
	list := d.lone(lone, w, left)
	if len(kins) == 0 {
		return list
	}
	kins = apart(merge(kins))
	q := recipe.Queue{Lock: recipe.Lock{Path: d.Path, Kind: recipe.KindLock, Next: d.Next,
		Total: d.Total - len(lone), Mixed: len(kins) > 1}}
	holding, alone := 0, false // the number of groups with holders; whether one of these holders excludes others
	for i, k := range kins {
		q.Layouts = append(q.Layouts, k.layout)
		kind := d.decide(k, w)
		if i == 0 {
			q.Kind = kind
		} else if q.Kind != kind {
			q.Kind = recipe.KindUnknown
		}
		before := len(q.Holders)
		share(&q, k.list, kind)
		if len(q.Holders) > before {
			holding++
			alone = alone || slices.ContainsFunc(q.Holders[before:], excludesAll)
		}
		q.HeldTwice = holding > 1 && alone
		if k.layout == recipe.LayoutPolicy {
			rec, _ := recipe.ParsePolicyRecord([]byte(d.Data))
			q.Policy = rec.Policy
		}
	}
	return append(list, q)
}

// split() groups contenders by layout; almost always all have the same layout. It returns contenders without
// a number separately, because they form no queue.
func split(all []item) (kins []kin, lone []item) {
	same := len(all) > 0
	for i := range all {
		l, queued := kinOf(&all[i])
		first, _ := kinOf(&all[0])
		same = same && queued && l == first
	}
	if same {
		l, _ := kinOf(&all[0])
		return []kin{{l, all}}, nil
	}
	for _, it := range all {
		l, queued := kinOf(&it)
		if !queued {
			lone = append(lone, it)
			continue
		}
		at := slices.IndexFunc(kins, func(k kin) bool { return k.layout == l })
		if at < 0 {
			at = len(kins)
			kins = append(kins, kin{layout: l})
		}
		kins[at].list = append(kins[at].list, it)
	}
	return kins, lone
}

func kinOf(it *item) (l recipe.Layout, queued bool) {
	switch {
	case it.Layout == recipe.LayoutLone || it.Layout == recipe.LayoutKazoo && it.Kind == recipe.RoleLease:
		return 0, false
	case it.Kind == recipe.RoleLease: // a permit outside a semaphore
		return recipe.LayoutPlain, true
	}
	return it.Layout, true
}

// merge() joins the group of kazoo's locks and the group of package client's locks, if all members of both
// groups are exclusive locks. A kazoo lock can be configured to see the locks of package client, and package
// client's locks see kazoo's.
func merge(kins []kin) []kin {
	find := func(l recipe.Layout) int {
		return slices.IndexFunc(kins, func(k kin) bool { return k.layout == l })
	}
	ours, theirs := find(recipe.LayoutCurator), find(recipe.LayoutKazoo)
	if ours < 0 || theirs < 0 {
		return kins
	}
	for _, it := range kins[ours].list {
		if it.Maker != recipe.MakerSelf || it.Kind.Family() != recipe.FamilyLock {
			return kins
		}
	}
	for _, it := range kins[theirs].list {
		if it.Maker != recipe.MakerKazoo || it.Kind != recipe.RoleLock {
			return kins
		}
	}
	both := append(slices.Clone(kins[ours].list), kins[theirs].list...)
	slices.SortFunc(both, func(x, y item) int { return recipe.Compare(x.Contender, y.Contender) })
	kins[ours].list = both
	return slices.Delete(kins, theirs, theirs+1)
}

func excludesAll(e recipe.Entry) bool { return e.Mode == recipe.Exclusive }

// apart() splits the contenders in Curator's layout by families if one of them belongs to a program that does
// not look at all the others. For example, a mutex and a read-write lock of Curator do not exclude each
// other.
func apart(kins []kin) []kin {
	at := slices.IndexFunc(kins, func(k kin) bool { return k.layout == recipe.LayoutCurator })
	if at < 0 {
		return kins
	}
	list := kins[at].list
	foreign := slices.ContainsFunc(list, func(it item) bool { return it.Maker != recipe.MakerSelf })
	first := list[0].Kind.Family()
	other := slices.ContainsFunc(list, func(it item) bool { return it.Kind.Family() != first })
	if !foreign || !other {
		return kins
	}
	kins = slices.Delete(kins, at, at+1)
	for f := recipe.FamilyLock; f <= recipe.FamilyLatch; f++ {
		of := slices.DeleteFunc(slices.Clone(list), func(it item) bool { return it.Kind.Family() != f })
		if len(of) > 0 {
			kins = append(kins, kin{recipe.LayoutCurator, of})
		}
	}
	return kins
}

// decide() determines the kind of the lock, and which contenders wait for which. The contenders are in the
// order of their turns.
func (d *Dir) decide(k kin, w Watches) recipe.Kind {
	list := k.list
	switch {
	case list[0].Kind == recipe.RoleMember:
		return recipe.KindParty
	case k.layout == recipe.LayoutPolicy:
		decidePolicy(list, d.Data)
		return recipe.KindRWLock
	case k.layout == recipe.LayoutPlain && !plainLock(d.Path, list, w):
		return recipe.KindUnknown
	}
	kind := recipe.KindLatch
	for i := range list {
		switch list[i].Kind.Family() {
		case recipe.FamilyReadWrite:
			kind = recipe.KindRWLock
		case recipe.FamilyLock:
			if kind == recipe.KindLatch {
				kind = recipe.KindLock
			}
		}
	}
	decideQueue(d.Path, list, w)
	return kind
}

// decideQueue determines for which nodes each contender of a queue waits.
func decideQueue(dir string, list []item, w Watches) {
	var t order
	for i := range list {
		it := &list[i]
		from, to := t.next(it.Kind)
		if it.Kind == recipe.RoleRead && from < to && downgraded(dir, list, i, from, w) {
			continue
		}
		for _, ahead := range list[from:to] {
			it.e.BlockedBy = append(it.e.BlockedBy, ahead.Node.Name)
		}
	}
}

// downgraded() reports whether reader i holds the lock together with the writer before it. It does if the
// writer holds the lock in the same session and the reader does not wait for the writer. When package client
// downgrades a writer, the reader's node gets the number of the writer's node.
func downgraded(dir string, list []item, i, writer int, w Watches) bool {
	if list[i].Session != list[writer].Session || len(list[writer].e.BlockedBy) > 0 ||
		list[i].Layout != recipe.LayoutCurator {
		return false
	}
	watching, known := w.Watching(list[i].Session, recipe.Join(dir, list[writer].Node.Name))
	return known && !watching
}

// share() adds a group to the holders, the waiters or the participants of the queue, after decide().
func share(q *recipe.Queue, list []item, kind recipe.Kind) {
	if q.Waiters == nil && len(list) > 1 && kind != recipe.KindParty && kind != recipe.KindUnknown {
		q.Waiters = make([]recipe.Entry, 0, len(list)-1)
	}
	for i := range list {
		it := &list[i]
		switch {
		case kind == recipe.KindParty || kind == recipe.KindUnknown:
			it.e.Mode = recipe.Participant
			q.Participants = append(q.Participants, it.e)
		case it.Layout == recipe.LayoutPolicy && it.Kind == recipe.RoleMember:
			q.Total--
		case it.Hold || it.e.BlockedBy == nil:
			q.Holders = append(q.Holders, it.e)
		default:
			it.e.HeldSince = 0
			q.Waiters = append(q.Waiters, it.e)
		}
	}
}
