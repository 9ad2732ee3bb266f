package view

import (
	"context"
	"slices"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/view/ask"
	"github.com/zlockd/zlockd/server/view/look"
)

// noticesOf describes problems with locks. It names no lock, because every client may read notices.
func noticesOf(t *look.Troubles) (list []string) {
	if t.Twice > 0 {
		list = append(list, count(t.Twice, "lock is", "locks are")+" held twice, by programs that do not see "+
			"each other: let all programs of a path use one library's lock (zlock ls -R --server names them)")
	}
	if t.Over > 0 {
		list = append(list, count(t.Over, "holder has", "holders have")+" held a lock for longer than its "+
			"maximum hold: zlock ls -R and zlock show name them; end their programs, or zlock break --expired")
	}
	return list
}

// nowAnswer has the present problems with locks, and the longest waits.
type nowAnswer struct {
	Wrong []wrongRow
	Waits []lockRow // locks, the longest wait first
	Note  string
}

// wrongRow is one problem with a lock.
type wrongRow struct {
	Path, What, Do string
	Holders        []contenderRow
}

func wrongOf(l *recipe.Queue, what, do string) wrongRow {
	return wrongRow{Path: ask.Clip(l.Path), What: what, Do: do, Holders: row(l, nil).Holders}
}

// someWrong bounds the locks that the overview names: for each kind of problem, and for the longest waits.
const someWrong = 5

// now() returns the locks with problems, and those with the longest waits, for the overview.
func (v *View) now(ctx context.Context, q *ask.Query) (any, error) {
	s, err := v.look.Locks(ctx)
	if err != nil {
		return nil, err
	}
	all, _, hidden := s.Seen(q.All)
	a := nowAnswer{Note: port.NoNames(hidden, "locks are")}
	var twice, over int
	waits := make([]*recipe.Queue, 0, len(all))
	ids := map[int64]bool{}
	for i := range all {
		l := &all[i]
		if len(l.Waiters) > 0 {
			waits = append(waits, l)
		}
		if l.HeldTwice {
			if twice++; twice <= someWrong {
				a.Wrong = append(a.Wrong, wrongOf(l, "is held twice ("+l.Layout()+")",
					"End one of the programs, and give both one library's lock"))
			}
		}
		if l.Over() > 0 {
			if over++; over <= someWrong {
				a.Wrong = append(a.Wrong, wrongOf(l, "is held beyond its maximum hold",
					"End the program, or break the hold"))
			}
		}
	}
	slices.SortStableFunc(waits, lockOrders["wait"])
	waits = waits[:min(len(waits), someWrong)]
	for _, l := range waits {
		for i := range l.Holders[:min(len(l.Holders), someHolders)] {
			ids[int64(l.Holders[i].Session)] = true
		}
	}
	who := v.look.Sessions(ids)
	for _, l := range waits {
		a.Waits = append(a.Waits, row(l, who))
	}
	return a, nil
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return ask.Thousands(n) + " " + many
}

// Notices returns the problems with locks that the newest scan has found, if that is at most noticeTime old.
// It never waits for a scan, because a health check must be quick. If the newest one is old, it starts
// another.
func (v *View) Notices() []string {
	t := v.look.Told()
	if t == nil || time.Since(t.At) > look.FreshFor {
		v.lookSoon()
	}
	if t == nil || time.Since(t.At) > noticeTime {
		return nil
	}
	return noticesOf(t)
}

// noticeTime is how long the result of a look is used.
const noticeTime = time.Minute

// lookSoon starts a scan of all locks in the background, unless one is under way.
func (v *View) lookSoon() {
	v.reach.mu.Lock() // as Close does: either Close waits for this goroutine, or none is started
	defer v.reach.mu.Unlock()
	if v.ctx.Err() != nil || !v.looking.CompareAndSwap(false, true) {
		return
	}
	v.wg.Go(func() {
		defer v.looking.Store(false)
		ctx, cancel := context.WithTimeout(v.ctx, ask.CostlyTime)
		defer cancel()
		_, _ = v.look.Locks(ctx) // keeps its result for Notices; if it fails, a later call tries again
	})
}
