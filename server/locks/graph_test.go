package locks_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/waits"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/locks"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func (f *forest) hold(lock string, sessions ...int64) {
	f.tb.Helper()
	for _, s := range sessions {
		f.eph(s, fmt.Sprintf("%s/lock-%010d", lock, f.zxid))
	}
}

func TestDeadlock(t *testing.T) {
	f := newForest(t)
	f.hold("/a", 1, 2)
	f.hold("/b", 2, 3)
	f.hold("/c", 3, 9, 1) // session 1 waits behind session 9, and session 9 waits for session 3
	f.hold("/d", 4, 5, 4) // session 4 waits behind itself and session 5: it has several threads
	f.hold("/e", 6, 6)
	g := waits.Graph(f.scan())
	must.Equal(t, len(g.Cycles), 2, "cycles %+v", g.Cycles)
	in := map[recipe.Session]int{}
	for _, p := range g.Parties {
		in[p.Session] = p.Cycle
	}
	expect.That(t, in[1] != 0, "%v: want in[1] != 0", in)
	expect.Equal(t, in[1], in[2], "in[1]")
	expect.Equal(t, in[1], in[3], "in[1]")
	expect.Equal(t, in[1], in[9], "in[1]")
	expect.That(t, in[4] != 0, "%v: want in[4] != 0", in)
	expect.Equal(t, in[4], in[5], "in[4]")
	expect.Equal(t, in[6], 0, "in[6]")
	expect.Equal(t, len(g.Cycles[in[1]-1].Paths), 3, "paths %v", g.Cycles[in[1]-1].Paths)
	f.remove(fmt.Sprintf("/c/%s", f.at("/c").Waiters[1].Node)) // session 1 gives up
	expect.Equal(t, len(waits.Graph(f.scan()).Cycles), 1, "cycles are left")
}

// A writer waits for all readers before it, so even a cycle through the first of them is a deadlock.
func TestReadersAreAllWaitedFor(t *testing.T) {
	f := newForest(t)
	f.eph(1, "/rw/a-R-0000000001")
	f.eph(2, "/rw/b-R-0000000002")
	f.eph(3, "/rw/c-W-0000000003")
	f.hold("/x", 3, 1)
	g := waits.Graph(f.scan())
	expect.Equal(t, len(g.Cycles), 1, "cycles %+v", g.Cycles)
}

// A semaphore is not part of a deadlock while one of its holders can continue.
func TestSemaphoreNeedsOnePermit(t *testing.T) {
	f := newForest(t)
	f.build(`
		1 L/leases/_c_` + u1 + `-lease-0000000001
		2 L/leases/_c_` + u2 + `-lease-0000000002
		3 L/locks/_c_` + u3 + `-lock-0000000003`)
	f.hold("/x", 3, 1)
	g := waits.Graph(f.scan())
	expect.Equal(t, len(g.Cycles), 0, "cycles %+v", g.Cycles)
	f.hold("/y", 3, 2)
	g = waits.Graph(f.scan())
	expect.Equal(t, len(g.Cycles), 1, "cycles %+v", g.Cycles)
}

// A task that stands twice in a queue waits for itself forever. Two different tasks of one session do not.
func TestTasksWaitForThemselves(t *testing.T) {
	f := newForest(t)
	f.eph(1, "/l/lock-0000000001", `{"v":1,"task":"a"}`)
	f.eph(1, "/l/lock-0000000002", `{"v":1,"task":"b"}`)
	g := waits.Graph(f.scan())
	if expect.Equal(t, len(g.Cycles), 0, "len(g.Cycles)") {
		expect.Equal(t, len(g.Edges), 1, "len(g.Edges)")
	}
	f.eph(1, "/l/lock-0000000003", `{"v":1,"task":"a"}`)
	expect.Equal(t, len(waits.Graph(f.scan()).Cycles), 1)
}

// In the graph of random plain locks, two parties are in the same cycle exactly if each can be reached from
// the other.
func TestCyclesAreThoseThatReach(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		f := newForest(t)
		for l := range 2 + r.IntN(4) {
			for _, s := range r.Perm(6)[:1+r.IntN(3)] {
				f.hold(fmt.Sprintf("/l%d", l), int64(s+1))
			}
		}
		g := waits.Graph(f.scan())
		reach := make([]map[int]bool, len(g.Parties))
		for p := range reach {
			reach[p] = map[int]bool{}
			for todo := []int{p}; len(todo) > 0; {
				at := todo[len(todo)-1]
				todo = todo[:len(todo)-1]
				for _, e := range g.Edges {
					if e.From == at && !reach[p][e.To] {
						reach[p][e.To] = true
						todo = append(todo, e.To)
					}
				}
			}
		}
		for p := range g.Parties {
			must.Equal(t, g.Parties[p].Cycle != 0, reach[p][p],
				"seed %d: party %d: cycle %d, reaches itself", seed, p, g.Parties[p].Cycle)
			for q := range g.Parties {
				if same := g.Parties[p].Cycle != 0 && g.Parties[p].Cycle == g.Parties[q].Cycle; p != q &&
					same != (reach[p][q] && reach[q][p]) {
					t.Fatalf("seed %d: %d and %d: same cycle %v", seed, p, q, same)
				}
			}
		}
	}
}

