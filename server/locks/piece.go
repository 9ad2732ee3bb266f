package locks

import (
	"strings"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// pieceSize is how many nodes a scan reads while it holds the state lock once, some ten microseconds.
// Directories count as nodes according to the length of their paths.
const pieceSize = 256

// childrenAtOnce is how many nodes an At, which looks at one lock, reads while it holds the state lock once.
// A small directory is read at once, so that the result is true for one moment.
const childrenAtOnce = 4 * pieceSize

// piece is for the nodes that are read while the state lock is held once. Its memory is allocated before:
// during the hold, an allocation could have to wait for the garbage collector, and every write would wait,
// too.
type piece struct {
	nodes []met
	dirs  []dir
	paths []byte
}

// met is a contender that was read. It belongs to the group `in` or, if that is nil, to a directory of the
// piece, for which there is no group yet.
type met struct {
	in *group
	at int // the directory's index in `dirs`; used only if the field `in` is nil
	recipe.Node
}

// dir is a directory that may belong to a lock.
type dir struct {
	of       tree.Ref
	from, to int // the directory's path is paths[from:to]
	data     string
	next     int32
	// part is what the directory may be in a semaphore; semData is then the data of the semaphore's node.
	part    turns.Part
	hidden  bool // not every client may list the children of the directory
	kazoo   bool // has one of the names that kazoo gives a directory
	semData string
}

func newPiece(nodes, dirs, paths int) *piece {
	return &piece{nodes: make([]met, 0, nodes), dirs: make([]dir, 0, dirs), paths: make([]byte, 0, paths)}
}

// pathBytes is how many bytes of a directory's path count as one node.
const pathBytes = 8

// clear drops the nodes of the piece, so that their memory can be freed if the tree drops them, too. It is
// called without the state lock.
func (p *piece) clear() {
	clear(p.nodes)
	clear(p.dirs)
	p.nodes, p.dirs, p.paths = p.nodes[:0], p.dirs[:0], p.paths[:0]
}

var anyone = []jute.ID{jute.WorldAnyone[0].ID}

// node records a contender. It belongs to the group `in` or, if that is nil, to the directory with the index
// `at`.
func (p *piece) node(n tree.Ref, in *group, at int) {
	st := n.Stat()
	data, allowed := n.Data(anyone)
	p.nodes = append(p.nodes, met{in, at, recipe.Node{
		Name: n.Name(), Data: data, Hidden: !allowed, Session: n.Session(),
		Czxid: st.Czxid, Ctime: st.Ctime, Mtime: st.Mtime, Version: st.Version,
	}})
}

// dir records a directory, unless the piece already has it. It returns the directory's index, and the cost.
func (p *piece) dir(t *tree.Tree, of tree.Ref) (at, cost int) {
	for i := len(p.dirs) - 1; i >= 0; i-- {
		if p.dirs[i].of == of {
			return i, 0
		}
	}
	d := dir{of: of, from: len(p.paths), next: of.Counter(), hidden: !of.ShowsNames()}
	p.paths = of.PathOnto(p.paths)
	d.to = len(p.paths)
	d.data, _ = of.Data(anyone)
	switch name := of.Name(); {
	case name == "locks" || name == "leases":
		_, queue := t.Child(of.Parent(), "locks")
		_, leases := t.Child(of.Parent(), "leases")
		switch {
		case queue && name == "leases":
			d.part = turns.PermitsPart
		case leases && name == "locks":
			d.part = turns.QueuePart
		case name == "leases":
			d.part = turns.PermitsAlone
		}
		if d.part != turns.NoPart {
			d.semData, _ = of.Parent().Data(anyone)
		}
	case strings.HasSuffix(name, recipe.KazooQueue):
		if sem, ok := t.Child(of.Parent(), strings.TrimSuffix(name, recipe.KazooQueue)); ok {
			d.part, d.kazoo = turns.QueuePart, true
			d.semData, _ = sem.Data(anyone)
		}
	}
	p.dirs = append(p.dirs, d)
	return len(p.dirs) - 1, 1 + (d.to-d.from)/pathBytes
}

// group makes a group for the directory with the index `at`. It is called without the state lock.
func (p *piece) group(at int) *group {
	d := &p.dirs[at]
	g := &group{Dir: turns.Dir{Path: string(p.paths[d.from:d.to]), Data: d.data, Next: d.next,
		Unlisted: d.hidden}}
	switch {
	case d.part == turns.NoPart:
	case !d.kazoo:
		g.Sem, g.SemData, g.Part = recipe.Parent(g.Path), d.semData, d.part
	case recipe.LimitOf(d.semData) > 0:
		g.Sem, g.SemData, g.Part = strings.TrimSuffix(g.Path, recipe.KazooQueue), d.semData, d.part
	}
	return g
}
