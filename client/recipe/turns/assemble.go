package turns

import (
	"cmp"
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
)

// A Sorter reuses its memory, because a reader sorts a long queue again and again.
type Sorter struct{ list []sortable }

// sortable is a node with the facts that recipe.Describe reads from its name.
type sortable struct {
	recipe.Node
	c      recipe.Contender
	numbed bool
}

// Sort puts a directory's nodes in the order of their turns, and drops duplicates. It returns the number of
// the last node, if that node has a number.
func (s *Sorter) Sort(d *Dir) (last int32, numbed bool) {
	list := s.list[:0]
	for _, n := range d.Nodes {
		what := recipe.Describe(n.Name)
		list = append(list, sortable{n, what.Contender, what.Numbed})
	}
	s.list = list
	if len(list) < 2 {
		return 0, false
	}
	slices.SortFunc(list, func(a, b sortable) int {
		switch {
		case a.numbed != b.numbed:
			if a.numbed {
				return 1 // a hold without a number sorts first
			}
			return -1
		case !a.numbed:
			return cmp.Compare(a.Name, b.Name)
		}
		return recipe.Compare(a.c, b.c)
	})
	once := slices.CompactFunc(list, func(a, b sortable) bool { return a.Name == b.Name })
	if !d.Cut {
		d.Total -= len(list) - len(once)
	}
	d.Nodes = d.Nodes[:len(once)]
	for i := range once {
		d.Nodes[i] = once[i].Node
	}
	end := &once[len(once)-1]
	return end.c.Seq, end.numbed
}

// Assemble turns directories into locks, sorted by path.
func Assemble(dirs []*Dir, w Watches) []recipe.Queue {
	if w == nil {
		w = Unseen{}
	}
	var list []recipe.Queue
	var by Sorter
	sems := map[string]*semaphore{}
	left := allWatchers
	for _, d := range dirs {
		by.Sort(d)
		switch {
		case d.Sem != "" && (d.Part != PermitsAlone || allPermits(d.Nodes, recipe.LayoutCurator)):
			sem := semaphoreAt(sems, d.Sem, d.SemData)
			if d.Part == QueuePart {
				sem.queue = d
			} else {
				sem.permits = d
			}
		case recipe.LimitOf(d.Data) > 0 && allPermits(d.Nodes, recipe.LayoutKazoo):
			semaphoreAt(sems, d.Path, d.Data).permits = d
		default:
			found := d.locks(w, &left)
			for i := range found {
				found[i].Unlisted = d.Unlisted
			}
			list = append(list, found...)
		}
	}
	for _, sem := range sems {
		list = append(list, sem.lock(w))
	}
	slices.SortFunc(list, func(a, b recipe.Queue) int { return cmp.Compare(a.Path, b.Path) })
	return list
}
