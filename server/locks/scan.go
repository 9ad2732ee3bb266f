package locks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/tree"
)

// Limits of what is kept. A lock with more contenders shows the first of them,
// and its Total tells how many there are.
const (
	ShownPerLock = 1000
	maxKept      = 400_000 // contenders of one scan
)

// entry is a contender's node as it was met.
type entry struct {
	name, data   string
	session      int64
	czxid        int64
	ctime, mtime int64
	version      int32
	hidden       bool
}

// group is the ephemeral children of one directory.
type group struct {
	path    string
	data    string // of the directory, as world:anyone reads it
	next    int32
	entries []entry
	total   int
	cut     bool  // entries are only the first
	bound   int32 // if cut: the number of the last of them, if bounded
	bounded bool

	// sem is the path of the semaphore that the directory is a part of, and
	// semData what that node says.
	sem     string
	semData string
	queue   bool // it is the queue, else it is the permits
	alone   bool // permits without a queue: only if all are named so
}

// Scan gathers every lock of a tree. Step is called under the read lock until
// it returns false, each time followed by Rest with the lock released; then
// Locks, once, without it.
type Scan struct {
	walk   tree.EphemeralWalk
	piece  *piece
	groups map[tree.Ref]*group
	order  []*group
	kept   int
	sorter sorter

	// Total counts the ephemeral nodes met. Truncated says that there were
	// more than fit.
	Total     int
	Truncated bool
}

// NewScan returns a scan of everything.
func NewScan() *Scan {
	return &Scan{groups: map[tree.Ref]*group{}, piece: newPiece(pieceSize, pieceSize, pieceSize*pathBytes+tree.MaxPath)}
}

// Step looks at some nodes more.
func (s *Scan) Step(t *tree.Tree) (more bool) {
	return s.walk.Next(t, pieceSize, func(n tree.Ref) (cost int) {
		in, at := s.groups[n.Parent()], 0
		if in == nil {
			at, cost = s.piece.dir(t, n.Parent())
		}
		s.piece.node(n, in, at)
		return 1 + cost
	})
}

// Rest does what can be done without the lock. It is called after each Step.
func (s *Scan) Rest() {
	p := s.piece
	fresh := len(s.order)
	for at := range p.dirs {
		g := p.group(at)
		s.groups[p.dirs[at].of] = g
		s.order = append(s.order, g)
	}
	for i := range p.nodes {
		m := &p.nodes[i]
		g := m.in
		if g == nil {
			g = s.order[fresh+m.at]
		}
		s.meet(g, &m.entry)
	}
	p.clear()
}

// meet puts a contender into its group.
func (s *Scan) meet(g *group, e *entry) {
	s.Total++
	if s.kept >= maxKept {
		s.Truncated = true
		g.total++
		g.cut = true
		return
	}
	had := len(g.entries)
	g.add(e, &s.sorter)
	s.kept += len(g.entries) - had
}

// add keeps one contender, and only the first of very many.
func (g *group) add(e *entry, by *sorter) {
	g.total++
	if g.bounded {
		// Most of a crowd comes behind those that are shown.
		if name := e.name; len(name) > 10 {
			if seq, ok := parseSeq(name[len(name)-10:]); ok && before(g.bound, seq) {
				return
			}
		}
	}
	if g.entries = append(g.entries, *e); len(g.entries) >= 2*ShownPerLock {
		g.trim(by)
	}
}

// trim keeps the first contenders.
func (g *group) trim(by *sorter) {
	by.sort(g)
	if len(g.entries) > ShownPerLock {
		clear(g.entries[ShownPerLock:])
		g.entries = g.entries[:ShownPerLock]
		g.cut = true
		last := parseName(g.entries[ShownPerLock-1].name)
		g.bound, g.bounded = last.seq, last.numbed
	}
}

// numbered is an entry with the number in its name.
type numbered struct {
	entry
	seq    int32
	numbed bool
}

// sorter has the memory for sorting: of a crowd it is needed for every thousand.
type sorter struct{ list []numbered }

