package recipe

import (
	"cmp"
	"slices"
	"strconv"
)

// Graph says which parties wait for which, over some locks.
type Graph struct {
	Parties []Party `json:"parties"`
	Edges   []Edge  `json:"edges"` // those of cycles first, then by age
	// Cycles are the suspected deadlocks: parties that wait for each other.
	Cycles []Cycle `json:"suspected"`
}

// Party is one side of a wait: a task if the contenders name one, otherwise a session.
type Party struct {
	Task    string  `json:"task,omitempty"`
	Session Session `json:"session"`
	Host    string  `json:"host,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Cycle   int     `json:"cycle,omitempty"` // number of its cycle, from 1; 0: it is in none
}

// Label is the name of a party for people.
func (p *Party) Label() string {
	switch {
	case p.Host != "" && p.PID != 0:
		return p.Host + "[" + strconv.Itoa(p.PID) + "]"
	case p.Host != "":
		return p.Host
	case p.Task != "":
		return p.Task
	}
	return p.Session.String()
}

// Edge says that one party waits for another.
type Edge struct {
	From      int    `json:"from"` // places in Parties
	To        int    `json:"to"`
	Path      string `json:"path"` // of the lock
	FromNode  string `json:"fromNode"`
	ToNode    string `json:"toNode"`
	FromToken int64  `json:"fromToken,string"`
	ToToken   int64  `json:"toToken,string"`
	Since     int64  `json:"since"`
	// Any says that it is enough if one of several holders lets go, as at a semaphore.
	Any bool `json:"any,omitempty"`
	// Watch says that only a watch of the waiter is known. It may merely look on, so no cycle goes
	// through it.
	Watch bool `json:"watch,omitempty"`
	Cycle bool `json:"cycle,omitempty"`
}

// Cycle is a set of parties that wait for each other, and the locks between them. It is only
// suspected, because a session may do several things at a time.
type Cycle struct {
	Parties []int    `json:"parties"`
	Paths   []string `json:"paths"`
	Since   int64    `json:"since"` // when the last of its waits began
}

// Possible reports whether an edge may not be a wait: one of its parties is only known as a
// session, which may do several things at a time, or one of several holders is enough.
func (g *Graph) Possible(e *Edge) bool {
	return g.Parties[e.From].Task == "" || g.Parties[e.To].Task == "" || e.Any || e.Watch
}

// wait is one contender's wait for all, or any, of some parties.
type wait struct {
	from  int
	edges []int
	any   bool
}

// WaitGraph builds the graph of the given locks.
func WaitGraph(list []Queue) *Graph {
	b := &builder{g: &Graph{}, index: map[string]int{}}
	for i := range list {
		b.add(&list[i])
	}
	b.findCycles()
	return b.g
}

type builder struct {
	g     *Graph
	index map[string]int
	waits []wait
}

// party returns the place of a contender's party.
func (b *builder) party(c *Entry) int {
	key := c.task()
	if key == "" {
		key = "\x00" + strconv.FormatInt(int64(c.Session), 16)
	}
	at, ok := b.index[key]
	if !ok {
		at = len(b.g.Parties)
		b.index[key] = at
		o, _ := c.Record()
		b.g.Parties = append(b.g.Parties, Party{Task: o.Task, Session: c.Session, Host: o.Host, PID: o.PID,
			Reason: o.Reason})
	}
	return at
}

// add adds the waits of one lock. It leaves out the wait of a session for itself, because the
// session does two things at a time. A task that waits for itself is a deadlock.
func (b *builder) add(q *Queue) {
	if len(q.Waiters) == 0 {
		return
	}
	by := make(map[string]*Entry, len(q.Holders)+len(q.Waiters))
	for _, l := range [][]Entry{q.Holders, q.Waiters} {
		for i := range l {
			if by[l[i].Node] == nil {
				by[l[i].Node] = &l[i]
			}
		}
	}
	for i := range q.Waiters {
		c := &q.Waiters[i]
		w := wait{from: b.party(c), any: c.Any}
		for _, name := range c.BlockedBy {
			on := by[name]
			if on == nil {
				continue // among those not shown
			}
			to := b.party(on)
			if to == w.from && b.g.Parties[to].Task == "" {
				if c.Any {
					w.edges = nil
					break // it can let go itself
				}
				continue
			}
			w.edges = append(w.edges, len(b.g.Edges))
			b.g.Edges = append(b.g.Edges, Edge{
				From: w.from, To: to, Path: q.Path, FromNode: c.Node, ToNode: name, Any: c.Any && len(c.BlockedBy) > 1,
				FromToken: c.Token, ToToken: on.Token, Since: c.Since, Watch: c.Watch,
			})
		}
		if len(w.edges) > 0 && !c.Watch {
			b.waits = append(b.waits, w)
		}
	}
}

// findCycles removes, again and again, every party that could go on if the parties it waits for
// did. The remaining parties wait for each other, or for such parties.
func (b *builder) findCycles() {
	g := b.g
	waiting := make([]int, len(g.Parties)) // waits of a party that are not satisfied
	need := make([]int, len(b.waits))      // parties a wait still needs
	on := make([][]int, len(g.Parties))    // waits that need a party
	for i, w := range b.waits {
		waiting[w.from]++
		need[i] = len(w.edges)
		if w.any {
			need[i] = 1
		}
		for _, e := range w.edges {
			on[g.Edges[e].To] = append(on[g.Edges[e].To], i)
		}
	}
	var free []int
	for p := range g.Parties {
		if waiting[p] == 0 {
			free = append(free, p)
		}
	}
	for len(free) > 0 {
		p := free[len(free)-1]
		free = free[:len(free)-1]
		for _, w := range on[p] {
			if need[w]--; need[w] == 0 {
				from := b.waits[w].from
				if waiting[from]--; waiting[from] == 0 {
					free = append(free, from)
				}
			}
		}
	}
	b.components(waiting)
}

// components finds the sets of stuck parties that can all reach each other.
func (b *builder) components(waiting []int) {
	g := b.g
	next := make([][]int, len(g.Parties))
	for i := range g.Edges {
		if e := &g.Edges[i]; !e.Watch && waiting[e.From] > 0 && waiting[e.To] > 0 {
			next[e.From] = append(next[e.From], e.To)
		}
	}
	for _, set := range connected(next, func(p int) bool { return waiting[p] > 0 }) {
		if len(set) == 1 && !slices.Contains(next[set[0]], set[0]) {
			continue
		}
		slices.Sort(set)
		g.Cycles = append(g.Cycles, Cycle{Parties: set})
		for _, p := range set {
			g.Parties[p].Cycle = len(g.Cycles)
		}
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		n := g.Parties[e.From].Cycle
		if n == 0 || n != g.Parties[e.To].Cycle || e.Watch {
			continue
		}
		e.Cycle = true
		c := &g.Cycles[n-1]
		c.Since = max(c.Since, e.Since)
		if !slices.Contains(c.Paths, e.Path) && len(c.Paths) < 100 {
			c.Paths = append(c.Paths, e.Path)
		}
	}
	slices.SortStableFunc(g.Edges, func(x, y Edge) int {
		switch {
		case x.Cycle != y.Cycle && x.Cycle:
			return -1
		case x.Cycle != y.Cycle:
			return 1
		}
		return cmp.Compare(x.Since, y.Since)
	})
}

// connected returns the strongly connected components of the wanted parties, by Tarjan's algorithm
// without recursion.
func connected(next [][]int, wanted func(int) bool) (sets [][]int) {
	type frame struct{ at, child int }
	index := make([]int, len(next)) // 0: not seen
	low := make([]int, len(next))
	open := make([]bool, len(next))
	var stack []int
	count := 0
	for start := range next {
		if index[start] != 0 || !wanted(start) {
			continue
		}
		calls := []frame{{start, 0}}
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			if f.child == 0 {
				count++
				index[f.at], low[f.at] = count, count
				stack = append(stack, f.at)
				open[f.at] = true
			}
			if f.child < len(next[f.at]) {
				to := next[f.at][f.child]
				f.child++
				if index[to] == 0 {
					calls = append(calls, frame{to, 0})
				} else if open[to] {
					low[f.at] = min(low[f.at], index[to])
				}
				continue
			}
			done := *f
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].at
				low[up] = min(low[up], low[done.at])
			}
			if low[done.at] != index[done.at] {
				continue
			}
			var set []int
			for {
				p := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				open[p] = false
				set = append(set, p)
				if p == done.at {
					break
				}
			}
			sets = append(sets, set)
		}
	}
	return sets
}
