package view

import (
	"cmp"
	"context"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/waits"
	"github.com/zlockd/zlockd/server/admin/port"
	"github.com/zlockd/zlockd/server/view/ask"
)

// partyRow is a party in the wait graph: it waits for another party, or another party waits for it.
type partyRow struct {
	ID    int    `json:"id"`
	Label string `json:"label"`
	recipe.Party
	Addr string `json:"addr,omitempty"`
}

type graphAnswer struct {
	V         int            `json:"v"`
	Suspected []recipe.Cycle `json:"suspected"`
	Parties   []partyRow     `json:"parties"`
	Edges     []recipe.Edge  `json:"edges"`
	EdgeCount int            `json:"edgeCount"`
	Hidden    int            `json:"hidden,omitempty"` // number of locks that not every client may list
	Truncated string         `json:"truncated,omitempty"`
}

// maxEdges bounds the waits in an answer. The waits of suspected deadlocks come first.
const maxEdges = 2000

// maxCycles is how many suspected deadlocks an answer has at most.
const maxCycles = 100

// waitGraph answers /wait-graph.
func (v *View) waitGraph(ctx context.Context, q *ask.Query) (any, error) {
	prefix := q.Prefix()
	if err := q.Wrong(); err != nil {
		return nil, err
	}
	s, err := v.look.Locks(ctx)
	if err != nil {
		return nil, err
	}
	some, graph, hidden := s.Seen(q.All)
	if prefix != "" && prefix != "/" {
		some = slices.DeleteFunc(slices.Clone(some), func(q recipe.Queue) bool { return !below(q.Path, prefix) })
		graph = func() *recipe.Graph { return v.look.Confirmed(waits.Graph(some)) }
	}
	unseen := 0 // number of waiters that the scan has omitted
	for i := range some {
		unseen += waiting(&some[i]) - len(some[i].Waiters)
	}
	a := v.graphAnswer(graph(), unseen)
	a.Hidden = hidden
	a.Truncated = cmp.Or(a.Truncated, port.NoNames(hidden, "locks are"))
	return a, nil
}

// graphAnswer puts a graph into an answer. The graph lacks `unseen` waiters, which only count in the number
// of waits.
func (v *View) graphAnswer(g *recipe.Graph, unseen int) graphAnswer {
	a := graphAnswer{V: ask.Version, Suspected: []recipe.Cycle{}, Parties: []partyRow{}, Edges: []recipe.Edge{},
		EdgeCount: g.EdgeCount + unseen}
	edges := g.Edges[:min(len(g.Edges), maxEdges)]
	if len(edges) < a.EdgeCount {
		a.Truncated = "too many: " + ask.Thousands(a.EdgeCount) + " waits, the first " + ask.Thousands(len(edges)) +
			" shown"
	}
	ids := map[int64]bool{}
	place := map[int]int{}
	add := func(p int) int {
		at, ok := place[p]
		if !ok {
			at = len(a.Parties)
			place[p] = at
			n := &g.Parties[p]
			ids[int64(n.Session)] = true
			row := partyRow{ID: at, Party: *n}
			row.Task, row.Host, row.Reason = ask.Clip(n.Task), ask.Clip(n.Host), ask.Clip(n.Reason)
			row.Label = row.Party.Label()
			a.Parties = append(a.Parties, row)
		}
		return at
	}
	for i := range edges {
		e := edges[i]
		e.From, e.To = add(e.From), add(e.To)
		e.Path, e.FromNode, e.ToNode = ask.Clip(e.Path), ask.Clip(e.FromNode), ask.Clip(e.ToNode)
		a.Edges = append(a.Edges, e)
	}
	cycles := g.Cycles[:min(len(g.Cycles), maxCycles)]
	if len(cycles) < g.CycleCount {
		a.Truncated = "too many: " + ask.Thousands(g.CycleCount) + " suspected deadlocks, the first " +
			ask.Thousands(len(cycles)) + " shown"
	}
	for _, c := range cycles {
		row := recipe.Cycle{Since: c.Since, Paths: []string{}, Parties: []int{}}
		for _, p := range c.Parties[:min(len(c.Parties), 100)] {
			row.Parties = append(row.Parties, add(p))
		}
		for _, p := range c.Paths {
			row.Paths = append(row.Paths, ask.Clip(p))
		}
		a.Suspected = append(a.Suspected, row)
	}
	who := v.look.Sessions(ids)
	for i := range a.Parties {
		a.Parties[i].Addr = who[int64(a.Parties[i].Session)].Addr
	}
	return a
}
