package turns

import "github.com/zlockd/zlockd/client/recipe"

// Dir is a directory with its contenders' nodes that a caller has read.
type Dir struct {
	Path  string
	Data  string
	Next  int32         // the number that the next sequential child gets
	Nodes []recipe.Node // all nodes, or only the first ones; Total counts all of them
	Total int
	Cut   bool // Nodes has only the first nodes
	// Unlisted says that some clients may not list the nodes.
	Unlisted bool

	// Sem is the path of the semaphore that the directory belongs to. SemData is the data of the node at that
	// path.
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
	PermitsAlone      // directory without a queue; it has permits if all its nodes are named like permits
)

// Watches says which sessions watch which paths.
type Watches interface {
	// Watching reports whether a session watches a path, and whether that is known.
	Watching(session int64, path string) (watching, known bool)
	// Watchers returns at most `most` of the sessions that watch the data or the children of `path`.
	Watchers(path string, most int) []int64
}

// Unseen is the Watches of a reader that sees no watches. Numbered nodes of unknown programs then count as a
// lock, because most of them are.
type Unseen struct{}

// Watching says that the answer is not known.
func (Unseen) Watching(int64, string) (watching, known bool) { return false, false }

// Watchers returns no session.
func (Unseen) Watchers(string, int) []int64 { return nil }

// item is a contender. Its blockers are not known before decide() has run.
type item struct {
	recipe.Node
	recipe.Description
	e recipe.Entry
}

func items(d *Dir) []item {
	list := make([]item, len(d.Nodes))
	for i, n := range d.Nodes {
		it := &list[i]
		it.Node, it.Description = n, recipe.Describe(n.Name)
		it.e = recipe.NewEntry(&it.Node, &it.Description)
	}
	return list
}
