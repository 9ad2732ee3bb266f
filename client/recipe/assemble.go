package recipe

import (
	"cmp"
	"slices"
)

// Dir is a directory with its contenders' nodes that a caller has read.
type Dir struct {
	Path  string
	Data  string
	Next  int32  // the number that the next sequential child gets
	Nodes []Node // all nodes, or only the first; Total counts all
	Total int
	Cut   bool // Nodes has only the first nodes
	// Unlisted says that some clients may not list the nodes.
	Unlisted bool

	// Sem is the path of the semaphore that the directory belongs to, and SemData the data of that
	// node.
	Sem     string
	SemData string
	Part    Part
}

// Part is the role of a directory in its semaphore.
type Part uint8

// The parts.
const (
	NoPart       Part = iota
	QueuePart         // queue of the contenders that wait for permits
	PermitsPart       // directory of the permits
	PermitsAlone      // directory of the permits, if all nodes have such names; it has no queue
)

// Watches says which sessions watch which paths.
type Watches interface {
	// Watching reports whether a session watches a path, and whether that is known.
	Watching(session int64, path string) (watching, known bool)
	// Watchers returns some of the sessions that watch the data or the
	// children of path.
	Watchers(path string, most int) []int64
}

// Unseen is the Watches of a reader that sees no watches. Numbered nodes of unknown programs then count as a
// lock, because most of them are.
type Unseen struct{}

// Watching returns false: it is not known.
func (Unseen) Watching(int64, string) (watching, known bool) { return false, false }

// Watchers returns no session.
func (Unseen) Watchers(string, int) []int64 { return nil }

// Sorter keeps the memory for sorting, because a reader sorts a long queue again and again.
type Sorter struct{ list []sortable }

// sortable is a node with the facts that describe reads from its name.
type sortable struct {
	Node
	c      Contender
	numbed bool
}

// Sort puts a directory's nodes in the order of their turns, and drops duplicates. It returns the number of
// the last node, if that node has a number.
func (s *Sorter) Sort(d *Dir) (last int32, numbed bool) {
	list := s.list[:0]
	for _, n := range d.Nodes {
		what := Describe(n.Name)
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
		return Compare(a.c, b.c)
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
func Assemble(dirs []*Dir, w Watches) []Queue {
	if w == nil {
		w = Unseen{}
	}
	var list []Queue
	var by Sorter
	sems := map[string]*semaphore{}
	left := allWatchers
	for _, d := range dirs {
		by.Sort(d)
		switch {
		case d.Sem != "" && (d.Part != PermitsAlone || allPermits(d.Nodes, LayoutCurator)):
			sem := semaphoreAt(sems, d.Sem, d.SemData)
			if d.Part == QueuePart {
				sem.queue = d
			} else {
				sem.permits = d
			}
		case LimitOf(d.Data) > 0 && allPermits(d.Nodes, LayoutKazoo):
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
	slices.SortFunc(list, func(a, b Queue) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

// item is a contender whose blockers decide has not determined yet.
type item struct {
	Node
	Description
	e Entry
}

func items(d *Dir) []item {
	list := make([]item, len(d.Nodes))
	for i, n := range d.Nodes {
		it := &list[i]
		it.Node, it.Description = n, Describe(n.Name)
		it.e = NewEntry(&it.Node, &it.Description)
	}
	return list
}
