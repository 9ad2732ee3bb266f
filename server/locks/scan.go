package locks

import (
	"cmp"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// Limits of what is kept. A lock with more contenders shows the first of them,
// and its Total tells how many there are.
const (
	ShownPerLock = 1000
	maxKept      = 400_000 // contenders of one scan
)

// pieceSize is how many nodes are looked at under one hold of the state lock:
// some hundred microseconds' worth.
const pieceSize = 256

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
}

// Scan gathers every lock of a tree. Step is called under the read lock until
// it returns false, each time followed by Rest with the lock released; then
// Locks, once, without it.
type Scan struct {
	walk   tree.EphemeralWalk
	groups map[tree.Ref]*group
	order  []*group
	crowds []*group // to be trimmed
	kept   int
	piece  int

	// Total counts the ephemeral nodes met. Truncated says that there were
	// more than fit.
	Total     int
	Truncated bool
}

// NewScan returns a scan of everything.
func NewScan() *Scan { return &Scan{groups: map[tree.Ref]*group{}, piece: pieceSize} }

// Step looks at some nodes more.
func (s *Scan) Step(t *tree.Tree) (more bool) {
	return s.walk.Next(t, s.piece, func(n tree.Ref) { s.meet(t, n) })
}

var anyone = []jute.ID{jute.WorldAnyone[0].ID}

func (s *Scan) meet(t *tree.Tree, n tree.Ref) {
	s.Total++
	dir := n.Parent()
	g := s.groups[dir]
	if g == nil {
		g = newGroup(t, dir)
		s.groups[dir] = g
		s.order = append(s.order, g)
	}
	if s.kept >= maxKept {
		s.Truncated = true
		g.total++
		g.cut = true
		return
	}
	had := len(g.entries)
	g.add(n)
	s.kept += len(g.entries) - had
	if g.crowded() && !slices.Contains(s.crowds, g) {
		s.crowds = append(s.crowds, g)
	}
}

// Rest does what can be done without the lock. It is called after each Step.
func (s *Scan) Rest() {
	for i, g := range s.crowds {
		s.kept -= len(g.entries)
		g.trim()
		s.kept += len(g.entries)
		s.crowds[i] = nil
	}
	s.crowds = s.crowds[:0]
}

// newGroup reads what matters of the directory itself.
func newGroup(t *tree.Tree, dir tree.Ref) *group {
	g := &group{path: dir.Path(), next: dir.Counter()}
	g.data, _ = dir.Data(anyone)
	switch name := dir.Name(); {
	case name == "locks" || name == "leases":
		parent := dir.Parent()
		path := strings.TrimSuffix(g.path, "/"+name)
		_, queue := t.Find(path + "/locks")
		_, leases := t.Find(path + "/leases")
		if queue && leases {
			g.sem, g.queue = path, name == "locks"
			g.semData, _ = parent.Data(anyone)
		}
	case strings.HasSuffix(name, "-__lock__"):
		if of, ok := t.Find(strings.TrimSuffix(g.path, "-__lock__")); ok {
			if data, _ := of.Data(anyone); limitOf(data) > 0 {
				g.sem, g.semData, g.queue = of.Path(), data, true
			}
		}
	}
	return g
}

// add keeps one contender.
func (g *group) add(n tree.Ref) {
	g.total++
	if g.bounded {
		// Most of a crowd comes behind those that are shown.
		if name := n.Name(); len(name) > 10 {
			if seq, ok := parseSeq(name[len(name)-10:]); ok && before(g.bound, seq) {
				return
			}
		}
	}
	st := n.Stat()
	data, allowed := n.Data(anyone)
	g.entries = append(g.entries, entry{
		name: n.Name(), data: data, hidden: !allowed, session: n.Session(),
		czxid: st.Czxid, ctime: st.Ctime, mtime: st.Mtime, version: st.Version,
	})
}

