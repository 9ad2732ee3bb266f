package locks

import (
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
)

// ShownPerLock bounds the contenders of one lock. If a lock has more, only the first of them are shown; Total
// is the number of all.
const ShownPerLock = 1000

// group holds the ephemeral children of one directory. If there are very many, it holds the first ones.
type group struct {
	turns.Dir
	bound   int32 // the number of the last node in Nodes; valid if Cut and `bounded` are true
	bounded bool
}

// add keeps a contender, unless the group already has enough contenders that come before it.
func (g *group) add(e *recipe.Node, by *turns.Sorter) {
	g.Total++
	if g.bounded {
		// Most contenders of a large group come after those that are shown: drop them at once.
		if name := e.Name; len(name) > 10 {
			if seq, ok := recipe.ParseSeq(name[len(name)-10:]); ok && recipe.Before(g.bound, seq) {
				return
			}
		}
	}
	if g.Nodes = append(g.Nodes, *e); len(g.Nodes) >= 2*ShownPerLock {
		g.trim(by)
	}
}

// trim drops all contenders except the first ShownPerLock.
func (g *group) trim(by *turns.Sorter) {
	by.Sort(&g.Dir)
	if len(g.Nodes) > ShownPerLock {
		clear(g.Nodes[ShownPerLock:])
		g.Nodes, g.Cut = g.Nodes[:ShownPerLock], true
		g.bound, g.bounded = recipe.Number(g.Nodes[ShownPerLock-1].Name)
	}
}
