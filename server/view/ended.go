package view

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/locks"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/view/answer"
)

// Ended tells of ended sessions; observe.Clients is one.
type Ended interface {
	EndedSince(zxid int64) []observe.EndedSession
	EndedNews() <-chan struct{}
	Downs() []observe.Down
	Refused(addr string) (observe.Refusal, bool)
}

// endings keeps the fates of the locks that ended sessions had.
type endings struct {
	mu    sync.Mutex
	fates map[int64][]answer.Fate // by session
	order []int64                 // sessions, the oldest first
}

const keptFates = 10_000

// Programs that connect for every operation close thousands of sessions a second, and a look
// costs as much as all that such a session has asked for. So watchEnded rests after each round,
// and of the sessions that clients have closed until then it looks only at the newest.
const (
	endedRest   = 50 * time.Millisecond
	closedLooks = 16
)

// watchEnded finds out, soon after a session's end, what became of its locks.
func (v *View) watchEnded(ctx context.Context) {
	for since := int64(0); ; { // the zxid of the newest looked at
		select {
		case <-ctx.Done():
			return
		case <-v.source.EndedNews():
		}
		list := v.source.EndedSince(since)
		if len(list) > 0 {
			since = list[0].Zxid
		}
		list = worthALook(list)
		for i := len(list) - 1; i >= 0; i-- {
			if ctx.Err() != nil {
				return
			}
			v.lookAfter(ctx, &list[i])
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(endedRest):
		}
	}
}

// worthALook leaves out closed sessions beyond the newest.
func worthALook(list []observe.EndedSession) []observe.EndedSession {
	closed := 0
	return slices.DeleteFunc(list, func(e observe.EndedSession) bool {
		if e.Cause == state.EndClosed {
			closed++
		}
		return e.Cause == state.EndClosed && closed > closedLooks
	})
}

// lookAfter finds out which locks a session held or waited for.
func (v *View) lookAfter(ctx context.Context, e *observe.EndedSession) {
	var fates []answer.Fate
	for _, path := range e.Paths {
		if f, ok := v.fateOf(ctx, e.Session, path); ok {
			fates = append(fates, f)
		}
	}
	// The writer of a lock with a policy keeps its place in the queue while it holds.
	fates = slices.DeleteFunc(fates, func(f answer.Fate) bool {
		return !f.Held && slices.ContainsFunc(fates, func(o answer.Fate) bool { return o.Held && o.Path == f.Path })
	})
	v.logExpired(e, fates)
	v.ended.remember(e.Session, fates)
}

// logPaths is how many paths of locks one line names.
const logPaths = 5

// logExpired writes the one log line of a session that fell silent: on the server that decided
// its end, which is the leader.
func (v *View) logExpired(e *observe.EndedSession, fates []answer.Fate) {
	if e.Cause != state.EndExpired || e.Time.Before(v.began) { // from the log that the start has read
		return
	}
	if mode := v.source.Status(0).Mode; mode != admin.Leader && mode != admin.Standalone {
		return
	}
	args := []any{"session", admin.Hex(e.Session), "zxid", admin.Hex(e.Zxid), "nodes", e.PathCount, "addr",
		e.Addr, "on", e.Server, "timeout", e.Timeout}
	if e.Silent > 0 { // its client was connected here
		args = append(args, "silent", e.Silent.Round(time.Millisecond))
	}
	if e.Lost != "" {
		args = append(args, "connection", e.Lost, "before", e.LostFor.Round(time.Millisecond))
	}
	var held, waited, makers []string
	for i := range fates {
		if m := fates[i].Maker; m != "unknown" && !slices.Contains(makers, m) {
			makers = append(makers, m)
		}
		to := &waited
		if fates[i].Held {
			to = &held
		}
		if len(*to) < logPaths {
			*to = append(*to, fates[i].Path)
		}
	}
	if len(makers) > 0 {
		args = append(args, "library", strings.Join(makers, ", "))
	}
	if len(held) > 0 {
		args = append(args, "held", held)
	}
	if len(waited) > 0 {
		args = append(args, "waited", waited)
	}
	v.o.Log.Info("session expired: nothing was heard of its client", args...)
}

// remember keeps the fates of a session's locks, and forgets the oldest.
func (d *endings) remember(session int64, fates []answer.Fate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(fates) == 0 {
		return
	}
	if d.fates == nil {
		d.fates = map[int64][]answer.Fate{}
	}
	d.fates[session] = fates
	d.order = append(d.order, session)
	if len(d.order) > keptFates {
		delete(d.fates, d.order[0])
		d.order = d.order[1:]
	}
}

// fateOf decides what the node at path was in its lock.
func (v *View) fateOf(ctx context.Context, session int64, path string) (answer.Fate, bool) {
	at := strings.LastIndexByte(path, '/')
	if at < 0 || !v.source.View(func(*state.State) {}) {
		return answer.Fate{}, false
	}
	dir, node := path[:max(at, 1)], path[at+1:]
	for part, name := range map[string]string{"/locks": "locks/" + node, "/leases": "leases/" + node,
		recipe.KazooQueue: path} { // of a semaphore, or a lock of that name
		if d, ok := strings.CutSuffix(dir, part); ok && d != "" {
			if f, ok := v.fateAt(ctx, session, path, d, name); ok {
				return f, true
			}
		}
	}
	return v.fateAt(ctx, session, path, dir, node)
}