// A session that only watches a node, without a contender in the queue, is in no cycle: it may not be waiting
// at all.
func TestOnlookersAreInNoCycle(t *testing.T) {
	f := newForest(t)
	f.eph(1, "/master")
	f.watches[2] = []string{"/master"}
	f.hold("/l", 2, 1)
	g := waits.Graph(f.scan())
	if expect.Equal(t, len(g.Cycles), 0, "len(g.Cycles)") {
		expect.Equal(t, len(g.Edges), 2, "len(g.Edges)")
	}
}

func TestOtherChildrenAreNamed(t *testing.T) {
	f := newForest(t)
	f.eph(1, "/l/lock-0000000001")
	f.dirs("/l/b", "/l/a")
	a := locks.NewAt("/l")
	for a.Step(f.t) {
		a.Rest()
	}
	slices.Sort(a.Others)
	expect.Equal(t, a.OtherCount, 2, "%d others: a.OtherCount", a.OtherCount)
	expect.List(t, a.Others, []string{"a", "b"}, "%d others: a.Others", a.OtherCount)
	for i := range 100 {
		f.dirs(fmt.Sprintf("/l/more%d", i))
	}
	a = locks.NewAt("/l")
	for a.Step(f.t) {
		a.Rest()
	}
	expect.Equal(t, a.OtherCount, 102,
		"%d others, %d are named: a.OtherCount", a.OtherCount, len(a.Others))
	expect.Equal(t, len(a.Others), 20,
		"%d others, %d are named: len(a.Others)", a.OtherCount, len(a.Others))
}

// For all directories of one lock together, a piece of a look is limited in its time under the state lock.
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

// If the holder of a permit waits for a second permit, it is in no deadlock: it can give its own permit back.
func TestHolderOfAPermitMayWaitForAnother(t *testing.T) {
	f := newForest(t)
	f.build(`
		2 L/leases/_c_` + u2 + `-lease-0000000001
		1 L/leases/_c_` + u1 + `-lease-0000000002
		1 L/locks/_c_` + u3 + `-lock-0000000003`)
	f.hold("/x", 1, 2)
	must.Equal(t, short(f.at("/app/it")), "semaphore [curator] *2 *1 1<2,1")
	g := waits.Graph(f.scan())
	expect.Equal(t, len(g.Cycles), 0, "cycles %+v", g.Cycles)
}

// crowd makes locks with contenders in directories below root.
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

// A scan reads a limited number of nodes under one hold of the state lock, however large the tree is. It
// allocates no memory, because it might have to wait for the garbage collector. So a hold is short;
// docs/lock-view.md says how short.
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
			n := metNodes - nodes
			must.That(t, n <= locks.NodesAtOnce, "%d nodes under one hold", n)
			if n := metBytes - bytes; n > locks.PathBytes*locks.NodesAtOnce+path {
				t.Fatalf("%d bytes of paths under one hold", n)
			}
		}
		n, _ := s.Read()
		expect.Equal(t, n, size.locks*size.each, "nodes met of")
		t.Logf("%d locks of %d: %d holds", size.locks, size.each, holds)

		at := locks.NewAt(size.root + "/000000")
		for more := true; more; {
			before := at.Read()
			got += allocations(func() { more = at.Step(f.t) })
			at.Rest()
			n := at.Read() - before
			must.That(t, n <= locks.ChildrenAtOnce, "%d children under one hold", n)
		}
		if got > 20 { // a few allocations may be the runtime's own
			t.Errorf("memory was asked for %d times while the lock was held", got)
		}
		q, ok := at.Lock(f)
		if expect.That(t, ok, "%d contenders of %d: want ok", q.Total, size.each) {
			expect.Equal(t, q.Total, size.each, "%d contenders of %d: q.Total", q.Total, size.each)
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

// FuzzNames: whatever names nodes have, each contender is shown once.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"lock-0000000001", "x-1-0000000001", "<script>-0000000001",
		"lock\u202e0000000001", "h-" + z1 + "-W", "q-" + z1 + "-R--000000001", "\xff\xfe0000000009",
		"lock--1000000000", h1, "a~" + h1 + "-R-0000000001"} {
		f.Add(s, "lock-0000000002")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.ContainsAny(a+b, "/\x00") || a == b || a == "" || b == "" || a == "." || a == ".." || b == "." ||
			b == ".." {
			return
		}
		w := newForest(t)
		w.dirs("/l")
		w.lenient = true
		for i, n := range []string{a, b} {
			w.node(int64(i+1), "/l/"+n, "", 1, jute.WorldAnyone)
		}
		met := map[string]bool{}
		for _, q := range w.scan() {
			for _, c := range append(append(q.Holders, q.Waiters...), q.Participants...) {
				p := q.Target(c.Node)
				expect.That(t, !met[p], "%q is met twice", p)
				met[p] = true
				for _, on := range c.BlockedBy {
					expect.That(t, q.Find(on) != nil, "%q waits for %q, which is not there", c.Node, on)
				}
			}
		}
	})
}
