package take

import (
	"fmt"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// deciding() returns a contender that has seen the given nodes of a lock with a policy.
func deciding(mode fence.Mode, try bool, nodes ...recipe.PolicyNode) *policyWaiter {
	c, e := withoutServer()
	ask := Ask{Path: "/a", Mode: mode, Try: try, Terms: &Terms{}}
	w := newPolicyWaiter(&attempt{c: c, Ask: ask, dir: "/a"}, e, newNodeID(7))
	w.dir.nodes = nodes
	return w
}

// decides() checks what a contender does next. If `want` is 0, the contender must be refused.
func decides(t *testing.T, w *policyWaiter, want turns.Do) {
	t.Helper()
	step, err := w.decide()
	if want == 0 {
		expect.Is(t, err, hold.ErrNotAcquired, "try %v", w.a.Try)
		return
	}
	expect.OK(t, err, "try %v", w.a.Try)
	expect.Equal(t, step.Do, want, "what it does, try %v", w.a.Try)
}

// A contender that cannot have the lock at once takes a place in the queue, or is refused if it may not wait.
func TestDecisionsOfATry(t *testing.T) {
	t.Parallel()
	other, another := newNodeID(8), newNodeID(9)
	reader := recipe.PolicyNode{ID: other, Kind: recipe.HoldRead}
	writer := recipe.PolicyNode{ID: other, Kind: recipe.HoldWrite}
	waits := recipe.PolicyNode{ID: another, Kind: recipe.QueueWrite, Seq: 1}
	for name, x := range map[string]struct {
		mode      fence.Mode
		nodes     []recipe.PolicyNode
		wait, try turns.Do // what a contender does if it may wait, and if it may not; 0: it is refused
	}{
		"reader, free":           {fence.Shared, nil, turns.Grant, turns.Grant},
		"reader, read":           {fence.Shared, []recipe.PolicyNode{reader}, turns.Grant, turns.Grant},
		"reader, written":        {fence.Shared, []recipe.PolicyNode{writer}, turns.Enqueue, 0},
		"reader, writer waits":   {fence.Shared, []recipe.PolicyNode{reader, waits}, turns.Enqueue, 0},
		"writer, free":           {fence.Exclusive, nil, turns.Enqueue, turns.Enqueue},
		"writer, read":           {fence.Exclusive, []recipe.PolicyNode{reader}, turns.Enqueue, 0},
		"writer, written":        {fence.Exclusive, []recipe.PolicyNode{writer}, turns.Enqueue, 0},
		"writer, another writer": {fence.Exclusive, []recipe.PolicyNode{waits}, turns.Enqueue, 0},
	} {
		t.Run(name, func(t *testing.T) {
			decides(t, deciding(x.mode, false, x.nodes...), x.wait)
			decides(t, deciding(x.mode, true, x.nodes...), x.try)
		})
	}
}

// A writer with a place in the queue closes the door, holds the lock, or waits. If it may not wait, it is
// refused instead.
func TestDecisionsOfAQueuedWriter(t *testing.T) {
	t.Parallel()
	other := newNodeID(8)
	for name, x := range map[string]struct {
		others    []recipe.PolicyNode
		closed    bool
		gone      bool
		wait, try turns.Do
	}{
		"first":       {nil, false, false, turns.CloseDoor, turns.CloseDoor},
		"door closed": {nil, true, false, turns.Grant, turns.Grant},
		"behind a writer": {[]recipe.PolicyNode{{ID: other, Kind: recipe.QueueWrite, Seq: 1}}, false, false,
			turns.Wait, 0},
		"readers hold": {[]recipe.PolicyNode{{ID: other, Kind: recipe.HoldRead}}, true, false, turns.Wait, 0},
		"removed":      {nil, false, true, turns.Removed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for try, want := range map[bool]turns.Do{false: x.wait, true: x.try} {
				w := deciding(fence.Exclusive, try, x.others...)
				w.queued, w.born = true, time.Now()
				if !x.gone {
					w.dir.nodes = append(w.dir.nodes,
						recipe.PolicyNode{ID: w.id, Kind: recipe.QueueWrite, Seq: 5})
				}
				if x.closed {
					w.dir.rec = w.dir.rec.WithDoor(w.mark())
				}
				decides(t, w, want)
			}
		})
	}
}

