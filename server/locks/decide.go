package locks

import (
	"encoding/json"
	"slices"
	"strings"
)

// item is a contender while it is decided upon.
type item struct {
	entry
	name
	c Contender
}

func items(g *group) []item {
	list := make([]item, len(g.entries))
	for i, e := range g.entries {
		list[i] = item{entry: e, name: parseName(e.name)}
		it := &list[i]
		it.c = Contender{
			Node: e.name, Layout: it.layout, Mode: it.mode, Maker: it.maker, Session: e.session, Token: e.czxid,
			Since: e.ctime, Version: e.version, Hidden: e.hidden, data: e.data,
		}
		if strings.Contains(e.data, `"held"`) { // decoding every record would be most of the work
			if o, ok := it.c.Owner(); ok && o.Held {
				it.c.Held = e.mtime
			}
		}
	}
	return list
}

// family is what can see each other: one layout, and within it leader latches.
type family struct {
	layout Layout
	latch  bool
}

// kin is a family's contenders in one directory.
type kin struct {
	family
	list []item
}

// locks makes locks of the ephemeral children of one directory: one, unless
// they are nodes without numbers, each of which may be a lock.
func (g *group) locks(w Watches) []Queue {
	kins, lone := split(items(g))
	list := g.lone(lone, w)
	if len(kins) == 0 {
		return list
	}
	kins = merge(kins)
	q := Queue{Path: g.path, Kind: Lock, Next: g.next, Total: g.total - len(lone), Mixed: len(kins) > 1}
	for i, k := range kins {
		q.Layouts = append(q.Layouts, k.layout)
		kind := g.decide(k.family, k.list, w)
		if i == 0 {
			q.Kind = kind
		} else if q.Kind != kind {
			q.Kind = Unknown
		}
		q.take(k.list, kind)
		if k.layout == Policy {
			q.Policy = policyOf(g.data)
		}
	}
	return append(list, q)
}

// split sorts contenders into families, and those without a number, which are
// no queue. Almost always there is one family, which then is all of them.
func split(all []item) (kins []kin, lone []item) {
	same := len(all) > 0
	for i := range all {
		f, queued := familyOf(&all[i])
		first, _ := familyOf(&all[0])
		same = same && queued && f == first
	}
	if same {
		f, _ := familyOf(&all[0])
		return []kin{{f, all}}, nil
	}
	for _, it := range all {
		f, queued := familyOf(&it)
		if !queued {
			lone = append(lone, it)
			continue
		}
		at := slices.IndexFunc(kins, func(k kin) bool { return k.family == f })
		if at < 0 {
			at = len(kins)
			kins = append(kins, kin{family: f})
		}
		kins[at].list = append(kins[at].list, it)
	}
	return kins, lone
}

func familyOf(it *item) (f family, queued bool) {
	switch {
	case it.layout == Lone || it.layout == Kazoo && it.mode == Permit:
		return family{}, false
	case it.mode == Permit: // outside a semaphore
		return family{Plain, false}, true
	}
	return family{it.layout, it.latch}, true
}

// merge joins what the names alone would keep apart: kazoo's locks can be told
// to look at package client's, and then those look at kazoo's as well.
func merge(kins []kin) []kin {
	find := func(l Layout) int {
		return slices.IndexFunc(kins, func(k kin) bool { return k.family == family{l, false} })
	}
	ours, theirs := find(Curator), find(Kazoo)
	if ours < 0 || theirs < 0 {
		return kins
	}
	for _, it := range kins[ours].list {
		if it.maker != byUs || it.rw {
			return kins
		}
	}
	for _, it := range kins[theirs].list {
		if it.maker != byKazoo || it.rw || it.mode != Exclusive {
			return kins
		}
	}
	both := append(slices.Clone(kins[ours].list), kins[theirs].list...)
	slices.SortStableFunc(both, func(x, y item) int {
		if before(x.seq, y.seq) {
			return -1
		}
		return 1
	})
	kins[ours].list = both
	return slices.Delete(kins, theirs, theirs+1)
}

// decide finds out who waits for whom within a family, whose members are in
// the order of their turns, and what kind of lock it is.
func (g *group) decide(f family, list []item, w Watches) Kind {
	switch {
	case list[0].mode == Participant:
		return Party
	case f.layout == Policy:
		decidePolicy(list)
		return RWLock
	case f.layout == Plain && !plainLock(g.path, list, w):
		return Unknown
	}
	kind := Lock
	if f.latch {
		kind = Latch
	}
	for i := range list {
		if list[i].rw {
			kind = RWLock
		}
	}
	decideQueue(g.path, list, w)
	return kind
}

// decideQueue lets an exclusive contender wait for whoever came before it and a
// shared one for the last exclusive one before it.
func decideQueue(dir string, list []item, w Watches) {
	last := -1 // the last exclusive one
	for i := range list {
		it := &list[i]
		if it.mode == Shared {
			if last >= 0 && !downgraded(dir, list, i, last, w) {
				it.c.BlockedBy = []string{list[last].entry.name}
			}
			continue
		}
		for j := max(last, 0); j < i; j++ {
			if j > last || j == i-1 {
				it.c.BlockedBy = append(it.c.BlockedBy, list[j].entry.name)
			}
		}
		last = i
	}
}

