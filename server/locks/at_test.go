package locks_test

import (
	"fmt"
	"github.com/zlockd/zlockd/client/recipe"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/locks"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestOtherChildrenAreNamed(t *testing.T) {
	f := newForest(t)
	f.eph(1, "/l/lock-0000000001")
	f.dirs("/l/b", "/l/a")
	a := locks.NewAt("/l")
	for a.Step(f.t) {
		a.Rest()
	}
	slices.Sort(a.Others)
	expect.That(t, a.OtherCount == 2 && slices.Equal(a.Others, []string{"a", "b"}),
		"%d others: %q", a.OtherCount, a.Others)
	for i := range 100 {
		f.dirs(fmt.Sprintf("/l/more%d", i))
	}
	a = locks.NewAt("/l")
	for a.Step(f.t) {
		a.Rest()
	}
	expect.That(t, a.OtherCount == 102 && len(a.Others) == 20,
		"%d others, %d are named", a.OtherCount, len(a.Others))
}

// The state lock is held for a bounded time, over all directories of a lock.
func TestDirectoriesOfALockShareAPiece(t *testing.T) {
	f := newForest(t)
	const each = 700
	f.dirs("/s/leases", "/s/locks")
	for i := range each {
		f.node(int64(1+i), fmt.Sprintf("/s/leases/lease-%010d", i), "", 1, jute.WorldAnyone)
		f.node(int64(1+i), fmt.Sprintf("/s/locks/lock-%010d", i), "", 1, jute.WorldAnyone)
	}
	a := locks.NewAt("/s")
	steps := 1
	for a.Step(f.t) {
		a.Rest()
		steps++
	}
	expect.That(t, steps >= 2, "%d nodes were looked at in one piece", 2*each)
}

// Who waits for any permit of a semaphore and has one waits for itself: it can
// let go.
func TestHolderOfAPermitMayWaitForAnother(t *testing.T) {
	f := newForest(t)
	f.build(`
		2 L/leases/_c_` + u2 + `-lease-0000000001
		1 L/leases/_c_` + u1 + `-lease-0000000002
		1 L/locks/_c_` + u3 + `-lock-0000000003`)
	f.hold("/x", 1, 2)
	must.Equal(t, short(f.at("/app/it")), "semaphore [curator] *2 *1 1<2,1")
	if g := recipe.WaitGraph(f.scan()); len(g.Cycles) != 0 {
		t.Errorf("cycles %+v", g.Cycles)
	}
}
