package recipe

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// Graph shows which parties wait for which, over some locks. Its size is bounded, however many contenders the
// locks have.
type Graph struct {
	Parties []Party `json:"parties"` // the parties of Edges and Cycles
	Edges   []Edge  `json:"edges"`   // edges of cycles first, then by age; at most MaxEdges
	// Cycles are the suspected deadlocks: parties that wait for each other. Only the first MaxCycles are
	// listed.
	Cycles []Cycle `json:"suspected"`
	// EdgeCount and CycleCount also count the omitted edges and cycles.
	EdgeCount  int `json:"edgeCount"`
	CycleCount int `json:"-"`
}

// The bounds of a graph.
const (
	MaxEdges   = 10_000
	MaxCycles  = 1000
	cyclePaths = 100  // paths of each cycle
	cycleSize  = 1000 // parties of each cycle
)

// Party is one side of a wait: a task if the contenders name one, otherwise a session.
type Party struct {
	Task    string  `json:"task,omitempty"`
	Session Session `json:"session"`
	Host    string  `json:"host,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Cycle   int     `json:"cycle,omitempty"` // number of its cycle, from 1; 0: none
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
	From      int    `json:"from"` // indexes into Parties
	To        int    `json:"to"`
	Path      string `json:"path"` // path of the lock
	FromNode  string `json:"fromNode"`
	ToNode    string `json:"toNode"`
	FromToken int64  `json:"fromToken,string"`
	ToToken   int64  `json:"toToken,string"`
	Since     int64  `json:"since"`
	// Any says that a release of one of several holders is enough, as with a semaphore.
	Any bool `json:"any,omitempty"`
	// Watch says that only a watch of the waiter is known. Such a session may only observe, so its edge is
	// not part of a cycle.
	Watch bool `json:"watch,omitempty"`
	Cycle bool `json:"cycle,omitempty"`
}

// Cycle is a set of parties that wait for each other, and the locks between them. It is only
// suspected, because a session may do several things at a time.
type Cycle struct {
	Parties []int    `json:"parties"`
	Paths   []string `json:"paths"`
	Since   int64    `json:"since"` // when its newest wait began
}

// Possible reports whether an edge may not be a wait: one of its parties is only known as a session, which
// may do several things at a time, or Any is set.
func (g *Graph) Possible(e *Edge) bool {
	return g.Parties[e.From].Task == "" || g.Parties[e.To].Task == "" || e.Any || e.Watch
}

// WaitGraph builds the graph of the given locks.
func WaitGraph(list []Queue) *Graph {
	w := newWaits(list)
	w.findCycles()
	d := describer{waits: w, g: &Graph{EdgeCount: w.edges, CycleCount: w.cycles}, named: map[int]bool{}}
	d.describe()
	d.name()
	return d.g
}

// describer builds a Graph from the waits that fit into its bounds.
type describer struct {
	*waits
	g     *Graph
	named map[int]bool // the parties of edges and cycles
}

func (d *describer) describe() {
	d.g.Cycles = make([]Cycle, min(d.cycles, MaxCycles))
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
		if len(d.g.Edges) >= MaxEdges {
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

// edgesOf adds the edges of a wait: with ofCycle those within its cycle, otherwise the rest.
func (d *describer) edgesOf(w *wait, ofCycle bool) {
	set, from := &d.sets[w.set], &d.parties[w.from]
	for i, to := range set.to {
		inside := from.cycle != 0 && d.parties[to].cycle == from.cycle && !w.entry.Watch
		switch {
		case len(d.g.Edges) >= MaxEdges:
			return
		case to == w.from && !from.task, inside != ofCycle:
			continue
		}
		on := set.on[i]
		d.g.Edges = append(d.g.Edges, Edge{
			From: d.party(w.from), To: d.party(to), Path: d.locks[w.lock].Path,
			FromNode: w.entry.Node, ToNode: on.Node, FromToken: w.entry.Token, ToToken: on.Token,
			Since: w.entry.Since, Any: w.entry.Any && len(w.entry.BlockedBy) > 1, Watch: w.entry.Watch, Cycle: inside,
		})
	}
}

// witness adds a wait inside a cycle to the description of the cycle.
func (d *describer) witness(w *wait) {
	c, path := &d.g.Cycles[d.parties[w.from].cycle-1], d.locks[w.lock].Path
	c.Since = max(c.Since, w.entry.Since)
	if len(c.Paths) < cyclePaths && !slices.Contains(c.Paths, path) {
		c.Paths = append(c.Paths, path)
	}
}

// party records that the graph names a party.
func (d *describer) party(p int32) int {
	d.named[int(p)] = true
	return int(p)
}

// name adds the parties that the graph names, in the order of their first contenders.
func (d *describer) name() {
	place := map[int]int{}
	for _, p := range slices.Sorted(maps.Keys(d.named)) {
		place[p] = len(d.g.Parties)
		first := d.parties[p].entry
		o, _ := first.Record()
		d.g.Parties = append(d.g.Parties, Party{Task: o.Task, Session: first.Session, Host: o.Host, PID: o.PID,
			Reason: o.Reason, Cycle: int(d.parties[p].cycle)})
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
