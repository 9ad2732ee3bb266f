package request

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
	"github.com/zlockd/zlockd/tree/watches"
)

// Watch is a watch that a read asks for.
type Watch struct {
	Set  bool
	Path string
	Kind watches.Kind
}

// Steps returns the cost of a read whose reply has `reply` bytes, plus the cost of the watch that the read
// sets.
func (w *Watch) Steps(ids []jute.ID, reply int) int64 {
	steps := bounds.ReadSteps(w.Path, ids) + reply/bounds.ReadBytes
	if w.Set {
		steps += bounds.WatchSteps(w.Path)
	}
	return int64(steps)
}

// AppendRecord appends the response record of a read, for a client with this session and these identities. It
// returns the watch that the read sets. For a multiRead it also returns the steps; for other reads
// Watch.Steps computes them.
func AppendRecord(t *tree.Tree, b []byte, session int64, ids []jute.ID, op jute.OpCode, body []byte) (
	_ []byte, w Watch, steps int, code jute.ErrCode) {
	if op == jute.OpMultiRead {
		b, steps, code = t.AppendMultiRead(b, ids, body)
		return b, w, steps, code
	}
	d := jute.NewDecoder(body)
	path, named := d.String()
	w.Path = path
	switch op {
	case jute.OpGetData, jute.OpExists, jute.OpGetChildren, jute.OpGetChildren2:
		w.Set = d.Bool()
	case jute.OpGetEphemerals:
		if d.Err() == nil {
			return t.AppendEphemerals(b, session, path), w, 0, jute.OK
		}
	}
	if d.Err() != nil || !named {
		return b, Watch{Path: path}, 0, jute.MarshallingError
	}
	switch op {
	case jute.OpGetData:
		b, code = t.AppendData(b, ids, path)
	case jute.OpExists:
		b, code = t.AppendExists(b, ids, path)
		if w.Set && code == jute.NoNode {
			return b, w, 0, code // only `exists` sets a watch although it fails: the node is missing
		}
	case jute.OpGetChildren:
		w.Kind = watches.Child
		b, code = t.AppendChildren(b, ids, path)
	case jute.OpGetChildren2:
		w.Kind = watches.Child
		b, code = t.AppendChildrenStat(b, ids, path)
	case jute.OpGetACL:
		b, code = t.AppendACL(b, ids, path)
	case jute.OpGetAllChildrenNumber:
		b, code = t.AppendChildrenNumber(b, ids, path)
	}
	w.Set = w.Set && code == jute.OK
	return b, w, 0, code
}

// WatchOp decodes an addWatch, removeWatches or checkWatches. For addWatch it returns the watch to set. For
// the other two it returns the path in `w`, and the kind of watches in `which`.
func WatchOp(op jute.OpCode, body []byte) (w Watch, which int32, code jute.ErrCode) {
	d := jute.NewDecoder(body)
	path, named := d.String()
	n := d.Int()
	w.Path = path
	switch {
	case d.Err() != nil || !named:
		return w, n, jute.MarshallingError
	case op != jute.OpAddWatch && !watches.Known(n):
		return w, n, jute.MarshallingError
	case op == jute.OpCheckWatches && path != "" && !strings.Contains(path, "/"):
		return w, n, jute.MarshallingError // so answers ZooKeeper, which looks for watches above a path up to "/"
	case op != jute.OpAddWatch:
		return w, n, jute.OK
	case n != jute.AddWatchPersistent && n != jute.AddWatchRecursive:
		return w, n, jute.MarshallingError
	case !strings.HasPrefix(path, "/"):
		return w, n, jute.BadArguments
	}
	w.Set, w.Kind = true, watches.Persistent
	if n == jute.AddWatchRecursive {
		w.Kind = watches.Recursive
	}
	return w, n, jute.OK
}
