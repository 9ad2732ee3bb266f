package tree_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
)

// A walk ends a piece when the piece has cost enough, so that other requests have their turn. Without changes
// of the tree, a walk meets each node once and then reports its end.
func TestPiecesOfWalksHoldTheirCosts(t *testing.T) {
	tr, c := tree.New(), &tree.Change{}
	do(t, tr, c, jute.OpCreate, createBody("/d", "", 0), nil)
	do(t, tr, c, jute.OpCreate, createBody("/leaf", "", 0), nil)
	const nodes = 60
	var all []string
	for i := range nodes {
		path := fmt.Sprintf("/d/%02d", i)
		all = append(all, path)
		c.Session = int64(1 + i%7)
		do(t, tr, c, jute.OpCreate, createBody(path, "", jute.FlagEphemeral), nil)
	}
	dir, _ := tr.Find("/d")
	leaf, _ := tr.Find("/leaf")
	for _, x := range []struct{ most, cost, piece int }{
		{1, 1, 1}, {10, 1, 10}, {10, 0, 10}, {10, -5, 10}, {10, 3, 4}, {9, 3, 3}, {1, 100, 1}, {nodes, 1, nodes},
		{nodes + 1, 1, nodes},
	} {
		var owned tree.EphemeralWalk
		var children tree.ChildWalk
		for name, next := range map[string]func(fn func(tree.Ref) int) bool{
			"ephemeral nodes": func(fn func(tree.Ref) int) bool { return tr.NextEphemerals(&owned, x.most, fn) },
			"children":        func(fn func(tree.Ref) int) bool { return children.Next(dir, x.most, fn) },
		} {
			var met []string
			pieces := 0
			for more := true; more; pieces++ {
				before := len(met)
				more = next(func(r tree.Ref) int { met = append(met, r.Path()); return x.cost })
				want := min(x.piece, nodes-before)
				must.Equal(t, len(met)-before, want, "%s in a piece for %d of %d each", name, x.most, x.cost)
				must.That(t, more == (len(met) < nodes), "%s: after %d more: %v", name, len(met), more)
			}
			slices.Sort(met)
			expect.List(t, met, all, "%s for %d of %d each", name, x.most, x.cost)
			more := next(func(r tree.Ref) int { t.Errorf("%s: %s is met again", name, r.Path()); return 1 })
			expect.That(t, !more, "%s: a walk goes on behind its end", name)
		}
		var none tree.ChildWalk
		expect.That(t, !none.Next(leaf, x.most, func(tree.Ref) int { t.Error("a leaf has children"); return 1 }),
			"the walk of a leaf goes on")
	}
}

// A walk that stands at a session without nodes goes on with the next session.
func TestWalkGoesOnWhereASessionHasEnded(t *testing.T) {
	for ended := range int64(4) {
		tr, c := tree.New(), &tree.Change{}
		for session := range int64(4) {
			for i := range 3 {
				c.Session = session + 1
				do(t, tr, c, jute.OpCreate, createBody(fmt.Sprintf("/%d-%d", session+1, i), "", jute.FlagEphemeral), nil)
			}
		}
		for first := range 12 {
			var w tree.EphemeralWalk
			met := map[int64]int{}
			meet := func(r tree.Ref) int { met[r.Session()]++; return 1 }
			must.That(t, tr.NextEphemerals(&w, first+1, meet) == (first+1 < 12), "after %d", first+1)
			if first == 5 {
				tr.CloseSession(&tree.Change{Zxid: 100}, ended+1)
			}
			for tr.NextEphemerals(&w, 1, meet) {
			}
			for session := range int64(4) {
				if first < 5 || session != ended {
					expect.That(t, met[session+1] >= 3, "session %d, after the end of %d: %d nodes are met", session+1, ended+1,
						met[session+1])
				}
			}
			if first == 5 {
				break
			}
		}
	}
}
