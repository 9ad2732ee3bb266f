package nodes

import (
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
	"github.com/zlockd/zlockd/tree/watches"
)

// CatchUp compares the tree with the watches of a client that lost its connection at zxid r.RelativeZxid. It
// reports the events that the client missed and arms the watches that missed nothing. A change of a node that
// the client may not read also uses up the watch, but is not reported. The strings that arm() and tell() get
// share the memory of r.
func (t *Nodes) CatchUp(ids []jute.ID, r *jute.SetWatches,
	arm func(watches.Kind, string), tell func(jute.EventType, string)) {
	var asked acl.Asker
	changed := func(path string, k watches.Kind, e jute.EventType) {
		n := t.At(path)
		if n == nil {
			tell(jute.EventDeleted, path)
			return
		}
		last := n.Mzxid
		if k == watches.Child {
			last = n.Pzxid
		}
		switch {
		case last <= r.RelativeZxid:
			arm(k, path)
		case asked.Allows(n.ACL, ids, jute.PermRead):
			tell(e, path)
		}
	}
	for _, path := range r.Data {
		changed(path, watches.Data, jute.EventDataChanged)
	}
	for _, path := range r.Exist {
		if n := t.At(path); n == nil {
			arm(watches.Data, path)
		} else if asked.Allows(n.ACL, ids, jute.PermRead) {
			tell(jute.EventCreated, path)
		}
	}
	for _, path := range r.Child {
		changed(path, watches.Child, jute.EventChildrenChanged)
	}
	for _, path := range r.Persistent {
		arm(watches.Persistent, path)
	}
	for _, path := range r.Recursive {
		arm(watches.Recursive, path)
	}
}
