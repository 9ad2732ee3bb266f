package recipe

import (
	"slices"
)

// kin is a group of contenders of a directory that see each other: the contenders of one layout, unless one
// of their programs does not look at all of them.
type kin struct {
	layout Layout
	list   []item
}

// locks turns the ephemeral children of one directory into locks: as a rule into one, but each node without a
// number may be a lock of its own.
func (d *Dir) locks(w Watches, left *int) []Queue {
	kins, lone := split(items(d))
	list := d.lone(lone, w, left)
	if len(kins) == 0 {
		return list
	}
	kins = apart(merge(kins))
	q := Queue{Lock: Lock{Path: d.Path, Kind: KindLock, Next: d.Next, Total: d.Total - len(lone),
		Mixed: len(kins) > 1}}
	holding, alone := 0, false // kin with holders, and whether one of those excludes others
	for i, k := range kins {
		q.Layouts = append(q.Layouts, k.layout)
		kind := d.decide(k, w)
		if i == 0 {
			q.Kind = kind
		} else if q.Kind != kind {
			q.Kind = KindUnknown
		}
		before := len(q.Holders)
		share(&q, k.list, kind)
		if len(q.Holders) > before {
			holding++
			alone = alone || slices.ContainsFunc(q.Holders[before:], excludesAll)
		}
		q.HeldTwice = holding > 1 && alone
		if k.layout == LayoutPolicy {
			rec, _ := ParsePolicyRecord([]byte(d.Data))
			q.Policy = rec.Policy
		}
	}
	return append(list, q)
}

// split groups contenders by layout; almost always all have the same layout. It returns contenders without a
// number separately, because they form no queue.
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

func kinOf(it *item) (l Layout, queued bool) {
	switch {
	case it.Layout == LayoutLone || it.Layout == LayoutKazoo && it.Kind == RoleLease:
		return 0, false
	case it.Kind == RoleLease: // outside a semaphore
		return LayoutPlain, true
	}
	return it.Layout, true
}

// merge joins groups that see each other in spite of their names. kazoo's locks can be configured to look at
// those of package client, which then look at kazoo's as well.
func merge(kins []kin) []kin {
	find := func(l Layout) int { return slices.IndexFunc(kins, func(k kin) bool { return k.layout == l }) }
	ours, theirs := find(LayoutCurator), find(LayoutKazoo)
	if ours < 0 || theirs < 0 {
		return kins
	}
	for _, it := range kins[ours].list {
		if it.Maker != MakerSelf || it.Kind.Family() != FamilyLock {
			return kins
		}
	}
	for _, it := range kins[theirs].list {
		if it.Maker != MakerKazoo || it.Kind != RoleLock {
			return kins
		}
	}
	both := append(slices.Clone(kins[ours].list), kins[theirs].list...)
	slices.SortFunc(both, func(x, y item) int { return Compare(x.Contender, y.Contender) })
	kins[ours].list = both
	return slices.Delete(kins, theirs, theirs+1)
}

func excludesAll(e Entry) bool { return e.Mode == Exclusive }

// apart splits the contenders in Curator's layout by families if one of them belongs to a program that does
// not look at all the others. For example, a mutex and a read-write lock of Curator do not exclude each
// other.
func apart(kins []kin) []kin {
	at := slices.IndexFunc(kins, func(k kin) bool { return k.layout == LayoutCurator })
	if at < 0 {
		return kins
	}
	list := kins[at].list
	foreign := slices.ContainsFunc(list, func(it item) bool { return it.Maker != MakerSelf })
	first := list[0].Kind.Family()
	other := slices.ContainsFunc(list, func(it item) bool { return it.Kind.Family() != first })
	if !foreign || !other {
		return kins
	}
	kins = slices.Delete(kins, at, at+1)
	for f := FamilyLock; f <= FamilyLatch; f++ {
		of := slices.DeleteFunc(slices.Clone(list), func(it item) bool { return it.Kind.Family() != f })
		if len(of) > 0 {
			kins = append(kins, kin{LayoutCurator, of})
		}
	}
	return kins
}