// downgraded tells whether the reader i holds beside the writer it came after:
// the same session's, which holds and is not waited for. A downgrade of package
// client gives the reader its writer's number.
func downgraded(dir string, list []item, i, writer int, w Watches) bool {
	if list[i].session != list[writer].session || len(list[writer].c.BlockedBy) > 0 || list[i].layout != Curator {
		return false
	}
	watching, known := w.Watching(list[i].session, join(dir, list[writer].entry.name))
	return known && !watching
}

// plainLock tells whether sequential nodes of no known library are a lock's:
// their names say so, or those behind watch those before them.
func plainLock(dir string, list []item, w Watches) bool {
	words := true
	for i := range list {
		words = words && list[i].word
	}
	if words {
		return true
	}
	for i := 1; i < min(len(list), 8); i++ {
		if list[i].session == list[i-1].session {
			continue
		}
		if watching, _ := w.Watching(list[i].session, join(dir, list[i-1].entry.name)); watching {
			return true
		}
	}
	return false
}

// decidePolicy decides upon a lock with a policy: hold nodes hold, and of those
// queued the ones whose id does not hold wait.
func decidePolicy(list []item) {
	holds := map[[16]byte]bool{}
	var writers, all []string
	for i := range list {
		if it := &list[i]; it.hold {
			holds[it.id] = true
			it.c.Held = it.ctime // made by the grant
			all = append(all, it.entry.name)
			if it.mode == Exclusive {
				writers = append(writers, it.entry.name)
			}
		}
	}
	lastWriter, last := "", ""
	for i := range list {
		it := &list[i]
		if it.hold {
			continue
		}
		if holds[it.id] {
			it.mode = Participant // a writer keeps its place in the queue while it holds
			continue
		}
		switch {
		case it.mode == Exclusive && len(all) > 0:
			it.c.BlockedBy = all
		case it.mode == Shared && len(writers) > 0:
			it.c.BlockedBy = writers
		case it.mode == Shared && lastWriter != "":
			it.c.BlockedBy = []string{lastWriter}
		case it.mode == Exclusive && last != "":
			it.c.BlockedBy = []string{last}
		default:
			it.c.BlockedBy = []string{} // it will be granted in a moment
		}
		if it.mode == Exclusive {
			lastWriter = it.entry.name
		}
		last = it.entry.name
	}
}

// take adds a family that has been decided upon.
func (q *Queue) take(list []item, kind Kind) {
	if q.Waiters == nil && len(list) > 1 && kind != Party && kind != Unknown {
		q.Waiters = make([]Contender, 0, len(list)-1)
	}
	for i := range list {
		it := &list[i]
		switch {
		case kind == Party || kind == Unknown:
			it.c.Mode = Participant
			q.Participants = append(q.Participants, it.c)
		case kind == RWLock && it.layout == Policy && it.mode == Participant:
			q.Total--
		case it.c.BlockedBy == nil:
			q.Holders = append(q.Holders, it.c)
		default:
			it.c.Held = 0
			q.Waiters = append(q.Waiters, it.c)
		}
	}
}

func policyOf(data string) string {
	var rec struct {
		Policy string `json:"policy"`
	}
	if len(data) > maxRecord || !strings.HasPrefix(data, "{") || json.Unmarshal([]byte(data), &rec) != nil || len(rec.Policy) > 20 {
		return ""
	}
	return rec.Policy
}

// someWatchers is how many of those who watch a node are shown as waiting.
const someWatchers = 200

// lone looks at nodes without a number. One is a lock if it names itself so, or
// if others watch it; but who watches several nodes of a directory watches
// over its members and waits for nothing.
func (g *group) lone(list []item, w Watches) []Queue {
	var found []Queue
	if len(list) == 1 && len(g.entries) == 1 && list[0].entry.name == "lock" {
		it := &list[0]
		if _, ours := it.c.Owner(); ours || len(w.Watchers(g.path, 1)) > 0 {
			return []Queue{simple(g.path, it, w.Watchers(g.path, someWatchers), g.next)}
		}
	}
	watchers := make([][]int64, len(list))
	watched := map[int64]int{}
	for i := range list {
		if list[i].layout != Lone {
			continue
		}
		watchers[i] = w.Watchers(join(g.path, list[i].entry.name), someWatchers)
		for _, s := range watchers[i] {
			watched[s]++
		}
	}
	for i := range list {
		it := &list[i]
		if it.layout != Lone {
			continue
		}
		named := parsePlain(it.entry.name, 0).word
		losers := slices.DeleteFunc(watchers[i], func(s int64) bool { return s == it.session || watched[s] > 1 && !named })
		if !named && len(losers) == 0 {
			continue // a member of something, or a lock nobody waits for: who could tell
		}
		it.c.Node = ""
		found = append(found, simple(join(g.path, it.entry.name), it, losers, 0))
	}
	return found
}

// simple is a lock of one node. Who waits has no node: only a watch.
func simple(path string, it *item, watchers []int64, next int32) Queue {
	q := Queue{Path: path, Kind: Simple, Layouts: []Layout{Lone}, Next: next, Total: 1}
	it.c.Held = it.ctime // made by the grant
	q.Holders = []Contender{it.c}
	for _, s := range watchers {
		if s != it.session {
			q.Total++
			q.Waiters = append(q.Waiters, Contender{
				Layout: Lone, Mode: Exclusive, Maker: byUnknown, Session: s, BlockedBy: []string{it.c.Node}, Watch: true,
			})
		}
	}
	return q
}