// A writer that has been overtaken for too long closes the door to further readers.
func TestDecisionOfAnOverdueWriter(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		since time.Time
		want  turns.Do
	}{"just come": {time.Now(), turns.Wait}, "overdue": {time.Now().Add(-time.Hour), turns.CloseDoor}} {
		t.Run(name, func(t *testing.T) {
			w := deciding(fence.Exclusive, false, recipe.PolicyNode{ID: newNodeID(8), Kind: recipe.HoldRead})
			w.a.Terms.Policy = recipe.PolicyReader
			w.dir.rec = recipe.NewPolicyRecord(recipe.PolicyReader, 30*time.Minute)
			w.dir.nodes = append(w.dir.nodes, recipe.PolicyNode{ID: w.id, Kind: recipe.QueueWrite, Seq: 5})
			w.queued, w.born = true, x.since
			decides(t, w, x.want)
			left := w.untilOverdue()
			expect.Equal(t, left > 0, x.want == turns.Wait, "that there is time left, of %v", left)
			expect.That(t, left <= 30*time.Minute, "%v left, want at most 30 minutes", left)
		})
	}
}

// If the lock has a delay, the mark of a dead writer delays the next grant. A contender that may not wait is
// refused instead.
func TestDelayAfterADeadWriter(t *testing.T) {
	t.Parallel()
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
			w.a.Terms.LockDelay = x.delay
			owner := other
			if x.own {
				owner = w.id
			}
			door := recipe.Door{Owner: owner, Kind: x.door}
			w.dir.rec = w.dir.rec.WithDoor(door)
			if x.lives {
				w.dir.nodes = []recipe.PolicyNode{{ID: other, Kind: recipe.HoldWrite}}
			}
			w.dir.rec.Dead, w.queued = true, true
			w.dir.stamp, w.Stat.Ctime, w.born = 1_000, 1_000, time.Now()
			if name == "over" {
				w.Stat.Ctime = 61_000 // the contender's node was made a minute after the mark, so the delay is over
			}
			if x.wait && !try {
				continue // this contender waits for events of a server, which the test does not have
			}
			wait, err := w.lockDelay(t.Context())
			if x.wait {
				expect.That(t, wait, "%s", name)
				expect.Is(t, err, hold.ErrNotAcquired, "%s", name)
			} else {
				expect.OK(t, err, "%s, try %v", name, try)
				expect.That(t, !wait, "%s, try %v: it waits", name, try)
			}
		}
	}
}

// Version -1 means "any" on the wire. A record must never have it.
func TestE47VersionMinusOneIsSteppedOver(t *testing.T) {
	t.Parallel()
	d := policyDir{path: "/d"}
	for _, tc := range []struct {
		ver  int32
		want []int32
	}{{0, []int32{0}}, {41, []int32{41}}, {1<<31 - 1, []int32{1<<31 - 1}}, {-1 << 31, []int32{-1 << 31}},
		{-3, []int32{-3}}, {-2, []int32{-2, -1}}} {
		t.Run(fmt.Sprint(tc.ver), func(t *testing.T) {
			d.ver = tc.ver
			var got []int32
			for _, op := range d.setOps(recipe.Record{}) {
				got = append(got, op.(zk.SetData).Version)
			}
			expect.List(t, got, tc.want, "versions that are written")
		})
	}
	// Two writes in one transaction raise the version by two. The next write uses the version of the second
	// one.
	_, e := dial(t)
	p := server.Dir(t)
	must.OK(t, e.Ensure(testCtx(t), p, false, nil))
	res, err := e.Conn().Multi(testCtx(t),
		zk.SetData{Path: p, Data: []byte("x"), Version: 0},
		zk.SetData{Path: p, Data: []byte("x"), Version: -1})
	must.OK(t, err)
	must.Equal(t, res[1].Stat.Version, 2)
}