// decide determines the kind of the lock, and which contenders wait for which. The contenders are in the
// order of their turns.
func (d *Dir) decide(k kin, w Watches) Kind {
	list := k.list
	switch {
	case list[0].Kind == RoleMember:
		return KindParty
	case k.layout == LayoutPolicy:
		decidePolicy(list, d.Data)
		return KindRWLock
	case k.layout == LayoutPlain && !plainLock(d.Path, list, w):
		return KindUnknown
	}
	kind := KindLatch
	for i := range list {
		switch list[i].Kind.Family() {
		case FamilyReadWrite:
			kind = KindRWLock
		case FamilyLock:
			if kind == KindLatch {
				kind = KindLock
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
		if it.Kind == RoleRead && from < to && downgraded(dir, list, i, from, w) {
			continue
		}
		for _, ahead := range list[from:to] {
			it.e.BlockedBy = append(it.e.BlockedBy, ahead.Node.Name)
		}
	}
}

// downgraded reports whether reader i holds the lock together with the writer before it. That is so if the
// writer has the same session and holds, and the reader does not wait for the writer. A downgrade of package
// client gives the reader the number of its writer.
func downgraded(dir string, list []item, i, writer int, w Watches) bool {
	if list[i].Session != list[writer].Session || len(list[writer].e.BlockedBy) > 0 ||
		list[i].Layout != LayoutCurator {
		return false
	}
	watching, known := w.Watching(list[i].Session, Join(dir, list[writer].Node.Name))
	return known && !watching
}

// plainLock reports whether sequential nodes of an unknown library form a lock: their names say so, or later
// nodes' sessions watch earlier nodes.
func plainLock(dir string, list []item, w Watches) bool {
	if _, blind := w.(Unseen); blind {
		return true
	}
	words := true
	for i := range list {
		words = words && list[i].Word
	}
	if words {
		return true
	}
	for i := 1; i < min(len(list), 8); i++ {
		if list[i].Session == list[i-1].Session {
			continue
		}
		if watching, _ := w.Watching(list[i].Session, Join(dir, list[i-1].Node.Name)); watching {
			return true
		}
	}
	return false
}

// share adds a group to the holders, the waiters or the participants of the queue, after decide.
func share(q *Queue, list []item, kind Kind) {
	if q.Waiters == nil && len(list) > 1 && kind != KindParty && kind != KindUnknown {
		q.Waiters = make([]Entry, 0, len(list)-1)
	}
	for i := range list {
		it := &list[i]
		switch {
		case kind == KindParty || kind == KindUnknown:
			it.e.Mode = Participant
			q.Participants = append(q.Participants, it.e)
		case it.Layout == LayoutPolicy && it.Kind == RoleMember:
			q.Total--
		case it.Hold || it.e.BlockedBy == nil:
			q.Holders = append(q.Holders, it.e)
		default:
			it.e.HeldSince = 0
			q.Waiters = append(q.Waiters, it.e)
		}
	}
}

// someWatchers bounds how many watching sessions of one node count as waiters. allWatchers bounds how many of
// them become entries, over all locks; the others count only in Total. The server charges a session for its
// watches, but an entry takes several times as much memory.
const (
	someWatchers = 200
	allWatchers  = 10_000
)

// lone handles nodes without a number. Such a node is a lock if its name says so, or if other sessions watch
// it. But a session that watches several nodes of a directory only observes them, and waits for none.
func (d *Dir) lone(list []item, w Watches, left *int) []Queue {
	var found []Queue
	if len(list) == 1 && len(d.Nodes) == 1 && list[0].Node.Name == SimpleName {
		it := &list[0]
		if _, ours := it.e.Record(); ours || len(w.Watchers(d.Path, 1)) > 0 {
			return []Queue{simple(d.Path, it, w.Watchers(d.Path, someWatchers), d.Next, left)}
		}
	}
	watchers := make([][]int64, len(list))
	watched := map[int64]int{}
	for i := range list {
		if list[i].Layout != LayoutLone {
			continue
		}
		watchers[i] = w.Watchers(Join(d.Path, list[i].Node.Name), someWatchers)
		for _, s := range watchers[i] {
			watched[s]++
		}
	}
	for i := range list {
		it := &list[i]
		if it.Layout != LayoutLone {
			continue
		}
		_, named := PlainRole(it.Node.Name)
		losers := slices.DeleteFunc(watchers[i], func(s int64) bool {
			return s == it.Session || watched[s] > 1 &&
				!named
		})
		if !named && len(losers) == 0 {
			continue // a member of a group, or a lock without waiters
		}
		it.e.Node = ""
		found = append(found, simple(Join(d.Path, it.Node.Name), it, losers, 0, left))
	}
	return found
}

// simple returns a lock of one node. Its waiters have no node, only a watch; left is how many more waiters
// may become entries.
func simple(path string, it *item, watchers []int64, next int32, left *int) Queue {
	q := Queue{Lock: Lock{Path: path, Kind: KindSimple, Layouts: []Layout{LayoutLone}, Next: next, Total: 1}}
	it.e.HeldSince = it.Ctime // the grant made the node
	q.Holders = []Entry{it.e}
	for _, s := range watchers {
		if s == it.Session {
			continue
		}
		if q.Total++; *left > 0 {
			*left--
			q.Waiters = append(q.Waiters, Entry{
				Layout: LayoutLone, Mode: Exclusive, Session: Session(s), BlockedBy: []string{it.e.Node}, Watch: true,
			})
		}
	}
	return q
}
