package server

import (
	"fmt"
	"time"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/server/tickets"
)

const remindEvery = 30 * time.Second

// remind looks again and again for long holds of tickets that end soon, while this server leads.
func (i *Instance) remind() {
	t := time.NewTicker(remindEvery)
	defer t.Stop()
	told := map[int64]bool{}
	for {
		select {
		case <-i.ctx.Done():
			return
		case <-t.C:
			told = i.lookForEnds(told)
		}
	}
}

// lookForEnds returns the holds that end soon. It logs those that are not in `told`, the result of the last
// call.
func (i *Instance) lookForEnds(told map[int64]bool) map[int64]bool {
	now := map[int64]bool{}
	for _, e := range i.holdsThatEndSoon() {
		if now[e.ID] = true; !told[e.ID] {
			i.o.Logger.Warn("the hold of a ticket ends soon: its caller must renew it or give it back",
				"path", e.Path, "identity", e.Identity, "at", e.At.UTC().Format(time.RFC3339))
		}
	}
	i.endsSoon.Store(int64(len(now)))
	return now
}

// holdsThatEndSoon lists the long holds that end soon. It reads only the sessions that are tickets.
func (i *Instance) holdsThatEndSoon() (list []tickets.End) {
	if node := i.node.Load(); node != nil {
		node.View(func(st *state.State) { list = tickets.EndsSoon(st, node.TimeLeft, i.o.Now()) })
	}
	return list
}

// reminder adds a notice to a status if holds end soon.
func (i *Instance) reminder(s *report.Status) {
	if n := i.endsSoon.Load(); n > 0 {
		s.Notices = append(s.Notices, fmt.Sprintf("%d long holds of tickets end within %v: the log says "+
			"which, and their callers must renew them or give them back", n, tickets.RemindTime))
	}
}
