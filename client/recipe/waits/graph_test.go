package waits

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/race"
)

// crowd() returns a lock with a policy that has the given numbers of read holds, write holds and queue nodes.
func crowd(path string, readers, writers, queued int) *turns.Dir {
	d := &turns.Dir{Path: path}
	add := func(k recipe.PolicyRole, session int64, n int) {
		for range n {
			i := len(d.Nodes)
			node := recipe.PolicyNode{ID: recipe.NewID(session, uint64(i)), Kind: k, Seq: int32(i)}
			d.Nodes = append(d.Nodes, recipe.Node{Name: node.Name(true), Session: session, Czxid: int64(i + 1)})
		}
	}
	add(recipe.HoldRead, 1, readers)
	add(recipe.HoldWrite, 2, writers)
	for range queued / 2 {
		add(recipe.QueueWrite, 3, 1)
		add(recipe.QueueRead, 4, 1)
	}
	d.Total = len(d.Nodes)
	return d
}

// A graph grows with the contenders of a lock, not with the pairs of its holders and waiters.
func TestAGraphIsLinearInContenders(t *testing.T) {
	race.Alone(t)
	for _, c := range []struct {
		name                     string
		readers, writers, queued int
	}{{"readers hold", 500, 0, 500}, {"made-up writers hold", 0, 500, 500}, {"both", 250, 250, 500}} {
		t.Run(c.name, func(t *testing.T) {
			const locks = 20
			var dirs []*turns.Dir
			for i := range locks {
				dirs = append(dirs, crowd(fmt.Sprint("/l", i), c.readers, c.writers, c.queued))
			}
			list := turns.Assemble(dirs, turns.Unseen{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			g := Graph(list)
			runtime.ReadMemStats(&after)
			each := int(after.TotalAlloc-before.TotalAlloc) / (locks * 1000)
			expect.That(t, each < 1000, "%d bytes for each contender, want less than 1000", each)
			expect.That(t, len(g.Edges) <= maxEdges, "%d edges, want at most %d", len(g.Edges), maxEdges)
			expect.That(t, len(g.Parties) <= 4, "%d parties, want at most 4", len(g.Parties))
		})
	}
}

// A graph describes a bounded number of cycles, and counts all of them.
func TestAGraphCountsTheCyclesThatItLeavesOut(t *testing.T) {
	var list []recipe.Queue
	const pairs = maxCycles + 50
	for i := range pairs {
		a, b := recipe.Entry{Node: "a", Session: recipe.Session(2*i + 1)},
			recipe.Entry{Node: "b", Session: recipe.Session(2*i + 2)}
		for _, l := range [][2]recipe.Entry{{a, b}, {b, a}} {
			l[1].BlockedBy = []string{l[0].Node}
			list = append(list, recipe.Queue{Lock: recipe.Lock{Path: fmt.Sprint("/", len(list))}, Holders: l[:1],
				Waiters: l[1:]})
		}
	}
	g := Graph(list)
	expect.Equal(t, g.CycleCount, pairs, "cycles counted")
	expect.Equal(t, Cycles(list), pairs, "cycles counted without a graph")
	expect.Equal(t, len(g.Cycles), maxCycles, "cycles described")
	expect.Equal(t, g.EdgeCount, 2*pairs, "edges counted")
	for i := range g.Cycles {
		must.Equal(t, len(g.Cycles[i].Parties), 2, "parties of cycle %d", i)
		must.Equal(t, len(g.Cycles[i].Paths), 2, "paths of cycle %d", i)
	}
}

// plain() finds the entries in cycles as the definition says: remove every party that can proceed, then see
// which remaining parties reach themselves.
func plain(list []recipe.Queue) (in map[string]bool) {
	name := func(e *recipe.Entry) string {
		if task := e.Task(); task != "" {
			return task
		}
		return e.Session.String()
	}
	type wait struct {
		to  []string
		any bool
	}
	waits := map[string][]wait{}
	for i := range list {
		q := &list[i]
		for j := range q.Waiters {
			e := &q.Waiters[j]
			one, own := wait{any: e.Any}, false
			for _, b := range e.BlockedBy {
				on := q.Find(b)
				if name(on) == name(e) && e.Task() == "" {
					own = true
					continue
				}
				one.to = append(one.to, name(on))
			}
			if len(one.to) > 0 && (!own || !e.Any) {
				waits[name(e)] = append(waits[name(e)], one)
			}
		}
	}
	stuck := func(p string) bool {
		return slices.ContainsFunc(waits[p], func(w wait) bool {
			blocked := func(to string) bool { return waits[to] != nil }
			if w.any {
				return !slices.ContainsFunc(w.to, func(to string) bool { return !blocked(to) })
			}
			return slices.ContainsFunc(w.to, blocked)
		})
	}
	for again := true; again; {
		again = false
		for p := range waits {
			if !stuck(p) {
				delete(waits, p)
				again = true
			}
		}
	}
	in = map[string]bool{}
	for p := range waits {
		seen := map[string]bool{}
		for todo := []string{p}; len(todo) > 0; {
			at := todo[0]
			todo = todo[1:]
			for _, w := range waits[at] {
				for _, to := range w.to {
					if !seen[to] {
						seen[to] = true
						todo = append(todo, to)
					}
				}
			}
		}
		if seen[p] {
			in[p] = true
		}
	}
	return in
}

// The same waits are cycles whether or not contenders share a set of blockers.
func TestCyclesThroughSharedBlockers(t *testing.T) {
	found := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		var list []recipe.Queue
		entry := func(i int) recipe.Entry {
			e := recipe.Entry{Node: fmt.Sprint("n", i), Session: recipe.Session(1 + r.IntN(5))}
			if r.IntN(4) == 0 {
				e.Owner = &recipe.Owner{Task: fmt.Sprint("t", r.IntN(3))}
			}
			return e
		}
		for l := range 1 + r.IntN(4) {
			q := recipe.Queue{Lock: recipe.Lock{Path: fmt.Sprint("/", l)}}
			var all []string
			for i := range 1 + r.IntN(3) {
				q.Holders = append(q.Holders, entry(i))
				all = append(all, q.Holders[i].Node)
			}
			for i := range r.IntN(4) {
				e := entry(10 + i)
				e.BlockedBy, e.Any, e.Since = all, r.IntN(3) == 0, 1+r.Int64N(100)
				if r.IntN(3) == 0 {
					e.BlockedBy = all[:1]
				}
				q.Waiters = append(q.Waiters, e)
			}
			list = append(list, q)
		}
		g, want := Graph(list), plain(list)
		got := map[string]bool{}
		for i := range g.Parties {
			p := &g.Parties[i]
			if p.Cycle != 0 && p.Task != "" {
				got[p.Task] = true
			} else if p.Cycle != 0 {
				got[p.Session.String()] = true
			}
		}
		must.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "seed %d: parties in cycles of %+v", seed, list)
		found += len(want)
		since, paths := make([]int64, len(g.Cycles)), make([][]string, len(g.Cycles))
		for i := range g.Edges {
			e := &g.Edges[i]
			same := g.Parties[e.From].Cycle != 0 && g.Parties[e.From].Cycle == g.Parties[e.To].Cycle
			must.Equal(t, e.Cycle, same, "seed %d: edge %+v is of a cycle", seed, e)
			if e.Cycle {
				c := g.Parties[e.From].Cycle - 1
				since[c] = max(since[c], e.Since)
				paths[c] = append(paths[c], e.Path)
			}
		}
		for i, c := range g.Cycles {
			slices.Sort(c.Paths)
			slices.Sort(paths[i])
			must.List(t, c.Paths, slices.Compact(paths[i]), "seed %d: paths of cycle %d", seed, i)
			must.Equal(t, c.Since, since[i], "seed %d: cycle %d exists since", seed, i)
		}
		must.Equal(t, len(g.Edges), g.EdgeCount, "seed %d: edges", seed)
	}
	expect.That(t, found > 100, "%d parties in cycles, want more than 100", found)
}

