package history

import "github.com/zlockd/zlockd/jute"

// Watches are the watches of a client, as client libraries keep them: the client renews them
// on the next connection.
type Watches struct {
	data, exist, child map[string]bool
	lasting            map[string]int32 // persistent and recursive watches, by path: the mode
}

// NewWatches returns the watches of a new session, which has none.
func NewWatches() Watches {
	return Watches{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]int32{}}
}

// Lasting returns how many persistent and recursive watches there are.
func (w *Watches) Lasting() int { return len(w.lasting) }

// Answered records the watch that a request has set.
func (w *Watches) Answered(op *Op) {
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

// Fired removes the watches that an event uses up.
func (w *Watches) Fired(t jute.EventType, path string) {
	if t == jute.EventChildrenChanged || t == jute.EventDeleted {
		delete(w.child, path)
	}
	if t != jute.EventChildrenChanged {
		delete(w.data, path)
		delete(w.exist, path)
	}
}

// Request returns the request that renews the watches, nil if there are none.
func (w *Watches) Request(zxid int64) *Op {
	if len(w.data)+len(w.exist)+len(w.child)+len(w.lasting) == 0 {
		return nil
	}
	r := &jute.SetWatches{RelativeZxid: zxid, Data: sorted(w.data), Exist: sorted(w.exist),
		Child: sorted(w.child)}
	for _, path := range sorted(w.lasting) {
		if w.lasting[path] == jute.AddWatchRecursive {
			r.Recursive = append(r.Recursive, path)
		} else {
			r.Persistent = append(r.Persistent, path)
		}
	}
	return &Op{Step: Step{Op: jute.OpSetWatches2}, Watches: r}
}
