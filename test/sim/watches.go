package sim

import (
	"maps"
	"slices"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/history"
)

// watches are the watches of a client, as client libraries keep them: the client renews them
// on the next connection.
type watches struct {
	data, exist, child map[string]bool
	lasting            map[string]int32 // modes
}

func newWatches() watches {
	return watches{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]int32{}}
}

// answered records the watch that a request has set.
func (w *watches) answered(op *history.Op) {
	switch {
	case op.Op == jute.OpAddWatch && op.Code == jute.OK:
		w.lasting[op.Path] = op.Mode
	case !op.Watch:
	case op.Op == jute.OpExists && op.Code == jute.NoNode:
		w.exist[op.Path] = true
	case op.Code != jute.OK:
	case op.Op == jute.OpGetChildren2:
		w.child[op.Path] = true
	default:
		w.data[op.Path] = true
	}
}

// fired removes the watches that an event uses up.
func (w *watches) fired(t jute.EventType, path string) {
	if t == jute.EventChildrenChanged || t == jute.EventDeleted {
		delete(w.child, path)
	}
	if t != jute.EventChildrenChanged {
		delete(w.data, path)
		delete(w.exist, path)
	}
}

// request returns the request that renews the watches, nil if there are none.
func (w *watches) request(zxid int64) *history.Op {
	if len(w.data)+len(w.exist)+len(w.child)+len(w.lasting) == 0 {
		return nil
	}
	r := &jute.SetWatches{RelativeZxid: zxid, Data: keysOf(w.data), Exist: keysOf(w.exist),
		Child: keysOf(w.child)}
	for _, path := range slices.Sorted(maps.Keys(w.lasting)) {
		if w.lasting[path] == jute.AddWatchRecursive {
			r.Recursive = append(r.Recursive, path)
		} else {
			r.Persistent = append(r.Persistent, path)
		}
	}
	return &history.Op{Step: history.Step{Op: jute.OpSetWatches2}, Watches: r}
}

func keysOf(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
