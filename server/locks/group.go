package locks

import (
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
)

// ShownPerLock bounds the contenders of one lock. If a lock has more, only the first of them are shown; Total
// is the number of all.
const ShownPerLock = 1000

// group has the contenders in one directory: of very many, only those that come first.
type group struct {
	turns.Dir
	bound   int32 // number of the last contender that the group keeps; valid if Cut and `bounded` are true
	bounded bool
}

// add adds a contender to the group. It does not keep it if the group already has enough that come before it.
func (g *group) add(e *recipe.Node, by *turns.Sorter) {
	g.Total++
	if g.bounded {
		// Only the first contenders are kept. If this one's number is behind those, drop it without more work.
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
