package waits

import (
	"cmp"
	"hash/maphash"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
)

// search is the graph in the form that the search for cycles needs. Its size is linear in the number of
// contenders: contenders that wait for the same nodes, such as the waiters of a lock with a policy, share one
// set.
type search struct {
	locks    []recipe.Queue
	parties  []member
	sessions map[recipe.Session]int32
	tasks    map[uint64]int32 // parties by a seeded hash of the task's name: clients choose the names
	seed     maphash.Seed
	sets     []blockers
	list     []wait
	edges    int // number of edges, which are pairs of a wait and a party
	cycles   int
}

// member is a party as the search sees it.
type member struct {
	entry *recipe.Entry // the party's first contender
	task  bool
	cycle int32 // number of the party's cycle, 1 to maxCycles; 0: no cycle, or one that is not described
	stuck int32 // number of the party's unsatisfied waits
	self  bool  // the party is a task that waits for itself
}

// blockers is a set of parties for which some contenders wait. If `any` is true, one of the parties is
// enough; otherwise the contenders wait for all of them.
type blockers struct {
	to    []int32 // parties
	on    []*recipe.Entry
	left  int32   // how many parties must release before a wait is satisfied
	waits []int32 // the waits on this set; the waits of parties in the set come first
	done  int     // number of satisfied waits
	any   bool

	times  map[int32]int32 // how often a party is in the set; nil if contenders do not share the set
	cycles map[int32]bool  // the cycles of its parties
}

// of() returns how often a party is in the set. It builds an index only if contenders share the set.
func (s *blockers) of(party int32, shared bool) (n int32) {
	if shared && s.times == nil {
		s.times = make(map[int32]int32, len(s.to))
		for _, to := range s.to {
			s.times[to]++
		}
	}
	if s.times != nil {
		return s.times[party]
	}
	for _, to := range s.to {
		if to == party {
			n++
		}
	}
	return n
}

// wait is one contender's wait.
type wait struct {
	entry     *recipe.Entry
	lock      int32
	from, set int32
	own       int32 // number of blockers that belong to the waiting session itself
}

func newSearch(list []recipe.Queue) *search {
	w := &search{locks: list, sessions: map[recipe.Session]int32{}, tasks: map[uint64]int32{},
		seed: maphash.MakeSeed()}
	by, sets := map[string]*recipe.Entry{}, map[same]int32{}
	for i := range list {
		if waiting(&list[i]) {
			clear(by)
			clear(sets)
			w.add(int32(i), by, sets)
		}
	}
	return w
}

// waiting() reports whether a contender of the lock waits. A holder waits while it upgrades.
func waiting(q *recipe.Queue) bool {
	for i := range q.Holders {
		if len(q.Holders[i].BlockedBy) > 0 {
			return true
		}
	}
	return len(q.Waiters) > 0
}

// party() returns the index of a contender's party, and adds the party if it is missing.
func (w *search) party(c *recipe.Entry) int32 {
	fresh := int32(len(w.parties))
	task := c.Task()
	if task == "" {
		if at, ok := w.sessions[c.Session]; ok {
			return at
		}
		w.sessions[c.Session] = fresh
	} else {
		key := maphash.String(w.seed, task)
		if at, ok := w.tasks[key]; ok {
			return at
		}
		w.tasks[key] = fresh
	}
	w.parties = append(w.parties, member{entry: c, task: task != ""})
	return fresh
}

// The type `same` identifies a list of blockers that several contenders share.
type same struct {
	first *string
	len   int
	any   bool
}

// add() adds the waits of one lock. The maps must be empty.
func (w *search) add(lock int32, by map[string]*recipe.Entry, sets map[same]int32) {
	q := &w.locks[lock]
	for _, l := range [][]recipe.Entry{q.Holders, q.Waiters} {
		for i := range l {
			if by[l[i].Node] == nil {
				by[l[i].Node] = &l[i]
			}
		}
	}
	for _, l := range [][]recipe.Entry{q.Holders, q.Waiters} {
		for i := range l {
			c := &l[i]
			if len(c.BlockedBy) == 0 {
				continue
			}
			from := w.party(c)
			key := same{&c.BlockedBy[0], len(c.BlockedBy), c.Any}
			set, ok := sets[key]
			if !ok {
				set = w.set(c, by)
				sets[key] = set
			}
			w.wait(wait{entry: c, lock: lock, from: from, set: set, own: w.sets[set].of(from, ok)})
		}
	}
}

// set() makes the set of the parties for which a contender waits. Some blockers may be contenders that the
// list omits.
func (w *search) set(c *recipe.Entry, by map[string]*recipe.Entry) int32 {
	s := blockers{any: c.Any}
	for _, name := range c.BlockedBy {
		if on := by[name]; on != nil {
			s.on, s.to = append(s.on, on), append(s.to, w.party(on))
		}
	}
	if s.left = int32(len(s.to)); s.any {
		s.left = min(s.left, 1)
	}
	w.sets = append(w.sets, s)
	return int32(len(w.sets) - 1)
}

