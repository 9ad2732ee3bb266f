package tree

import (
	"github.com/zlockd/zlockd/tree/digest"
	"github.com/zlockd/zlockd/tree/internal/nodes"
)

// undoLog is what a multi needs to undo its changes. A nil log records nothing: a single operation needs no
// log, because it decides before it changes anything. A multi has tens of thousands of steps, so a step is
// small.
type undoLog struct {
	steps []undoStep
	data  []undoData // the old data, for each step that changed data
	hash  digest.Sum
	zxid  int64

	// counted holds, for each quota text that the multi has changed, the text before the multi.
	counted map[*nodes.Node]quotaText
}

// undoStep is one change. For a node that was created or deleted, pzxid and cv are those of its parent before
// the change.
type undoStep struct {
	node  *nodes.Node
	pzxid int64
	cv    int32
	at    int32 // position of a deleted node, or one of the constants below
}

const (
	stepCreate = -1
	stepData   = -2
)

// undoData is the part of a node that writeData and setStats change.
type undoData struct {
	data         string
	mzxid, mtime int64
	version      int32
	null         bool
}

// writing() records the data of n. It must be called before the data change.
func (u *undoLog) writing(n *nodes.Node) {
	if u != nil {
		u.steps = append(u.steps, undoStep{node: n, at: stepData})
		u.data = append(u.data, undoData{n.Data, n.Mzxid, n.Mtime, n.Version, n.Null})
	}
}

// created() records that n is created. It must be called before the parent of n changes.
func (u *undoLog) created(n *nodes.Node) { u.deleted(n, stepCreate) }

// deleted() records that n is deleted from the position `at`. It must be called before the parent of n
// changes.
func (u *undoLog) deleted(n *nodes.Node, at int) {
	if u != nil {
		u.steps = append(u.steps, undoStep{n, n.Parent.Pzxid, n.Parent.CV, int32(at)})
	}
}

// rollback() undoes all recorded changes, the newest first, and ends the log. The tree is then as it was
// before the multi, even in the order of its directories.
func (t *Tree) rollback() {
	u := t.undo
	t.undo = nil
	for i := len(u.steps) - 1; i >= 0; i-- {
		s := &u.steps[i]
		n := s.node
		if s.at == stepData {
			last := len(u.data) - 1
			old := &u.data[last]
			t.spread(n, 0, int64(len(old.data)-len(n.Data)))
			n.Data, n.Null = old.data, old.null
			n.Mzxid, n.Mtime, n.Version = old.mzxid, old.mtime, old.version
			u.data = u.data[:last]
			continue
		}
		if s.at == stepCreate {
			t.unlink(n)
		} else {
			t.link(n, int(s.at))
		}
		n.Parent.Pzxid, n.Parent.CV = s.pzxid, s.cv
	}
	for n, text := range u.counted {
		if _, there := t.quotaTexts[n]; there {
			t.quotaTexts[n] = text
		}
	}
	t.hash, t.zxid = u.hash, u.zxid
}