// Parties that can only wait for each other make a cycle. A party that is known only by its watch does not
// join a cycle, and a task is in one cycle only.
func TestCyclesOfParties(t *testing.T) {
	entry := func(task string, blocked ...string) recipe.Entry {
		return recipe.Entry{Node: task, Owner: &recipe.Owner{Task: task}, BlockedBy: blocked}
	}
	queue := func(path, holder string, waiters ...recipe.Entry) recipe.Queue {
		return recipe.Queue{Lock: recipe.Lock{Path: path}, Holders: []recipe.Entry{entry(holder)}, Waiters: waiters}
	}
	either := func(e recipe.Entry) recipe.Entry { e.Any = true; return e }
	looks := func(e recipe.Entry) recipe.Entry { e.Watch = true; return e }
	cycles := func(list ...recipe.Queue) string {
		g := Graph(list)
		var all []string
		for _, c := range g.Cycles {
			expect.That(t, slices.IsSorted(c.Parties), "%v", c.Parties)
			var names []string
			for _, p := range c.Parties {
				names = append(names, g.Parties[p].Task)
			}
			slices.Sort(names)
			all = append(all, strings.Join(names, ""))
		}
		return strings.Join(all, " ")
	}
	q := recipe.Queue{Lock: recipe.Lock{Path: "/1"}, Holders: []recipe.Entry{entry("q"), entry("r")},
		Waiters: []recipe.Entry{either(entry("p", "q", "r"))}}
	expect.Equal(t, cycles(q, queue("/2", "p", entry("r", "p")), queue("/3", "x", entry("q", "x"))), "",
		"q goes on, so p does, so r does")
	expect.Equal(t, cycles(q, queue("/2", "p", entry("r", "p")), queue("/3", "p", entry("q", "p"))), "pqr")
	pair := []recipe.Queue{queue("/1", "a", entry("b", "a")), queue("/2", "b", entry("a", "b"))}
	onlooker := queue("/3", "c", looks(entry("a", "c")))
	expect.Equal(t, cycles(append(pair, onlooker, queue("/4", "a", entry("c", "a")))...), "ab",
		"a merely looks at what c holds")
	expect.Equal(t, cycles(queue("/1", "s", entry("a", "s")), queue("/2", "s", entry("s", "s"))), "s",
		"a task that waits for itself, behind another")
	expect.Equal(t, cycles(queue("/1", "c", entry("b", "c")), queue("/2", "b", entry("a", "b")),
		queue("/3", "a", entry("c", "a"))), "abc")
	upgrade := recipe.Queue{Lock: recipe.Lock{Path: "/1"}, Holders: []recipe.Entry{entry("a", "b"), entry("b")}}
	expect.Equal(t, cycles(upgrade, queue("/2", "a", entry("b", "a"))), "ab",
		"a, which holds with b, waits to hold alone, and nobody waits behind them")
	var many []recipe.Queue
	for i := range 120 {
		many = append(many, pair[i%2])
		many[i].Path = fmt.Sprint("/", i)
	}
	expect.Equal(t, len(Graph(many).Cycles[0].Paths), 100, "paths named")
	one := Graph([]recipe.Queue{queue("/1", "a", either(entry("b", "a")))})
	expect.That(t, !one.Edges[0].Any, "one holder is all of them: %+v", one.Edges[0])
}

