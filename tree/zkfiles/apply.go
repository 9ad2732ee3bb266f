package zkfiles

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// GapError says that transactions are missing between two zxids.
type GapError struct{ Last, Next int64 }

func (e *GapError) Error() string {
	return fmt.Sprintf("the log goes on with zxid 0x%x behind 0x%x: what lies between is missing", e.Next,
		e.Last)
}

// follows reports whether nothing is missing between two zxids: they count up by one, and from one
// in every epoch.
func follows(last, next int64) bool {
	if next>>32 == last>>32 {
		return next == last+1
	}
	return next>>32 > last>>32 && next&0xffffffff <= 1
}

// Apply brings the tree forward by one transaction. It passes over a transaction that the tree has
// already, and returns a *GapError for one that does not follow.
//
// The nodes of the snapshot may already have a transaction's change, or have it undone: as in
// ZooKeeper that is no error.
func (t *Tree) Apply(x *Txn) error {
	if x.Zxid <= t.Zxid {
		return nil
	}
	if !follows(t.Zxid, x.Zxid) {
		return &GapError{t.Zxid, x.Zxid}
	}
	failed := x.Type == jute.OpMulti && slices.ContainsFunc(x.Ops, func(o Op) bool {
		return o.Type == jute.OpError
	})
	for i := range x.Ops {
		if !failed {
			t.apply(x, &x.Ops[i])
		}
	}
	t.Zxid = x.Zxid
	if err := t.compare(); err != nil {
		return err
	}
	if d := x.Digest; d != nil && d.Version == digestVersion && t.exact && t.expected == nil && d.Sum != t.sum &&
		t.odd == 0 {
		return fmt.Errorf("behind transaction 0x%x the tree has the digest %x, its ZooKeeper had %x: a file was "+
			"changed or exchanged", x.Zxid, t.sum, d.Sum)
	}
	return nil
}

func (t *Tree) apply(x *Txn, o *Op) {
	switch o.Type {
	case OpCreateSession:
		t.Sessions[x.Session] = o.Timeout
	case jute.OpCloseSession:
		delete(t.Sessions, x.Session)
		own := t.ephemerals[x.Session]
		for _, path := range o.Paths {
			t.delete(path, x.Zxid)
		}
		for path := range own {
			t.delete(path, x.Zxid)
		}
	case jute.OpDelete, jute.OpDeleteContainer:
		t.delete(o.Path, x.Zxid)
	case jute.OpSetData, jute.OpReconfig:
		if n := t.Nodes[o.Path]; n != nil {
			t.sub(o.Path, n)
			n.Data, n.Version, n.Mzxid, n.Mtime = o.Data, o.Version, x.Zxid, x.Time
			t.add(o.Path, n)
		}
	case jute.OpSetACL:
		if n := t.Nodes[o.Path]; n != nil {
			t.sub(o.Path, n)
			n.ACL, n.Aversion = t.intern(o.ACL), o.Version
			t.add(o.Path, n)
		}
	}
	if o.Create() {
		t.create(x, o)
	}
}

func (t *Tree) create(x *Txn, o *Op) {
	name := Parent(o.Path)
	parent := t.Nodes[name]
	if parent == nil {
		return // it was deleted later, and the snapshot knows that
	}
	exists := t.Nodes[o.Path] != nil
	if exists && o.Type != jute.OpCreate {
		return
	}
	t.sub(name, parent)
	cversion := o.Cversion
	if cversion == -1 {
		cversion = parent.Counter + 1
	}
	if cversion > parent.Counter {
		parent.Counter, parent.Pzxid = cversion, x.Zxid
	}
	t.add(name, parent)
	if exists {
		return
	}
	n := &tree.Info{Data: o.Data, ACL: t.intern(o.ACL), Stat: jute.Stat{Czxid: x.Zxid, Mzxid: x.Zxid,
		Pzxid: x.Zxid, Ctime: x.Time, Mtime: x.Time}}
	switch {
	case o.Type == jute.OpCreateTTL:
		n.Kind, n.TTL = tree.TTLNode, o.TTL
	case o.Type == jute.OpCreateContainer:
		n.Kind = tree.ContainerNode
	case o.Ephemeral:
		n.Kind, n.EphemeralOwner = tree.EphemeralNode, x.Session
	}
	t.put(o.Path, n)
	if p, ok := quotaOf(o.Path, statsName); ok {
		t.counted[p] = struct{}{}
	}
}

func (t *Tree) delete(path string, zxid int64) {
	name := Parent(path)
	parent := t.Nodes[name]
	if parent == nil || path == "/" {
		return
	}
	if zxid > parent.Pzxid {
		t.sub(name, parent)
		parent.Pzxid = zxid
		t.add(name, parent)
	}
	if n := t.Nodes[path]; n != nil {
		t.drop(path, n)
	}
}

// Quotas are counted in nodes of their own. No transaction holds the counts, so Recount makes them
// again at the end.
const (
	quotaPath  = "/zookeeper/quota"
	limitsName = "/zookeeper_limits"
	statsName  = "/zookeeper_stats"
)

// quotaOf returns the path of the quota that the node called name at path belongs to.
func quotaOf(path, name string) (string, bool) {
	p, ok := strings.CutPrefix(path, quotaPath+"/")
	if !ok {
		return "", false
	}
	p, ok = strings.CutSuffix("/"+p, name)
	return p, ok && p != ""
}

// Recount fills in the counts of quotas from the nodes, as ZooKeeper does when it has loaded its
// data.
func (t *Tree) Recount() {
	type use struct{ count, bytes int64 }
	uses := map[string]*use{}
	for p := range t.quotas {
		uses[p] = &use{}
	}
	for p := range t.counted {
		uses[p] = &use{}
	}
	if len(uses) == 0 {
		return
	}
	for path, n := range t.Nodes {
		for p := path; p != "/"; p = Parent(p) {
			if u := uses[p]; u != nil {
				u.count++
				u.bytes += int64(len(n.Data))
			}
		}
	}
	for p, u := range uses {
		if n := t.Nodes[quotaPath+p+statsName]; n != nil {
			n.Data = fmt.Appendf(nil, "count=%d,bytes=%d", u.count, u.bytes)
		}
	}
}
