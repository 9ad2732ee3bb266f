package locks

import (
	"slices"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// Bounds on the memory of a scan.
const (
	// how many contenders a scan keeps; they take some 100 MiB, and share the memory of their names with the
	// tree
	maxKept  = 250_000
	maxPaths = 16 << 20 // bytes of the paths of directories, which the scan copies
)

// Scan finds all locks of a tree. The caller calls Step under the read lock until it returns false, and Rest
// without the lock after each Step. In the end it calls Locks, without the lock.
type Scan struct {
	walk   tree.EphemeralWalk
	piece  *piece
	groups map[tree.Ref]*group
	order  []*group
	room   int // how many contenders the scan can still keep
	paths  int // how many bytes of paths the scan can still keep
	sorter turns.Sorter

	// Total counts all ephemeral nodes of the tree. Truncated says that the scan could not keep all of them.
	Total     int
	Truncated bool
}

// NewScan returns a scan of the whole tree.
func NewScan() *Scan {
	return &Scan{room: maxKept, paths: maxPaths, groups: map[tree.Ref]*group{},
		piece: newPiece(pieceSize, pieceSize, pieceSize*pathBytes+bounds.MaxPath)}
}

// Step reads the next nodes.
func (s *Scan) Step(t *tree.Tree) (more bool) {
	return t.NextEphemerals(&s.walk, pieceSize, func(n tree.Ref) (cost int) {
		in, at := s.groups[n.Parent()], 0
		if in == nil {
			at, cost = s.piece.dir(t, n.Parent())
		}
		s.piece.node(n, in, at)
		return 1 + cost
	})
}

// Rest does the part of the work that needs no lock. It is called after each Step.
func (s *Scan) Rest() {
	p := s.piece
	fresh := len(s.order)
	for at := range p.dirs {
		if (s.room <= 0 || s.paths <= 0) && fresh > 0 {
			break // the memory is used up: the contenders of the other directories only count
		}
		g := p.group(at)
		s.paths -= len(g.Path)
		s.groups[p.dirs[at].of] = g
		s.order = append(s.order, g)
	}
	for i := range p.nodes {
		m := &p.nodes[i]
		g := m.in
		if at := fresh + m.at; g == nil && at < len(s.order) {
			g = s.order[at]
		}
		s.meet(g, &m.Node)
	}
	p.clear()
}

// meet adds a contender to its group. g is nil if the memory was used up before its directory came.
func (s *Scan) meet(g *group, e *recipe.Node) {
	s.Total++
	if s.room <= 0 || g == nil {
		s.Truncated = true
		if g != nil {
			g.Total++
			g.Cut = true
		}
		return
	}
	had := len(g.Nodes)
	g.add(e, &s.sorter)
	s.room -= len(g.Nodes) - had
}

// Locks returns the locks that were found, sorted by path.
func (s *Scan) Locks(w turns.Watches) []recipe.Queue {
	list := turns.Assemble(dirsOf(s.order), w)
	s.groups, s.order = nil, nil
	return list
}

func dirsOf(groups []*group) []*turns.Dir {
	dirs := make([]*turns.Dir, len(groups))
	for i, g := range groups {
		dirs[i] = &g.Dir
	}
	return dirs
}

// At finds the lock at one path. It has steps like a Scan.
type At struct {
	path   string
	parts  []string // the directories that may belong to the lock
	walks  []tree.ChildWalk
	dirs   []tree.Ref // those of `parts` that exist; nil: there is nothing to read
	groups []*group
	piece  *piece
	sorter turns.Sorter
	begun  bool
	at     int
	gone   bool

	// Unlisted says that not every client may list the path, or a name below it.
	Unlisted bool
	// Others are some of the children that are not contenders. OtherCount is the number of all such children.
	Others     []string
	OtherCount int
}

// someOthers is the greatest length of At.Others.
const someOthers = 20

// NewAt returns a reader of the lock at `path`.
func NewAt(path string) *At {
	a := &At{path: path, parts: []string{path}, Others: make([]string, 0, someOthers)}
	if path != "/" && path != "" {
		a.parts = append(a.parts, path+"/locks", path+"/leases", path+recipe.KazooQueue)
	}
	a.walks = make([]tree.ChildWalk, len(a.parts))
	a.dirs = make([]tree.Ref, 0, len(a.parts))
	a.piece = newPiece(childrenAtOnce, len(a.parts), 5*len(path)+len("/locks/leases"+recipe.KazooQueue))
	return a
}

// Step reads the next nodes; see Scan.Step.
func (a *At) Step(t *tree.Tree) (more bool) {
	if !a.begun {
		a.begun = true
		a.begin(t)
	}
	for left := childrenAtOnce; a.at < len(a.dirs); a.at++ {
		met := 0
		more := a.walks[a.at].Next(a.dirs[a.at], left, func(n tree.Ref) int {
			met++
			if n.Session() != 0 {
				a.piece.node(n, nil, a.at)
			} else if a.at == 0 {
				a.other(n)
			}
			return 1
		})
		if more {
			return true
		}
		left -= met
	}
	return false
}

// begin finds the directories that belong to the lock.
func (a *At) begin(t *tree.Tree) {
	a.Unlisted = !t.Shows(a.path)
	for i, path := range a.parts {
		n, ok := t.Find(path)
		switch {
		case !ok && i == 0:
			a.gone = true
			return
		case !ok:
		case i == 0 && n.Session() != 0:
			// The path names an ephemeral node. That is a lock with this node as its holder.
			at, _ := a.piece.dir(t, n.Parent())
			a.piece.node(n, nil, at)
			return
		default:
			a.piece.dir(t, n)
			a.Unlisted = a.Unlisted || !n.ShowsNames()
			a.dirs = append(a.dirs, n)
		}
	}
}

// Rest does the part of the work that needs no lock. It is called after each Step.
func (a *At) Rest() {
	if a.groups == nil {
		for at := range a.piece.dirs {
			a.groups = append(a.groups, a.piece.group(at))
		}
		if a.groups == nil {
			a.groups = []*group{{Dir: turns.Dir{Path: a.path}}}
		}
	}
	for i := range a.piece.nodes {
		m := &a.piece.nodes[i]
		a.groups[m.at].add(&m.Node, &a.sorter)
	}
	a.piece.clear()
}

func (a *At) other(n tree.Ref) {
	a.OtherCount++
	if len(a.Others) < cap(a.Others) {
		a.Others = append(a.Others, n.Name())
	}
}

// Lock returns the lock, and whether its node exists. If the node is no lock, the kind is Unknown, and there
// are no contenders.
func (a *At) Lock(w turns.Watches) (recipe.Queue, bool) {
	none := recipe.Queue{Lock: recipe.Lock{Path: a.path, Kind: recipe.KindUnknown}}
	if a.gone {
		return none, false
	}
	none.Next = a.groups[0].Next
	found := slices.DeleteFunc(a.groups, func(g *group) bool { return len(g.Nodes) == 0 })
	for _, q := range turns.Assemble(dirsOf(found), w) {
		if q.Path == a.path {
			return q, true
		}
	}
	return none, true
}
