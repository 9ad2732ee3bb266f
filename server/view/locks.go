package view

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/locks"
	"github.com/zlockd/zlockd/server/view/answer"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/session"
)

// lockRow is a lock in the list, and some of its holders.
type lockRow struct {
	answer.Lock
	Holders []contenderRow `json:"holders"`
}

// contenderRow is a contender, with what the server knows about its session.
type contenderRow struct {
	recipe.Entry
	Target   string `json:"target"` // the whole path of the contender's node
	Addr     string `json:"addr,omitempty"`
	Server   uint32 `json:"server,omitempty"`   // the server that the contender's client is connected to
	Blockers int    `json:"blockers,omitempty"` // number of all blockers; BlockedBy names some of them
	Asked    bool   `json:"asked,omitempty"`
}

type lockList struct {
	V int `json:"v"`
	ask.Page
	Ephemerals int       `json:"ephemerals"`
	Hidden     int       `json:"hidden,omitempty"` // number of locks that not every client may list
	Truncated  string    `json:"truncated,omitempty"`
	Locks      []lockRow `json:"locks"`
}

const (
	someHolders  = 5
	someBlockers = 20
	someData     = 200
)

// row() describes a lock for the list.
func row(q *recipe.Queue, who map[int64]session.Session) lockRow {
	r := lockRow{Holders: []contenderRow{}, Lock: answer.Lock{
		Lock: q.Lock, Href: ask.Href("/locks", q.Path), Recipe: q.Recipe(),
		HolderCount: len(q.Holders), WaiterCount: waiting(q), ParticipantCount: len(q.Participants),
		OldestWait: q.OldestWait(), HeldSince: q.OldestHold(),
	}}
	r.Path, r.Policy = ask.Clip(q.Path), ask.Clip(q.Policy)
	if r.Layouts == nil {
		r.Layouts = []recipe.Layout{}
	}
	for i := range q.Holders[:min(len(q.Holders), someHolders)] {
		r.Holders = append(r.Holders, contenderOf(q, &q.Holders[i], 0, who))
	}
	return r
}

func contenderOf(q *recipe.Queue, e *recipe.Entry, position int, who map[int64]session.Session) contenderRow {
	s := who[int64(e.Session)]
	r := contenderRow{Entry: *e, Target: ask.Clip(q.Target(e.Node)), Addr: s.Addr, Server: s.Owner,
		Blockers: len(e.BlockedBy)}
	r.Tell()
	_, r.Asked = e.Asked()
	r.Node, r.Position, r.BlockedBy = ask.Clip(e.Node), position, nil
	for _, b := range e.BlockedBy[:min(len(e.BlockedBy), someBlockers)] {
		r.BlockedBy = append(r.BlockedBy, ask.Clip(b))
	}
	return r
}

// filter selects the locks of an answer.
type filter struct {
	prefix, kind, holder string
	olderThan            int64 // ms since 1970; 0: any
	waiting              bool
}

func (v *View) filterOf(q *ask.Query) filter {
	f := filter{prefix: q.Prefix(), kind: q.Text("kind"), holder: strings.ToLower(q.Text("holder")),
		waiting: q.Flag("waiting")}
	if f.kind != "" && !slices.Contains(recipe.Kinds, recipe.Kind(f.kind)) {
		names := make([]string, len(recipe.Kinds))
		for i, k := range recipe.Kinds {
			names[i] = string(k)
		}
		q.Refuse("kind=%s: want one of %s", f.kind, strings.Join(names, ", "))
	}
	if age := q.Age("older"); age > 0 {
		f.olderThan = v.o.Now().Add(-age).UnixMilli()
	}
	return f
}

// below() reports whether a path is at or below a prefix.
func below(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return prefix == "" || strings.HasPrefix(path, prefix) && (len(path) == len(prefix) ||
		path[len(prefix)] == '/')
}

func (f *filter) match(q *recipe.Queue) bool {
	switch {
	case !below(q.Path, f.prefix), f.kind != "" && string(q.Kind) != f.kind, f.waiting && len(q.Waiters) == 0:
		return false
	case f.olderThan != 0:
		wait, hold := q.OldestWait(), q.OldestHold()
		if (wait == 0 || wait > f.olderThan) && (hold == 0 || hold > f.olderThan) {
			return false
		}
	}
	return f.holder == "" || slices.ContainsFunc(q.Holders, f.held)
}

