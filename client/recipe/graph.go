package recipe

import "strconv"

// Graph shows which parties wait for which, over some locks. Its size is bounded, however many contenders the
// locks have.
type Graph struct {
	Parties []Party `json:"parties"` // the parties of Edges and Cycles
	Edges   []Edge  `json:"edges"`   // edges of cycles first, then by age; at most 10,000
	// Cycles are the suspected deadlocks: parties that wait for each other. Only the first 1,000 are
	// listed.
	Cycles []Cycle `json:"suspected"`
	// EdgeCount and CycleCount also count the omitted edges and cycles.
	EdgeCount  int `json:"edgeCount"`
	CycleCount int `json:"-"`
}

// Party is one side of a wait: a task if the contenders name one, otherwise a session.
type Party struct {
	Task    string  `json:"task,omitempty"`
	Session Session `json:"session"`
	Host    string  `json:"host,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Cycle   int     `json:"cycle,omitempty"` // number of the party's cycle, from 1; 0: in no cycle
}

// Label returns a name of the party for people to read.
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
	// Any says that the waiter waits for any one of several holders, as with a semaphore.
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
	Since   int64    `json:"since"` // when the newest wait of the cycle began
}

// Possible reports whether an edge is only a possible wait. An edge is a certain wait only if both parties
// are tasks and neither Any nor Watch is set. A party that is only known as a session may do several things
// at a time.
func (g *Graph) Possible(e *Edge) bool {
	return g.Parties[e.From].Task == "" || g.Parties[e.To].Task == "" || e.Any || e.Watch
}
