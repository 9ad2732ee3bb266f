package take

import (
	"time"

	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
)

// waits() reports the attempt's place.
func (a *attempt) waits(ev hold.Event) {
	ev.Kind, ev.Mode, ev.Waited = hold.EventWaiting, a.Mode, time.Since(a.start)
	a.tell(ev)
}

// waitsInQueue reports a place in a queue. The first contender holds the lock, unless the queue is for
// permits. The call costs nothing if no function receives events.
func (a *attempt) waitsInQueue(node string, names *zk.Names, p turns.Place) {
	if a.Tell == nil {
		return
	}
	ev := hold.Event{Node: node, Place: p.Ahead + 1}
	var first recipe.Contender
	for name := range names.All() {
		c, _, ok := recipe.ParseName(name)
		if !ok {
			continue
		}
		if ev.Of++; ev.Of == 1 || recipe.Compare(c, first) < 0 {
			first = c
		}
	}
	if !p.Found {
		ev.Of++ // the call has no place in the list, so count it as well
	}
	if !a.permits && first.Name != "" {
		ev.Holder = recipe.Join(a.dir, first.Name)
	}
	a.waits(ev)
}

// waitsForPermits reports that all permits are taken.
func (a *attempt) waitsForPermits(node, leases string, used []string) {
	if a.Tell != nil && len(used) > 0 {
		a.waits(hold.Event{Node: node, Holder: recipe.Join(leases, used[0])})
	}
}

// waits() reports the place among the contenders of a lock with a policy.
func (w *policyWaiter) waits() {
	if w.a.Tell == nil {
		return
	}
	ev := hold.Event{Node: w.Path}
	holds := map[recipe.ID]bool{}
	for _, n := range w.dir.nodes {
		if n.Kind.Hold() {
			holds[n.ID] = true
			ev.Holder = recipe.Join(w.a.dir, n.Name(true))
		}
	}
	own, queued := recipe.ParsePolicyNode(w.Name)
	ev.Place, ev.Of = len(holds)+1, len(holds)
	for _, n := range w.dir.nodes {
		if n.Kind.Hold() || holds[n.ID] {
			continue
		}
		if ev.Of++; !queued || n.Seq < own.Seq {
			ev.Place++
		}
	}
	if !queued {
		ev.Of++ // the call has no place in the list, so count it as well
	}
	w.a.waits(ev)
}
