package locks_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/locks"
)

// crowd makes so many locks of so many contenders each, in directories below
// root.
func (f *forest) crowd(root string, nlocks, each int) {
	f.tb.Helper()
	f.dirs(root)
	for l := range nlocks {
		dir := fmt.Sprintf("%s/%06d", root, l)
		f.node(1, dir, "", 0, jute.WorldAnyone)
		for i := range each {
			f.node(int64(1+(l+i)%500), dir+"/lock-", `{"v":1,"host":"web","pid":7,"reason":"nightly"}`, 3,
				jute.WorldAnyone)
		}
	}
}

// TestAHoldOfTheLockIsShort: how much is read under one hold of the state lock
// does not depend on how much there is, and no memory is asked for, which could
// mean to wait for the garbage collector. That is what makes a hold short; how
// short, docs/lock-view.md tells.
func TestAHoldOfTheLockIsShort(t *testing.T) {
	long := "/" + strings.Repeat("d", 30_000) + "/" + strings.Repeat("e", 30_000)
	deep := strings.Repeat("/d", 1000)
	for _, size := range []struct {
		root        string
		locks, each int
	}{{"/l", 1, 100_000}, {"/l", 33_000, 3}, {long, 300, 1}, {deep, 300, 2}} {
		if testing.Short() {
			size.locks, size.each = (size.locks+9)/10, (size.each+9)/10
		}
		f := newForest(t)
		f.crowd(size.root, size.locks, size.each)
		s := locks.NewScan()
		path := len(size.root) + len("/000000")
		holds, got := 0, uint64(0)
		for more := true; more; holds++ {
			nodes, bytes := s.Read()
			got += allocations(func() { more = s.Step(f.t) })
			s.Rest()
			metNodes, metBytes := s.Read()
			if n := metNodes - nodes; n > locks.NodesAtOnce {
				t.Fatalf("%d nodes under one hold", n)
			}
			if n := metBytes - bytes; n > locks.PathBytes*locks.NodesAtOnce+path {
				t.Fatalf("%d bytes of paths under one hold", n)
			}
		}
		if n, _ := s.Read(); n != size.locks*size.each {
			t.Errorf("%d nodes met of %d", n, size.locks*size.each)
		}
		t.Logf("%d locks of %d: %d holds", size.locks, size.each, holds)

		at := locks.NewAt(size.root + "/000000")
		for more := true; more; {
			before := at.Read()
			got += allocations(func() { more = at.Step(f.t) })
			at.Rest()
			if n := at.Read() - before; n > locks.ChildrenAtOnce {
				t.Fatalf("%d children under one hold", n)
			}
		}
		if got > 20 { // the runtime asks for some, now and then
			t.Errorf("memory was asked for %d times while the lock was held", got)
		}
		if q, ok := at.Lock(f); !ok || q.Total != size.each {
			t.Errorf("%d contenders of %d", q.Total, size.each)
		}
	}
}

// allocations counts how often f asks for memory.
func allocations(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}
