package tree

import "github.com/zlockd/zlockd/jute"

// CatchUp compares what a client watched when it lost its connection with the
// tree: it tells what the client missed and arms the watches that missed
// nothing. Nobody is told of a change to a node that they may not read; such a
// watch is used up all the same. The paths are parts of r.
func (t *Tree) CatchUp(ids []jute.ID, r *jute.SetWatches, arm func(WatchKind, string), tell func(jute.EventType, string)) {
	for _, path := range r.Data {
		t.catchUp(ids, path, Data, jute.EventDataChanged, r.RelativeZxid, arm, tell)
	}
	for _, path := range r.Exist {
		if n := t.find(path); n == nil {
			arm(Data, path)
		} else if Allowed(n.acl.list, ids, jute.PermRead) {
			tell(jute.EventCreated, path)
		}
	}
	for _, path := range r.Child {
		t.catchUp(ids, path, Child, jute.EventChildrenChanged, r.RelativeZxid, arm, tell)
	}
	for _, path := range r.Persistent {
		arm(Persistent, path)
	}
	for _, path := range r.Recursive {
		arm(Recursive, path)
	}
}

// catchUp decides on a data or child watch of a node that existed when zxid
// was the newest change the client had seen.
func (t *Tree) catchUp(ids []jute.ID, path string, k WatchKind, changed jute.EventType, zxid int64, arm func(WatchKind, string), tell func(jute.EventType, string)) {
	n := t.find(path)
	if n == nil {
		tell(jute.EventDeleted, path)
		return
	}
	last := n.mzxid
	if k == Child {
		last = n.pzxid
	}
	switch {
	case last <= zxid:
		arm(k, path)
	case Allowed(n.acl.list, ids, jute.PermRead):
		tell(changed, path)
	}
}
