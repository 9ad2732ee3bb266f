package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Walk calls f for every directory at or below root ("/" for all) that looks like
// a lock: one that has contenders, or data that this package put there. It goes no
// deeper than depth levels below root; 1 are root and its children, and a negative
// depth has no limit. It ends with the first error of f.
func (c *Client) Walk(ctx context.Context, root string, depth int, f func(*Queue) error) error {
	if root != "/" {
		if err := checkPath(root); err != nil {
			return err
		}
	}
	ctx, end := c.during(ctx)
	defer end()
	e, err := c.epoch(ctx)
	if err != nil {
		return err
	}
	if err := e.sync(ctx, root); err != nil {
		return publicErr(ctx, err)
	}
	return publicErr(ctx, c.walk(ctx, e, root, depth, f))
}

func (c *Client) walk(ctx context.Context, e *epoch, path string, depth int, f func(*Queue) error) error {
	list, err := e.names(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return nil
	}
	if err != nil {
		return err
	}
	names := list.List()
	slices.Sort(names)
	is, err := c.looksLikeLock(ctx, e, path, names, list.Stat)
	if err != nil {
		return err
	}
	if is {
		q, err := c.inspect(ctx, e, path)
		if err != nil {
			return err
		}
		if err := f(q); err != nil {
			return err
		}
		if q.Kind == "semaphore" {
			return nil // its parts are no locks of their own
		}
	}
	if depth == 0 {
		return nil
	}
	for _, n := range names {
		if path == "/" && n == "zookeeper" && c.session().Chroot() == "" || is && isContender(n) {
			continue
		}
		if err := c.walk(ctx, e, join(path, n), depth-1, f); err != nil {
			return err
		}
	}
	return nil
}

// looksLikeLock reports whether a directory's children or data say that it is a
// lock.
func (c *Client) looksLikeLock(ctx context.Context, e *epoch, path string, names []string, st zk.Stat) (bool, error) {
	switch {
	case path == "/" || st.EphemeralOwner != 0:
		return false, nil
	case slices.Contains(names, permitsName):
		return true, nil
	}
	if live, err := c.anyLive(ctx, e, path, names); live || err != nil || st.DataLength == 0 || st.DataLength > recipe.MaxOwnerData {
		return live, err
	}
	n, err := e.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return false, nil
	}
	rec, ok := recipe.ParseRecord(n.Data)
	return ok && rec.ZL == 1 || len(names) > 0 && kazooLimit(names, n.Data) > 0, err
}

// anyLive reports whether one of the children that have the name of a contender is
// ephemeral: a lasting node of such a name is no contender.
func (c *Client) anyLive(ctx context.Context, e *epoch, path string, names []string) (bool, error) {
	for _, n := range names {
		if n != simpleName && !isContender(n) {
			continue
		}
		st, err := e.exists(ctx, join(path, n))
		if err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return false, err
		}
		if err != nil || st != nil && st.EphemeralOwner != 0 {
			return true, nil
		}
	}
	return false, nil
}

// isContender reports whether a name is that of a contender, which has no children.
func isContender(name string) bool {
	if _, _, ok := recipe.ParseName(name); ok {
		return true
	}
	if _, ok := recipe.ParsePolicyNode(name); ok {
		return true
	}
	_, ok := parseNumbered(name)
	return ok
}

// parseNumbered reads a name of another kind that ends with a sequential node's
// number, such as lock0000000017, the name of the best-known tutorials.
func parseNumbered(name string) (recipe.Contender, bool) {
	at := len(name) - 10
	if at < 1 || name[at-1] >= '0' && name[at-1] <= '9' {
		return recipe.Contender{}, false
	}
	seq, ok := recipe.ParseSeq(name[at:])
	return recipe.Contender{Name: name, Seq: seq}, ok
}

// Party is one side of a wait: a task if its contenders say so, else a session.
type Party struct {
	Task    string `json:"task,omitempty"`
	Session int64  `json:"session,string"`
	Label   string `json:"label"` // for people: host, process and reason
}

// key identifies the party.
func (p Party) key() string {
	if p.Task != "" {
		return p.Task
	}
	return hexID(p.Session)
}

// Edge says that one party waits for another.
type Edge struct {
	From Party  `json:"from"`
	To   Party  `json:"to"`
	Path string `json:"path"` // of the lock
	// FromNode waits for ToNode.
	FromNode string `json:"fromNode"`
	ToNode   string `json:"toNode"`
	// Possible says that a side is known by its session only, which may do
	// several things at a time.
	Possible bool `json:"possible,omitempty"`
	// Cycle says that the edge is part of a cycle: the parties wait for each other
	// for ever, if no edge of the cycle is only possible.
	Cycle bool `json:"cycle,omitempty"`
}

// Graph is who waits for whom.
type Graph struct {
	Edges []Edge `json:"edges"`
}

// Deadlocked reports whether there is a cycle of which every edge is certain.
func (g *Graph) Deadlocked() bool {
	sure := slices.DeleteFunc(slices.Clone(g.Edges), func(e Edge) bool { return e.Possible })
	markCycles(sure)
	return slices.ContainsFunc(sure, func(e Edge) bool { return e.Cycle })
}

// WaitGraph reads every lock at or below root and tells who waits for whom.
// Contenders that wait inside one process have no node and are not seen; give
// locks [WithoutLocalQueue] where that matters.
func (c *Client) WaitGraph(ctx context.Context, root string) (*Graph, error) {
	g := &Graph{}
	err := c.Walk(ctx, root, -1, func(q *Queue) error {
		g.add(q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	markCycles(g.Edges)
	return g, nil
}

// add adds the edges of one lock. Each waiter is shown waiting for one node; that
// it waits for those before follows from the others' edges.
func (g *Graph) add(q *Queue) {
	parties := map[string]Party{}
	known := map[string]bool{}
	for _, list := range [][]Entry{q.Holders, q.Waiters} {
		for _, en := range list {
			p := Party{Session: en.Session, Label: fmt.Sprintf("session %s", hexID(en.Session))}
			if o := en.Owner; o != nil {
				p.Task, p.Label = o.Task, strings.TrimSpace(fmt.Sprintf("%s[%d] %s", o.Host, o.PID, o.Reason))
			}
			parties[en.Node], known[en.Node] = p, true
		}
	}
	for _, en := range q.Waiters {
		if !known[en.BlockedBy] {
			continue
		}
		from, to := parties[en.Node], parties[en.BlockedBy]
		g.Edges = append(g.Edges, Edge{
			From: from, To: to, Path: q.Path, FromNode: en.Node, ToNode: en.BlockedBy, Possible: from.Task == "" || to.Task == "",
		})
	}
}

// markCycles sets Cycle of the edges whose end leads back to their beginning.
func markCycles(edges []Edge) {
	next := map[string][]string{}
	for _, e := range edges {
		next[e.From.key()] = append(next[e.From.key()], e.To.key())
	}
	ahead := map[string]map[string]bool{} // of a party: itself, and all that can be reached
	for i := range edges {
		e := &edges[i]
		to := e.To.key()
		if ahead[to] == nil {
			ahead[to] = map[string]bool{}
			for todo := []string{to}; len(todo) > 0; {
				p := todo[len(todo)-1]
				todo = todo[:len(todo)-1]
				if !ahead[to][p] {
					ahead[to][p] = true
					todo = append(todo, next[p]...)
				}
			}
		}
		e.Cycle = ahead[to][e.From.key()]
	}
}
