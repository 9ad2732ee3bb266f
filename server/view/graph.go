package view

import (
	"context"
	"net/http"
	"strconv"

	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/locks"
)

// partyRow is somebody in the wait-for graph.
type partyRow struct {
	ID      int    `json:"id"`
	Label   string `json:"label"`
	Task    string `json:"task,omitempty"`
	Session string `json:"session"`
	Addr    string `json:"addr,omitempty"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Cycle   int    `json:"cycle,omitempty"`
}

// edgeRow is one wait.
type edgeRow struct {
	From      int    `json:"from"`
	To        int    `json:"to"`
	Path      string `json:"path"`
	FromNode  string `json:"fromNode"`
	ToNode    string `json:"toNode"`
	FromToken string `json:"fromToken"`
	ToToken   string `json:"toToken"`
	Since     int64  `json:"since"`
	Any       bool   `json:"any,omitempty"`
	Watch     bool   `json:"watch,omitempty"` // known by a watch only: it may merely look on
	Cycle     bool   `json:"cycle,omitempty"`
}

// cycleRow is a suspected deadlock.
type cycleRow struct {
	Parties []int    `json:"parties"`
	Paths   []string `json:"paths"`
	Since   int64    `json:"since"`
}

type graphAnswer struct {
	V         int        `json:"v"`
	Suspected []cycleRow `json:"suspected"`
	Parties   []partyRow `json:"parties"`
	Edges     []edgeRow  `json:"edges"`
	EdgeCount int        `json:"edgeCount"`
	Truncated string     `json:"truncated,omitempty"`
}

// maxEdges is how many waits an answer has at most; those of cycles come first.
const maxEdges = 2000

// waitGraph answers /wait-graph.
func (v *View) waitGraph(ctx context.Context, r *http.Request) (any, error) {
	q := parseQuery(r, "prefix")
	prefix := q.prefix()
	if q.err != nil {
		return nil, q.err
	}
	s, err := v.locks(ctx)
	if err != nil {
		return nil, err
	}
	if prefix == "" || prefix == "/" {
		return v.graphAnswer(s.waitGraph(v)), nil
	}
	var some []locks.Queue
	for i := range s.locks {
		if below(s.locks[i].Path, prefix) {
			some = append(some, s.locks[i])
		}
	}
	return v.graphAnswer(v.confirmed(locks.WaitGraph(some))), nil
}

// confirmed drops cycles that never were: a scan looks at one lock after
// another. Whoever is still there waits still, so if all are there at one
// moment, all wait at that moment.
func (v *View) confirmed(g *locks.Graph) *locks.Graph {
	if len(g.Cycles) == 0 {
		return g
	}
	const most = 500
	gone := make([]bool, len(g.Cycles))
	checked := 0
	v.source.View(func(st *state.State) {
		t := st.Tree()
		there := func(path string, token int64) bool {
			n, ok := t.Find(path)
			return ok && n.Stat().Czxid == token
		}
		for i := range g.Edges {
			e := &g.Edges[i]
			if !e.Cycle || checked > most {
				return // those of cycles come first
			}
			checked++
			q := locks.Queue{Path: e.Path}
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
	g.Cycles = kept
	for i := range g.Parties {
		g.Parties[i].Cycle = number[g.Parties[i].Cycle]
	}
	for i := range g.Edges {
		g.Edges[i].Cycle = g.Edges[i].Cycle && g.Parties[g.Edges[i].From].Cycle != 0
	}
	return g
}

func (v *View) graphAnswer(g *locks.Graph) graphAnswer {
	a := graphAnswer{V: Version, Suspected: []cycleRow{}, Parties: []partyRow{}, Edges: []edgeRow{}, EdgeCount: len(g.Edges)}
	edges := g.Edges[:min(len(g.Edges), maxEdges)]
	if len(edges) < len(g.Edges) {
		a.Truncated = "too many: " + thousands(len(g.Edges)) + " waits, the first " + thousands(len(edges)) + " shown"
	}
	ids := map[int64]bool{}
	place := map[int]int{}
	add := func(p int) int {
		at, ok := place[p]
		if !ok {
			at = len(a.Parties)
			place[p] = at
			n := &g.Parties[p]
			ids[n.Session] = true
			a.Parties = append(a.Parties, partyRow{
				ID: at, Task: clip(n.Task), Session: sessionID(n.Session), Host: clip(n.Host), PID: n.PID, Reason: clip(n.Reason), Cycle: n.Cycle,
			})
		}
		return at
	}
	for i := range edges {
		e := &edges[i]
		a.Edges = append(a.Edges, edgeRow{
			From: add(e.From), To: add(e.To), Path: clip(e.Path), FromNode: clip(e.FromNode), ToNode: clip(e.ToNode),
			FromToken: strconv.FormatInt(e.FromToken, 10), ToToken: strconv.FormatInt(e.ToToken, 10), Since: e.Since, Any: e.Any, Watch: e.Watch, Cycle: e.Cycle,
		})
	}
	for _, c := range g.Cycles[:min(len(g.Cycles), 100)] {
		row := cycleRow{Since: c.Since, Paths: []string{}, Parties: []int{}}
		for _, p := range c.Parties[:min(len(c.Parties), 100)] {
			row.Parties = append(row.Parties, add(p))
		}
		for _, p := range c.Paths {
			row.Paths = append(row.Paths, clip(p))
		}
		a.Suspected = append(a.Suspected, row)
	}
	who := v.sessionsOf(ids)
	for i := range a.Parties {
		p := &a.Parties[i]
		id, _ := parseSession(p.Session)
		p.Addr = who[id].Addr
		p.Label = labelOf(p)
	}
	return a
}

// labelOf is what people call a party.
func labelOf(p *partyRow) string {
	switch {
	case p.Host != "" && p.PID != 0:
		return p.Host + "[" + strconv.Itoa(p.PID) + "]"
	case p.Host != "":
		return p.Host
	case p.Task != "":
		return p.Task
	}
	return p.Session
}
