package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// deciding returns a contender of a lock with a policy that has seen some nodes.
func deciding(mode fence.Mode, try bool, nodes ...recipe.PolicyNode) *policyWaiter {
	c, e, _ := withoutServer()
	w := newPolicyWaiter(&attempt{c: c, path: "/a", dir: "/a", mode: mode, try: try, cfg: &options{}}, e,
		newNodeID(7))
	w.dir.nodes = nodes
	return w
}

// What a contender does next, and what a try refuses.
func TestDecisionsOfATry(t *testing.T) {
	other, another := newNodeID(8), newNodeID(9)
	reader := recipe.PolicyNode{ID: other, Kind: recipe.HoldRead}
	writer := recipe.PolicyNode{ID: other, Kind: recipe.HoldWrite}
	waits := recipe.PolicyNode{ID: another, Kind: recipe.QueueWrite, Seq: 1}
	for name, x := range map[string]struct {
		mode      fence.Mode
		nodes     []recipe.PolicyNode
		wait, try recipe.Do // 0: refused
	}{
		"reader, free":           {fence.Shared, nil, recipe.Grant, recipe.Grant},
		"reader, read":           {fence.Shared, []recipe.PolicyNode{reader}, recipe.Grant, recipe.Grant},
		"reader, written":        {fence.Shared, []recipe.PolicyNode{writer}, recipe.Enqueue, 0},
		"reader, writer waits":   {fence.Shared, []recipe.PolicyNode{reader, waits}, recipe.Enqueue, 0},
		"writer, free":           {fence.Exclusive, nil, recipe.Enqueue, recipe.Enqueue},
		"writer, read":           {fence.Exclusive, []recipe.PolicyNode{reader}, recipe.Enqueue, 0},
		"writer, written":        {fence.Exclusive, []recipe.PolicyNode{writer}, recipe.Enqueue, 0},
		"writer, another writer": {fence.Exclusive, []recipe.PolicyNode{waits}, recipe.Enqueue, 0},
	} {
		step, err := deciding(x.mode, false, x.nodes...).decide()
		expect.That(t, err == nil && step.Do == x.wait, "%s: %+v, %v", name, step, err)
		step, err = deciding(x.mode, true, x.nodes...).decide()
		if x.try == 0 {
			expect.Is(t, err, ErrNotAcquired, "%s: a try", name)
		} else {
			expect.That(t, err == nil && step.Do == x.try, "%s: a try: %+v, %v", name, step, err)
		}
	}
}

// A writer with a place closes the door, holds, or waits; a try does not wait.
func TestDecisionsOfAQueuedWriter(t *testing.T) {
	other := newNodeID(8)
	for name, x := range map[string]struct {
		others    []recipe.PolicyNode
		closed    bool
		gone      bool
		wait, try recipe.Do
	}{
		"first":       {nil, false, false, recipe.CloseDoor, recipe.CloseDoor},
		"door closed": {nil, true, false, recipe.Grant, recipe.Grant},
		"behind a writer": {[]recipe.PolicyNode{{ID: other, Kind: recipe.QueueWrite, Seq: 1}}, false, false,
			recipe.Wait, 0},
		"readers hold": {[]recipe.PolicyNode{{ID: other, Kind: recipe.HoldRead}}, true, false, recipe.Wait, 0},
		"removed":      {nil, false, true, recipe.Removed, 0},
	} {
		for _, try := range []bool{false, true} {
			w := deciding(fence.Exclusive, try, x.others...)
			w.queued, w.queuedAt = true, time.Now()
			if !x.gone {
				w.dir.nodes = append(w.dir.nodes, recipe.PolicyNode{ID: w.id, Kind: recipe.QueueWrite, Seq: 5})
			}
			if x.closed {
				w.dir.rec = w.dir.rec.WithDoor(w.mark())
			}
			step, err := w.decide()
			want := x.wait
			if try {
				want = x.try
			}
			if want == 0 {
				expect.Is(t, err, ErrNotAcquired, "%s, try %v", name, try)
			} else {
				expect.That(t, err == nil && step.Do == want, "%s, try %v: %+v, %v", name, try, step, err)
			}
		}
	}
}

