package tree

// undoLog is what a multi needs to take its changes back. A nil log notes
// nothing: single operations decide before they change anything.
type undoLog struct {
	steps []undoStep
	hash  digest
	zxid  int64

	// counted holds the text of quota statistics as it was before the multi,
	// for those that it changed.
	counted map[*node]string
}

type undoStep struct {
	kind stepKind
	at   int32 // position of a deleted node
	node *node
	old  state // of an edited node
}

type stepKind uint8

const (
	stepEdit stepKind = iota
	stepCreate
	stepDelete
)

// newUndo begins the log of a multi with this many operations.
func (t *Tree) newUndo(count int) *undoLog {
	return &undoLog{hash: t.hash, zxid: t.zxid, steps: make([]undoStep, 0, count)}
}

func (u *undoLog) edited(n *node) {
	if u != nil {
		u.steps = append(u.steps, undoStep{kind: stepEdit, node: n, old: n.state})
	}
}

func (u *undoLog) created(n *node) {
	if u != nil {
		u.steps = append(u.steps, undoStep{kind: stepCreate, node: n})
	}
}

func (u *undoLog) deleted(n *node, at int) {
	if u != nil {
		u.steps = append(u.steps, undoStep{kind: stepDelete, at: int32(at), node: n})
	}
}

// rollback takes all noted changes back, newest first, and ends the log. The tree is then what it
// was, down to the order of its directories.
func (t *Tree) rollback() {
	u := t.undo
	t.undo = nil
	for i := len(u.steps) - 1; i >= 0; i-- {
		switch s := &u.steps[i]; s.kind {
		case stepEdit:
			t.setData(s.node, s.old.data, s.old.null)
			s.node.state = s.old
		case stepCreate:
			t.unlink(s.node)
		case stepDelete:
			t.link(s.node, int(s.at))
		}
	}
	t.hash, t.zxid = u.hash, u.zxid
}