// held() reports whether the filter's text names this contender: it is its session, host or task, another
// field of its record, or a part of its node's data.
func (f *filter) held(c recipe.Entry) bool {
	if id, ok := ask.ParseSession(f.holder); ok && id == int64(c.Session) {
		return true
	}
	if o, ok := c.Record(); ok {
		return slices.ContainsFunc([]string{o.Host, o.Task, o.Cmd, o.User, o.Reason}, func(s string) bool {
			return strings.Contains(strings.ToLower(s), f.holder)
		})
	}
	return strings.Contains(strings.ToLower(c.Text(someData)), f.holder)
}

var lockOrders = map[string]func(a, b *recipe.Queue) int{
	"path":    nil, // need not be sorted: the scan returns locks in the order of paths
	"waiters": func(a, b *recipe.Queue) int { return cmp.Compare(waiting(b), waiting(a)) },
	"wait":    func(a, b *recipe.Queue) int { return compareSince(a.OldestWait(), b.OldestWait()) },
	"hold":    func(a, b *recipe.Queue) int { return compareSince(a.OldestHold(), b.OldestHold()) },
}

// compareSince puts the oldest time first. A time of 0 means none, and comes last.
func compareSince(a, b int64) int {
	if (a == 0) != (b == 0) {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// listLocks answers /locks.
func (v *View) listLocks(ctx context.Context, q *ask.Query) (any, error) {
	f := v.filterOf(q)
	by := q.Text("sort")
	order, known := lockOrders[cmp.Or(by, "path")]
	if !known {
		q.Refuse("sort=%s: want path, waiters, wait or hold", by)
	}
	offset, limit := q.Part()
	if err := q.Wrong(); err != nil {
		return nil, err
	}
	s, err := v.look.Locks(ctx)
	if err != nil {
		return nil, err
	}
	var found []*recipe.Queue
	all, _, hidden := s.Seen(q.All)
	for i := range all {
		if f.match(&all[i]) {
			found = append(found, &all[i])
		}
	}
	if order != nil {
		slices.SortStableFunc(found, order)
	}
	list := lockList{V: ask.Version, Ephemerals: s.Total, Hidden: hidden, Locks: []lockRow{},
		Truncated: port.NoNames(hidden, "locks are")}
	if s.Truncated {
		list.Truncated = "too many: " + strconv.Itoa(s.Total) +
			" ephemeral nodes; some locks are not shown or not whole"
	}
	list.Page, found = ask.Cut(found, offset, limit)
	ids := map[int64]bool{}
	for _, l := range found {
		for i := range l.Holders[:min(len(l.Holders), someHolders)] {
			ids[int64(l.Holders[i].Session)] = true
		}
	}
	who := v.look.Sessions(ids)
	for _, l := range found {
		list.Locks = append(list.Locks, row(l, who))
	}
	return list, nil
}

// lockAnswer is one lock.
type lockAnswer struct {
	V int `json:"v"`
	lockRow
	Waiters      []contenderRow `json:"waiters"`
	Participants []contenderRow `json:"participants"`
	Others       []string       `json:"others,omitempty"` // some of the children that are not contenders
	OtherCount   int            `json:"otherCount,omitempty"`
	Truncated    string         `json:"truncated,omitempty"`
}

// oneLock answers /locks/PATH.
func (v *View) oneLock(ctx context.Context, q *ask.Query) (any, error) {
	if err := q.Wrong(); err != nil {
		return nil, err
	}
	lock, at, err := v.look.At(ctx, q.Path())
	if err == nil && at.Unlisted && !q.All {
		err = v.desk.NoName(lock.Total, "contenders are")
	}
	if err != nil {
		return nil, err
	}
	ids := map[int64]bool{}
	lists := [][]recipe.Entry{lock.Holders, lock.Waiters, lock.Participants}
	shown := 0
	for n, l := range lists {
		if cut := max(0, min(len(l), locks.ShownPerLock-shown)); cut < len(l) {
			lists[n] = l[:cut]
		}
		shown += len(lists[n])
		for i := range lists[n] {
			ids[int64(l[i].Session)] = true
		}
	}
	who := v.look.Sessions(ids)
	a := lockAnswer{V: ask.Version, lockRow: row(&lock, who), OtherCount: at.OtherCount,
		Waiters: []contenderRow{}, Participants: []contenderRow{}}
	a.Holders = []contenderRow{}
	for n, into := range []*[]contenderRow{&a.Holders, &a.Waiters, &a.Participants} {
		for i := range lists[n] {
			position := 0
			if n == 1 {
				position = i + 1
			}
			*into = append(*into, contenderOf(&lock, &lists[n][i], position, who))
		}
	}
	for _, o := range at.Others {
		a.Others = append(a.Others, ask.Clip(o))
	}
	if shown < lock.Total {
		a.Truncated = "too many: " + ask.Thousands(lock.Total) + " contenders, the first " +
			ask.Thousands(shown) + " shown"
	}
	return a, nil
}