// A writer that readers have overtaken for long enough lets none pass any more.
func TestDecisionOfAnOverdueWriter(t *testing.T) {
	for name, x := range map[string]struct {
		since time.Time
		want  recipe.Do
	}{"just come": {time.Now(), recipe.Wait}, "overdue": {time.Now().Add(-time.Hour), recipe.CloseDoor}} {
		w := deciding(fence.Exclusive, false, recipe.PolicyNode{ID: newNodeID(8), Kind: recipe.HoldRead})
		w.a.cfg.policy = PolicyReader
		w.dir.rec = recipe.NewPolicyRecord(PolicyReader, 30*time.Minute)
		w.dir.nodes = append(w.dir.nodes, recipe.PolicyNode{ID: w.id, Kind: recipe.QueueWrite, Seq: 5})
		w.queued, w.queuedAt = true, x.since
		step, err := w.decide()
		expect.That(t, err == nil && step.Do == x.want, "%s: %+v, %v", name, step, err)
		left := w.untilOverdue()
		expect.That(t, (left > 0) == (x.want == recipe.Wait) && left <= 30*time.Minute, "%s: %v left", name, left)
	}
}

// The mark of a dead writer delays a grant, if the lock has a delay; a try fails on it.
func TestDelayAfterADeadWriter(t *testing.T) {
	other := newNodeID(8)
	for name, x := range map[string]struct {
		delay time.Duration
		door  recipe.DoorKind
		own   bool
		lives bool
		wait  bool
	}{
		"dead":     {time.Hour, recipe.DoorWrite, false, false, true},
		"no delay": {0, recipe.DoorWrite, false, false, false},
		"open":     {time.Hour, recipe.DoorOpen, false, false, false},
		"own":      {time.Hour, recipe.DoorWrite, true, false, false},
		"lives":    {time.Hour, recipe.DoorWrite, false, true, false},
		"over":     {1, recipe.DoorWrite, false, false, false},
	} {
		for _, try := range []bool{false, true} {
			w := deciding(fence.Exclusive, try)
			w.a.cfg.lockDelay = x.delay
			owner := other
			if x.own {
				owner = w.id
			}
			door := recipe.Door{Owner: owner, Kind: x.door}
			w.dir.rec = w.dir.rec.WithDoor(door)
			if x.lives {
				w.dir.nodes = []recipe.PolicyNode{{ID: other, Kind: recipe.HoldWrite}}
			}
			if name == "over" { // the contender has seen the mark for longer than the delay
				w.delay = policyDelay{door, time.Now().Add(-time.Minute)}
			}
			if x.wait && !try {
				continue // it waits for the server's events
			}
			wait, err := w.lockDelay(t.Context())
			if x.wait {
				expect.That(t, wait, "%s", name)
				expect.Is(t, err, ErrNotAcquired, "%s", name)
			} else {
				expect.That(t, !wait && err == nil, "%s, try %v: %v, %v", name, try, wait, err)
			}
		}
	}
}

// The owner record stands in each node of a lock, and behind a candidate's value where it is of use.
func TestContentOfNodes(t *testing.T) {
	c, _, _ := withoutServer()
	c.owner = recipe.Owner{PID: 5, Cmd: "job"}
	a := &attempt{c: c, task: "task", cfg: &options{reason: "why", revocable: true}}
	o, ok := recipe.ParseOwner(a.data())
	must.That(t, ok && o.PID == 5 && o.Cmd == "job" && o.Task == "task" && o.Reason == "why" && o.Revocable &&
		o.MaxHold == "" && o.Grace == "" && !o.Breakable, "%+v", o)
	a.cfg.limit = Limit{Hold: time.Minute, Grace: -1, Break: true}
	o, _ = recipe.ParseOwner(a.data())
	must.That(t, o.MaxHold == "1m0s" && o.Grace == "0s" && o.Breakable && !o.Held, "%+v", o)
	o, _ = recipe.ParseOwner(policyHoldData(a))
	must.That(t, o.Held && o.PID == 5, "%+v", o)
	for _, x := range []struct {
		tasked bool
		layout Layout
		owner  bool
	}{{false, LayoutCurator, false}, {true, LayoutCurator, true}, {true, LayoutKazoo, false}, {false,
		LayoutKazoo, false}} {
		a.value, a.tasked, a.cfg.layout = []byte("me"), x.tasked, x.layout
		value, _ := recipe.ValueOf(a.data())
		expect.That(t, string(value) == "me" && (len(a.data()) > 2) == x.owner, "%+v: %q", x, a.data())
	}
}