// wait() adds one wait. It omits the wait of a session for itself, because one session may do two things at a
// time. A task that waits for itself is a deadlock. A session that waits for any one of several nodes, among
// them its own, can end the wait itself: its edges are shown but make no cycle.
func (w *search) wait(one wait) {
	set, from := &w.sets[one.set], &w.parties[one.from]
	if from.task {
		from.self = from.self || one.own > 0 && !one.entry.Watch
		one.own = 0
	}
	edges := len(set.to) - int(one.own)
	if edges == 0 {
		return
	}
	w.edges += edges
	if letsGo := one.own > 0 && set.any; !one.entry.Watch && !letsGo {
		set.waits = append(set.waits, int32(len(w.list)))
		from.stuck++
	}
	w.list = append(w.list, one)
}

// findCycles repeatedly removes every party that waits only for removed parties. The remaining parties wait
// for each other, or for parties that do.
func (w *search) findCycles() {
	in := make([][]int32, len(w.parties)) // the sets that contain a party
	for i := range w.sets {
		s := &w.sets[i]
		if len(s.waits) == 0 {
			continue
		}
		slices.SortStableFunc(s.waits, func(x, y int32) int { return cmp.Compare(w.list[y].own, w.list[x].own) })
		for _, to := range s.to {
			in[to] = append(in[to], int32(i))
		}
	}
	var free []int32
	for p := range w.parties {
		if w.parties[p].stuck == 0 {
			free = append(free, int32(p))
		}
	}
	for len(free) > 0 {
		p := free[len(free)-1]
		free = free[:len(free)-1]
		for _, i := range in[p] {
			s := &w.sets[i]
			s.left--
			for ; s.done < len(s.waits) && w.list[s.waits[s.done]].own >= s.left; s.done++ {
				from := &w.parties[w.list[s.waits[s.done]].from]
				if from.stuck--; from.stuck == 0 {
					free = append(free, w.list[s.waits[s.done]].from)
				}
			}
		}
	}
	w.components()
}

// components() finds the groups of stuck parties that can all reach each other. The vertices are the parties
// and then the sets of blockers. A path from a session through a set straight back to the same session is not
// a cycle. The session is in a cycle only if another path leads through other parties.
func (w *search) components() {
	parties := int32(len(w.parties))
	next := make([][]int32, len(w.parties)+len(w.sets))
	for i := range w.list {
		one := &w.list[i]
		if one.entry.Watch || w.parties[one.from].stuck == 0 || one.own > 0 && w.sets[one.set].any {
			continue
		}
		vertex := parties + one.set
		next[one.from] = append(next[one.from], vertex)
		if next[vertex] != nil {
			continue
		}
		next[vertex] = []int32{}
		for _, to := range w.sets[one.set].to {
			if w.parties[to].stuck > 0 {
				next[vertex] = append(next[vertex], to)
			}
		}
	}
	connected(next, func(set []int32) {
		inside, last := 0, int32(0)
		for _, v := range set {
			if v < parties {
				inside, last = inside+1, v
			}
		}
		if inside == 0 || inside == 1 && !w.parties[last].self || w.parties[last].stuck == 0 {
			return
		}
		w.cycles++
		for _, v := range set {
			if v < parties && w.cycles <= maxCycles {
				w.parties[v].cycle = int32(w.cycles)
			}
		}
	})
}

// inCycle reports whether a wait is for a party of the same cycle.
func (w *search) inCycle(one *wait) bool {
	from, s := &w.parties[one.from], &w.sets[one.set]
	switch {
	case from.cycle == 0 || one.entry.Watch:
		return false
	case s.cycles == nil:
		s.cycles = map[int32]bool{}
		for _, to := range s.to {
			s.cycles[w.parties[to].cycle] = true
		}
	}
	// A session does not wait for itself, so the set must contain another party of the cycle.
	return s.cycles[from.cycle] && (one.own == 0 || slices.ContainsFunc(s.to, func(to int32) bool {
		return to != one.from && w.parties[to].cycle == from.cycle
	}))
}

// connected() calls f for each strongly connected component, by Tarjan's algorithm without recursion.
func connected(next [][]int32, f func([]int32)) {
	type frame struct{ at, child int32 }
	index := make([]int32, len(next)) // 0: not visited yet
	low := make([]int32, len(next))
	open := make([]bool, len(next))
	var stack []int32
	var calls []frame
	count := int32(0)
	for start := range next {
		if index[start] != 0 || len(next[start]) == 0 {
			continue
		}
		calls = append(calls[:0], frame{int32(start), 0})
		for len(calls) > 0 {
			v := &calls[len(calls)-1]
			if v.child == 0 {
				count++
				index[v.at], low[v.at] = count, count
				stack = append(stack, v.at)
				open[v.at] = true
			}
			if int(v.child) < len(next[v.at]) {
				to := next[v.at][v.child]
				v.child++
				if index[to] == 0 {
					calls = append(calls, frame{to, 0})
				} else if open[to] {
					low[v.at] = min(low[v.at], index[to])
				}
				continue
			}
			done := *v
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].at
				low[up] = min(low[up], low[done.at])
			}
			if low[done.at] != index[done.at] {
				continue
			}
			at := len(stack) - 1
			for stack[at] != done.at {
				at--
			}
			set := stack[at:]
			stack = stack[:at]
			for _, v := range set {
				open[v] = false
			}
			f(set)
		}
	}
}

// maxCycles bounds the cycles that a graph describes.
const maxCycles = 1000
