package waits

import (
	"cmp"
	"maps"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
)

// Graph builds the graph of the given locks.
func Graph(list []recipe.Queue) *recipe.Graph {
	w := newSearch(list)
	w.findCycles()
	d := describer{search: w, g: &recipe.Graph{EdgeCount: w.edges, CycleCount: w.cycles}, named: map[int]bool{}}
	d.describe()
	d.name()
	return d.g
}

// Cycles returns the CycleCount of the graph of the given locks. It describes no edge and no party.
func Cycles(list []recipe.Queue) int {
	w := newSearch(list)
	w.findCycles()
	return w.cycles
}

// describer builds a Graph from the waits that fit into its bounds.
type describer struct {
	*search
	g     *recipe.Graph
	named map[int]bool // the parties of edges and cycles
}

func (d *describer) describe() {
	d.g.Cycles = make([]recipe.Cycle, min(d.cycles, maxCycles))
	order := make([]*wait, len(d.list))
	for i := range d.list {
		if order[i] = &d.list[i]; d.inCycle(order[i]) {
			d.witness(order[i])
		}
	}
	slices.SortStableFunc(order, func(x, y *wait) int { return cmp.Compare(x.entry.Since, y.entry.Since) })
	for _, w := range order {
		if d.inCycle(w) {
			d.edgesOf(w, true)
		}
	}
	for _, w := range order {
		if len(d.g.Edges) >= maxEdges {
			break
		}
		d.edgesOf(w, false)
	}
	for p := range d.parties {
		if n := d.parties[p].cycle; n > 0 && len(d.g.Cycles[n-1].Parties) < cycleSize {
			c := &d.g.Cycles[n-1]
			c.Parties = append(c.Parties, d.party(int32(p)))
		}
	}
}

// edgesOf adds edges of a wait. If ofCycle is set, it adds the edges inside the wait's cycle, otherwise the
// other edges.
func (d *describer) edgesOf(w *wait, ofCycle bool) {
	set, from := &d.sets[w.set], &d.parties[w.from]
	for i, to := range set.to {
		inside := from.cycle != 0 && d.parties[to].cycle == from.cycle && !w.entry.Watch
		switch {
		case len(d.g.Edges) >= maxEdges:
			return
		case to == w.from && !from.task, inside != ofCycle:
			continue
		}
		on := set.on[i]
		d.g.Edges = append(d.g.Edges, recipe.Edge{
			From: d.party(w.from), To: d.party(to), Path: d.locks[w.lock].Path,
			FromNode: w.entry.Node, ToNode: on.Node, FromToken: w.entry.Token, ToToken: on.Token,
			Since: w.entry.Since, Any: w.entry.Any && len(w.entry.BlockedBy) > 1, Watch: w.entry.Watch, Cycle: inside,
		})
	}
}

// witness() adds a wait inside a cycle to the description of the cycle.
func (d *describer) witness(w *wait) {
	c, path := &d.g.Cycles[d.parties[w.from].cycle-1], d.locks[w.lock].Path
	c.Since = max(c.Since, w.entry.Since)
	if len(c.Paths) < cyclePaths && !slices.Contains(c.Paths, path) {
		c.Paths = append(c.Paths, path)
	}
}

// party() records that the graph names a party.
func (d *describer) party(p int32) int {
	d.named[int(p)] = true
	return int(p)
}

// name() adds the parties that the graph names, in the order of their first contenders.
func (d *describer) name() {
	place := map[int]int{}
	for _, p := range slices.Sorted(maps.Keys(d.named)) {
		place[p] = len(d.g.Parties)
		first := d.parties[p].entry
		o, _ := first.Record()
		d.g.Parties = append(d.g.Parties, recipe.Party{Task: o.Task, Session: first.Session, Host: o.Host,
			PID: o.PID, Reason: o.Reason, Cycle: int(d.parties[p].cycle)})
	}
	for i := range d.g.Edges {
		e := &d.g.Edges[i]
		e.From, e.To = place[e.From], place[e.To]
	}
	for i := range d.g.Cycles {
		for j, p := range d.g.Cycles[i].Parties {
			d.g.Cycles[i].Parties[j] = place[p]
		}
	}
}

// The bounds of a graph, besides maxCycles.
const (
	maxEdges   = 10_000
	cyclePaths = 100  // paths of each cycle
	cycleSize  = 1000 // parties of each cycle
)