// fateAt is fateOf for a node, named as the lock in dir would name it.
func (v *View) fateAt(ctx context.Context, session int64, path, dir, node string) (answer.Fate, bool) {
	look := locks.NewAt(dir)
	look.Add(path, session)
	if v.all(ctx, look) != nil {
		return answer.Fate{}, false
	}
	q, _ := look.Lock(v.source)
	c := q.Find(node)
	if c == nil || int64(c.Session) != session || c.Mode == recipe.Participant {
		return answer.Fate{}, false
	}
	f := answer.Fate{Path: clip(q.Path), Node: clip(node), Kind: q.Kind, Maker: c.Maker.String(),
		Held: q.Holds(node)}
	if !f.Held {
		return f, true
	}
	next := freed(&q, node)
	for _, w := range next[:min(len(next), someHolders)] {
		f.Next = append(f.Next, answer.Successor{Session: w.Session.String(), Node: clip(w.Node)})
	}
	return f, true
}

// freed returns the waiters that get the lock when the node of a holder goes: one, or several that may
// hold it together. It is not known which of those gets it that only watch the node.
func freed(q *recipe.Queue, node string) (list []*recipe.Entry) {
	for i := range q.Waiters {
		w := &q.Waiters[i]
		if len(w.BlockedBy) == 1 && w.BlockedBy[0] == node || w.Any && slices.Contains(w.BlockedBy, node) {
			list = append(list, w)
		}
	}
	alone := func(w *recipe.Entry) bool { return w.Mode == recipe.Exclusive && !w.Watch }
	first := slices.IndexFunc(list, alone)
	shared := slices.DeleteFunc(slices.Clone(list), alone)
	switch {
	case first < 0, q.Policy == recipe.PolicyReader.String() && len(shared) > 0:
		return shared
	case first == 0, q.Policy == recipe.PolicyWriter.String():
		return list[first : first+1]
	}
	return list[:first]
}

type endedList struct {
	V    int    `json:"v"`
	Note string `json:"note"`
	page
	Sessions []answer.Ended `json:"sessions"`
}

var causes = map[state.EndCause]string{state.EndClosed: "closed", state.EndExpired: "expired",
	state.EndOperator: "operator"}

// listEnded answers /sessions/ended.
func (v *View) listEnded(_ context.Context, q *query) (any, error) {
	cause := q.text("cause")
	if !slices.Contains([]string{"", "closed", "expired", "operator"}, cause) {
		q.refuse("cause=%s: want closed, expired or operator", cause)
	}
	offset, limit := q.part()
	if err := q.wrong(); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(v.source.EndedSince(-1), func(e observe.EndedSession) bool {
		return cause != "" && causes[e.Cause] != cause
	})
	list := endedList{V: Version, Sessions: []answer.Ended{},
		Note: "the last 10,000 that this server has learnt of since it started; in memory only; of many that " +
			"are closed at once some lack their locks"}
	list.page, all = cut(all, offset, limit)
	v.ended.mu.Lock()
	defer v.ended.mu.Unlock()
	for i := range all {
		e := &all[i]
		row := answer.Ended{
			ID: admin.Hex(e.Session), Time: e.Time.UnixMilli(), Reason: v.reason(e), Cause: causes[e.Cause],
			Addr: e.Addr, Server: e.Server,
			TimeoutMS: e.Timeout.Milliseconds(), Zxid: admin.Hex(e.Zxid), Nodes: e.PathCount,
			Paths: []string{}, Locks: v.ended.fates[e.Session],
		}
		if row.Locks == nil {
			row.Locks = []answer.Fate{}
		}
		for _, p := range e.Paths {
			row.Paths = append(row.Paths, clip(p))
		}
		list.Sessions = append(list.Sessions, row)
	}
	return list, nil
}

// reason says why a session ended, and what else happened before.
func (v *View) reason(e *observe.EndedSession) string {
	text := e.Reason()
	if e.Cause != state.EndExpired {
		return text
	}
	for _, d := range v.source.Downs() {
		if before := e.Time.Sub(d.Until); before >= 0 && before <= max(e.Timeout, time.Minute) {
			text += "; this server did not serve for " + d.Until.Sub(d.Since).Round(time.Millisecond).String() +
				" (election or stall), until " +
				before.Round(100*time.Millisecond).String() + " before"
		}
	}
	if r, ok := v.source.Refused(e.Addr); ok && e.Time.Sub(r.Time) >= 0 && e.Time.Sub(r.Time) <= max(e.Timeout,
		time.Minute) {
		text += "; a connection from its address was refused " +
			e.Time.Sub(r.Time).Round(100*time.Millisecond).String() + " before: " + r.Why
	}
	return text
}

func (v *View) endedOf(session int64) *observe.EndedSession {
	list := v.source.EndedSince(-1)
	for i := range list {
		if list[i].Session == session {
			return &list[i]
		}
	}
	return nil
}
