package locks_test

import (
	"fmt"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"math/rand/v2"
	"testing"
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
	f.hold("/c", 3, 9, 1) // 1 waits behind 9, who waits for 3
	f.hold("/d", 4, 5, 4) // 4 waits behind itself and 5: threads
	f.hold("/e", 6, 6)
	g := recipe.WaitGraph(f.scan())
	must.Equal(t, len(g.Cycles), 2, "cycles %+v", g.Cycles)
	in := map[recipe.Session]int{}
	for _, p := range g.Parties {
		in[p.Session] = p.Cycle
	}
	if in[1] == 0 || in[1] != in[2] || in[1] != in[3] || in[1] != in[9] || in[4] == 0 || in[4] != in[5] ||
		in[6] != 0 {
		t.Errorf("%v", in)
	}
	if len(g.Cycles[in[1]-1].Paths) != 3 {
		t.Errorf("paths %v", g.Cycles[in[1]-1].Paths)
	}
	f.remove(fmt.Sprintf("/c/%s", f.at("/c").Waiters[1].Node)) // 1 gives up
	expect.Equal(t, len(recipe.WaitGraph(f.scan()).Cycles), 1, "cycles are left")
}

// TestReadersAreAllWaitedFor: a writer waits for every reader before it, so a
// cycle through the first of them is one.
func TestReadersAreAllWaitedFor(t *testing.T) {
	f := newForest(t)
	f.eph(1, "/rw/a-R-0000000001")
	f.eph(2, "/rw/b-R-0000000002")
	f.eph(3, "/rw/c-W-0000000003")
	f.hold("/x", 3, 1)
	if g := recipe.WaitGraph(f.scan()); len(g.Cycles) != 1 {
		t.Errorf("cycles %+v", g.Cycles)
	}
}

// TestSemaphoreNeedsOnePermit: as long as one holder can go on there is no
// deadlock.
func TestSemaphoreNeedsOnePermit(t *testing.T) {
	f := newForest(t)
	f.build(`
		1 L/leases/_c_` + u1 + `-lease-0000000001
		2 L/leases/_c_` + u2 + `-lease-0000000002
		3 L/locks/_c_` + u3 + `-lock-0000000003`)
	f.hold("/x", 3, 1)
	if g := recipe.WaitGraph(f.scan()); len(g.Cycles) != 0 {
		t.Errorf("cycles %+v", g.Cycles)
	}
	f.hold("/y", 3, 2)
	if g := recipe.WaitGraph(f.scan()); len(g.Cycles) != 1 {
		t.Errorf("cycles %+v", g.Cycles)
	}
}

// TestTasksWaitForThemselves: the same task twice in a queue waits forever;
// two tasks of one session do not.
func TestTasksWaitForThemselves(t *testing.T) {
	f := newForest(t)
	f.eph(1, "/l/lock-0000000001", `{"v":1,"task":"a"}`)
	f.eph(1, "/l/lock-0000000002", `{"v":1,"task":"b"}`)
	if g := recipe.WaitGraph(f.scan()); len(g.Cycles) != 0 || len(g.Edges) != 1 {
		t.Errorf("%+v", g)
	}
	f.eph(1, "/l/lock-0000000003", `{"v":1,"task":"a"}`)
	expect.Equal(t, len(recipe.WaitGraph(f.scan()).Cycles), 1)
}

// TestCyclesAreThoseThatReach compares the cycles of random plain locks with a
// search from every party.
func TestCyclesAreThoseThatReach(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		f := newForest(t)
		for l := range 2 + r.IntN(4) {
			for _, s := range r.Perm(6)[:1+r.IntN(3)] {
				f.hold(fmt.Sprintf("/l%d", l), int64(s+1))
			}
		}
		g := recipe.WaitGraph(f.scan())
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
			if (g.Parties[p].Cycle != 0) != reach[p][p] {
				t.Fatalf("seed %d: party %d: cycle %d, reaches itself %v", seed, p, g.Parties[p].Cycle, reach[p][p])
			}
			for q := range g.Parties {
				if same := g.Parties[p].Cycle != 0 && g.Parties[p].Cycle == g.Parties[q].Cycle; p != q &&
					same != (reach[p][q] && reach[q][p]) {
					t.Fatalf("seed %d: %d and %d: same cycle %v", seed, p, q, same)
				}
			}
		}
	}
}

// TestOnlookersAreInNoCycle: who watches a node may wait for it, or look on.
func TestOnlookersAreInNoCycle(t *testing.T) {
	f := newForest(t)
	f.eph(1, "/master")
	f.watches[2] = []string{"/master"}
	f.hold("/l", 2, 1)
	if g := recipe.WaitGraph(f.scan()); len(g.Cycles) != 0 || len(g.Edges) != 2 {
		t.Errorf("%+v", g)
	}
}