// crowded tells whether there are so many contenders that it is time to keep
// only the first.
func (g *group) crowded() bool { return len(g.entries) >= 2*ShownPerLock }

// trim keeps the first contenders. It takes longer than the state lock may be
// held.
func (g *group) trim() {
	g.sort()
	if len(g.entries) > ShownPerLock {
		clear(g.entries[ShownPerLock:])
		g.entries = g.entries[:ShownPerLock]
		g.cut = true
		last := parseName(g.entries[ShownPerLock-1].name)
		g.bound, g.bounded = last.seq, last.numbed
	}
}

// sort sorts the contenders by their turn and drops those met twice.
func (g *group) sort() {
	if len(g.entries) < 2 {
		return
	}
	type numbered struct {
		entry
		seq    int32
		numbed bool
	}
	list := make([]numbered, len(g.entries))
	for i, e := range g.entries {
		n := parseName(e.name)
		list[i] = numbered{e, n.seq, n.numbed}
	}
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
	met := len(list)
	list = slices.CompactFunc(list, func(a, b numbered) bool { return a.name == b.name })
	if !g.cut {
		g.total -= met - len(list)
	}
	g.entries = g.entries[:len(list)]
	for i := range list {
		g.entries[i] = list[i].entry
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
	sems := map[string]*semaphore{}
	for _, g := range groups {
		g.sort()
		switch {
		case g.sem != "":
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
	walks  []tree.ChildWalk
	dirs   []tree.Ref
	groups []*group
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

// NewAt returns a reader of the lock at path.
func NewAt(path string) *At { return &At{path: path} }

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

// someOthers is how many children that are no contenders are named.
const someOthers = 20

// Step reads some nodes more; see Scan.Step. Small directories are read in one
// piece, so that what is shown was true at one moment.
func (a *At) Step(t *tree.Tree) (more bool) {
	if !a.begun {
		a.begun = true
		if !a.begin(t) {
			a.gone = a.ghost == ""
			a.groups = []*group{{path: a.path}}
			a.haunt()
			return false
		}
		a.haunt()
	}
	for left := 4 * pieceSize; a.at < len(a.dirs); a.at++ {
		g := a.groups[a.at]
		met := 0
		more := a.walks[a.at].Next(a.dirs[a.at], left, func(n tree.Ref) {
			met++
			if n.Session() != 0 {
				g.add(n)
			} else if a.at == 0 {
				a.other(n)
			}
		})
		if more {
			return true
		}
		left -= met
	}
	return false
}

// Rest does what can be done without the lock. It is called after each Step.
func (a *At) Rest() {
	for _, g := range a.groups {
		if g.crowded() {
			g.trim()
		}
	}
}

func (a *At) other(n tree.Ref) {
	a.OtherCount++
	if len(a.Others) < someOthers {
		a.Others = append(a.Others, n.Name())
	}
}

// begin finds the directories that belong to the lock.
func (a *At) begin(t *tree.Tree) bool {
	n, ok := t.Find(a.path)
	if !ok {
		return false
	}
	a.dir(t, n)
	if n.Session() != 0 {
		// The lock may be this node itself.
		a.groups[0] = newGroup(t, n.Parent())
		a.groups[0].add(n)
		return true
	}
	for _, part := range []string{"/locks", "/leases", "-__lock__"} {
		if c, ok := t.Find(a.path + part); ok && a.path != "/" && a.path != "" {
			a.dir(t, c)
		}
	}
	return true
}

func (a *At) dir(t *tree.Tree, n tree.Ref) {
	a.dirs = append(a.dirs, n)
	a.walks = append(a.walks, tree.ChildWalk{})
	if n.Path() == "/" {
		a.groups = append(a.groups, &group{path: "/", next: n.Counter()})
		return
	}
	a.groups = append(a.groups, newGroup(t, n))
}

// Lock returns the lock, and whether there is a node at the path at all. A path
// that is no lock is one of kind Unknown without anybody.
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