// A context holds the locks of its leases, and of those around them, but no permits.
func TestLocksThatAContextHolds(t *testing.T) {
	c, e, _ := withoutServer()
	c.named.m = map[taskPath][]*Lease{}
	other, _, _ := withoutServer()
	lease := func(ctx context.Context, path string, mode fence.Mode) *Lease {
		h := newHold(&attempt{c: c, path: path, cfg: &options{}, leave: func() {}}, e, mode, 5,
			heldNode{path: path + "/n"})
		must.That(t, e.add(h), "not added")
		return must.Get(h.addLease(ctx, mode))(t)
	}
	outer := lease(t.Context(), "/a", fence.Exclusive)
	inner := lease(outer.Context(), "/b", fence.Shared)
	permit := lease(inner.Context(), "/c", fence.Permit)
	ctx := permit.Context()
	must.That(t, heldBy(ctx, c, "/a") == outer.h && heldBy(ctx, c, "/b") == inner.h, "not held")
	must.That(t, heldBy(ctx, c, "/c") == nil && heldBy(ctx, c, "/d") == nil && heldBy(ctx, other, "/a") == nil,
		"held")
	must.That(t, heldBy(outer.Context(), c, "/b") == nil && heldBy(t.Context(), c, "/a") == nil, "held")
	for _, x := range []struct {
		path      string
		mode      fence.Mode
		reentrant bool
		want      error
	}{
		{"/a", fence.Exclusive, true, nil}, {"/a", fence.Shared, true, nil}, {"/a", fence.Exclusive, false,
			ErrSelfDeadlock},
		{"/b", fence.Shared, true, nil}, {"/b", fence.Exclusive, true, ErrSelfDeadlock},
	} {
		l, err := nested(ctx, c, &attempt{c: c, path: x.path, mode: x.mode, cfg: &options{reentrant: x.reentrant}})
		expect.That(t, errors.Is(err, x.want) && (l != nil) == (x.want == nil), "%+v: %v", x, err)
	}
	for _, a := range []*attempt{
		{c: c, path: "/c", mode: fence.Exclusive, cfg: &options{}}, {c: c, path: "/a", mode: fence.Permit,
			cfg: &options{}},
		{c: c, path: "/a", mode: fence.Exclusive, alone: true, cfg: &options{}},
	} {
		l, err := nested(ctx, c, a)
		expect.That(t, l == nil && err == nil, "%+v: %v, %v", a, l, err)
	}
	inner.h.lose(Removed, heldNode{path: "/b/n"})
	must.That(t, heldBy(ctx, c, "/b") == nil && heldBy(ctx, c, "/a") == outer.h, "a lost lock is held")
	outer.h.lose(Deadline)
	must.That(t, heldBy(ctx, c, "/a") == nil, "a lost lock is held")
}

// Contenders of which none leaves another node are waited for in the order of the queue, the last one first.
func TestFewContendersInOrder(t *testing.T) {
	q := queue{recipe.Rule{Layout: LayoutCurator, Kind: recipe.RoleWrite, RW: true}}
	contender := func(role recipe.Role, seq string) recipe.Contender {
		c, _, ok := recipe.ParseName(recipe.NodeName(LayoutCurator, role, newNodeID(7), "") + seq)
		must.That(t, ok, "no contender")
		return c
	}
	read, next := contender(recipe.RoleRead, "0000000001"), contender(recipe.RoleRead, "0000000002")
	write := contender(recipe.RoleWrite, "0000000003")
	must.List(t, inOrder([]recipe.Contender{next, write, read}), []string{read.Name, next.Name, write.Name})
	must.That(t, q.EndIsFinal(read) && !q.EndIsFinal(write), "which ends are final")
	for _, x := range []struct {
		few   []recipe.Contender
		final bool
	}{
		{nil, false}, {[]recipe.Contender{read}, true}, {[]recipe.Contender{read, next}, true},
		{[]recipe.Contender{write}, false}, {[]recipe.Contender{read, write}, false},
		{[]recipe.Contender{write, read}, false},
	} {
		must.Equal(t, q.endsAreFinal(x.few), x.final, "%v", x.few)
	}
}