// A party that waits for any one of several holders is in no cycle if one of these holders can release.
func TestCyclesHaveStuckPartiesOnly(t *testing.T) {
	entry := func(task string, session recipe.Session, blocked ...string) recipe.Entry {
		return recipe.Entry{Node: task, Session: session, Owner: &recipe.Owner{Task: task}, BlockedBy: blocked}
	}
	either := entry("b", 2, "c", "free")
	either.Any = true
	since := func(n int64, e recipe.Entry) recipe.Entry {
		e.Since = n
		return e
	}
	g := Graph([]recipe.Queue{
		{Lock: recipe.Lock{Path: "/1"}, Holders: []recipe.Entry{entry("c", 3), entry("free", 5)},
			Waiters: []recipe.Entry{since(4, either)}},
		{Lock: recipe.Lock{Path: "/2"}, Holders: []recipe.Entry{entry("b", 2), entry("d", 4)},
			Waiters: []recipe.Entry{since(5, entry("c", 3, "b", "d"))}},
		{Lock: recipe.Lock{Path: "/3"}, Holders: []recipe.Entry{entry("c", 3)},
			Waiters: []recipe.Entry{since(6, entry("d", 4, "c"))}},
	})
	must.Equal(t, len(g.Cycles), 1, "cycles")
	var tasks []string
	for _, p := range g.Cycles[0].Parties {
		tasks = append(tasks, g.Parties[p].Task)
	}
	slices.Sort(tasks)
	expect.Equal(t, strings.Join(tasks, " "), "c d", "the cycle")
	var edges []string
	for _, e := range g.Edges {
		label := func(p int) string { return g.Parties[p].Task }
		edges = append(edges, fmt.Sprintf("%s>%s %v %v %d", label(e.From), label(e.To), e.Cycle, e.Any, e.Since))
	}
	expect.List(t, edges, []string{"c>d true false 5", "d>c true false 6", "b>c false true 4",
		"b>free false true 4",
		"c>b false false 5"}, "edges")
	expect.List(t, g.Cycles[0].Paths, []string{"/2", "/3"}, "g.Cycles[0].Paths")
	expect.Equal(t, g.Cycles[0].Since, 6, "g.Cycles[0].Since")
}