// sort sorts the contenders by their turn and drops those met twice.
func (s *sorter) sort(g *group) {
	if len(g.entries) < 2 {
		return
	}
	list := s.list[:0]
	for _, e := range g.entries {
		n := parseName(e.name)
		list = append(list, numbered{e, n.seq, n.numbed})
	}
	s.list = list
	slices.SortFunc(list, func(a, b numbered) int {
		switch {
		case a.numbed != b.numbed:
			if a.numbed {
				return 1 // what holds without a number comes first
			}
			return -1
		case a.seq != b.seq:
			if before(a.seq, b.seq) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	once := slices.CompactFunc(list, func(a, b numbered) bool { return a.name == b.name })
	if !g.cut {
		g.total -= len(list) - len(once)
	}
	g.entries = g.entries[:len(once)]
	for i := range once {
		g.entries[i] = once[i].entry
	}
}

// Watches is what is known of who watches what. It knows the connections of
// one server only.
type Watches interface {
	// Watching tells whether a session watches a path, and whether that is
	// known here.
	Watching(session int64, path string) (watching, known bool)
	// Watchers returns some of the sessions that watch the data or the
	// children of path.
	Watchers(path string, most int) []int64
}

// nobody knows of no watches.
type nobody struct{}

func (nobody) Watching(int64, string) (watching, known bool) { return false, false }
func (nobody) Watchers(string, int) []int64                  { return nil }

// Locks returns the locks that were found, by path.
func (s *Scan) Locks(w Watches) []Queue {
	list := assemble(s.order, w)
	s.groups, s.order = nil, nil
	return list
}

// assemble makes locks of groups.
func assemble(groups []*group, w Watches) []Queue {
	if w == nil {
		w = nobody{}
	}
	var list []Queue
	var by sorter
	sems := map[string]*semaphore{}
	for _, g := range groups {
		by.sort(g)
		switch {
		case g.sem != "" && (!g.alone || allLeases(g.entries)):
			sem := semaphoreAt(sems, g.sem, g.semData)
			if g.queue {
				sem.queue = g
			} else {
				sem.permits = g
			}
		case limitOf(g.data) > 0 && allPermits(g.entries):
			semaphoreAt(sems, g.path, g.data).permits = g
		default:
			list = append(list, g.locks(w)...)
		}
	}
	for _, sem := range sems {
		list = append(list, sem.lock(w))
	}
	slices.SortFunc(list, func(a, b Queue) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

// At reads the lock at one path, in pieces like Scan.
type At struct {
	path   string
	parts  []string // the directories that may belong to the lock
	walks  []tree.ChildWalk
	dirs   []tree.Ref // nil when there is nothing to be walked
	groups []*group
	piece  *piece
	sorter sorter
	begun  bool
	at     int
	gone   bool
	ghost  string // see Add
	owner  int64

	// Others are some of the children that are no contenders, and OtherCount
	// is how many there are.
	Others     []string
	OtherCount int
}

// someOthers is how many children that are no contenders are named.
const someOthers = 20

// NewAt returns a reader of the lock at path.
func NewAt(path string) *At {
	a := &At{path: path, parts: []string{path}, Others: make([]string, 0, someOthers)}
	if path != "/" && path != "" {
		a.parts = append(a.parts, path+"/locks", path+"/leases", path+"-__lock__")
	}
	a.walks = make([]tree.ChildWalk, len(a.parts))
	a.dirs = make([]tree.Ref, 0, len(a.parts))
	a.piece = newPiece(childrenAtOnce, len(a.parts), 5*len(path)+len("/locks/leases-__lock__"))
	return a
}

// Add makes the lock look as if an ephemeral node that has gone were still
// there. It is called before the first Step.
func (a *At) Add(path string, session int64) { a.ghost, a.owner = path, session }

// haunt puts the node that has gone into its directory.
func (a *At) haunt() {
	at := strings.LastIndexByte(a.ghost, '/')
	if at < 0 {
		return
	}
	dir, name := a.ghost[:max(at, 1)], a.ghost[at+1:]
	for _, g := range a.groups {
		if g.path == dir {
			g.entries = append(g.entries, entry{name: name, session: a.owner})
			g.total++
			return
		}
	}
}

// Step reads some nodes more; see Scan.Step.
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
	for i, path := range a.parts {
		n, ok := t.Find(path)
		switch {
		case !ok && i == 0:
			a.gone = a.ghost == ""
			return
		case !ok:
		case i == 0 && n.Session() != 0:
			// The lock may be this node itself.
			at, _ := a.piece.dir(t, n.Parent())
			a.piece.node(n, nil, at)
			return
		default:
			a.piece.dir(t, n)
			a.dirs = append(a.dirs, n)
		}
	}
}

// Rest does what can be done without the lock. It is called after each Step.
func (a *At) Rest() {
	if a.groups == nil {
		for at := range a.piece.dirs {
			a.groups = append(a.groups, a.piece.group(at))
		}
		if a.groups == nil {
			a.groups = []*group{{path: a.path}}
		}
		a.haunt()
	}
	for i := range a.piece.nodes {
		m := &a.piece.nodes[i]
		a.groups[m.at].add(&m.entry, &a.sorter)
	}
	a.piece.clear()
}

func (a *At) other(n tree.Ref) {
	a.OtherCount++
	if len(a.Others) < cap(a.Others) {
		a.Others = append(a.Others, n.Name())
	}
}

// Lock returns the lock, and whether there is a node at the path at all. A
// path that is no lock is one of kind Unknown without anybody.
func (a *At) Lock(w Watches) (Queue, bool) {
	none := Queue{Path: a.path, Kind: Unknown}
	if a.gone {
		return none, false
	}
	none.Next = a.groups[0].next
	var found []*group
	for i, g := range a.groups {
		if len(g.entries) > 0 && (i == 0 || g.sem == a.path) {
			found = append(found, g)
		}
	}
	for _, q := range assemble(found, w) {
		if q.Path == a.path {
			return q, true
		}
	}
	return none, true
}
