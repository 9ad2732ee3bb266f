package look

import (
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// Confirmed drops false deadlocks. A scan looks at one lock after another, so it may show a cycle of waits
// that never existed at one moment. Confirmed looks whether all nodes of the cycle exist at one moment. Then
// the cycle is real, because a contender waits as long as its node exists.
func (l *Looker) Confirmed(g *recipe.Graph) *recipe.Graph {
	if len(g.Cycles) == 0 {
		return g
	}
	const most = 500
	gone := make([]bool, len(g.Cycles))
	checked := 0
	l.source.View(func(st *state.State) {
		t := st.Tree()
		there := func(path string, token int64) bool {
			n, ok := t.Find(path)
			return ok && n.Stat().Czxid == token
		}
		for i := range g.Edges {
			e := &g.Edges[i]
			if !e.Cycle || checked > most {
				return // only edges of cycles matter, and they come first
			}
			checked++
			q := recipe.Lock{Path: e.Path}
			if !there(q.Target(e.ToNode), e.ToToken) || !there(q.Target(e.FromNode), e.FromToken) {
				gone[g.Parties[e.From].Cycle-1] = true
			}
		}
	})
	kept := g.Cycles[:0]
	number := make([]int, len(gone)+1)
	for i, c := range g.Cycles {
		if !gone[i] {
			kept = append(kept, c)
			number[i+1] = len(kept)
		}
	}
	g.CycleCount -= len(g.Cycles) - len(kept)
	g.Cycles = kept
	for i := range g.Parties {
		g.Parties[i].Cycle = number[g.Parties[i].Cycle]
	}
	for i := range g.Edges {
		g.Edges[i].Cycle = g.Edges[i].Cycle && g.Parties[g.Edges[i].From].Cycle != 0
	}
	return g
}
