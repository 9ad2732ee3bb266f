package zkfiles

import (
	"fmt"
	"math"
	"slices"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/bounds"
)

// GapError says that transactions are missing between two zxids.
type GapError struct{ Last, Next int64 }

func (e *GapError) Error() string {
	return fmt.Sprintf("the log continues with zxid 0x%x after 0x%x: the transactions between them are "+
		"missing", e.Next,
		e.Last)
}

// follows() reports whether no transaction is missing between two zxids. Zxids count up by one, and begin at
// one in every epoch.
func follows(last, next int64) bool {
	if next>>32 == last>>32 {
		return next == last+1
	}
	return next>>32 > last>>32 && next&0xffffffff <= 1
}

// Apply brings the tree forward by one transaction. It ignores a transaction that the tree already has, and
// returns a *GapError if transactions before x are missing.
//
// The nodes of the snapshot may already contain a transaction's change, or a later change that undid it. As
// in ZooKeeper, that is not an error.
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
		if failed {
			break
		}
		if err := t.apply(x, &x.Ops[i]); err != nil {
			return fmt.Errorf("%q: %w", x.Ops[i].Path, err)
		}
	}
	t.Zxid = x.Zxid
	if err := t.compare(); err != nil {
		return err
	}
	if d := x.Digest; d != nil && d.Version == digestVersion && t.exact && t.expected == nil && d.Sum != t.sum &&
		t.odd == 0 {
		return fmt.Errorf("after transaction 0x%x the digest of the tree is %x, but its ZooKeeper had %x: "+
			"a file was changed or replaced", x.Zxid, t.sum, d.Sum)
	}
	return nil
}

func (t *Tree) apply(x *Txn, o *Op) error {
	switch o.Type {
	case OpCreateSession:
		t.Sessions[x.Session] = o.Timeout
	case jute.OpCloseSession:
		delete(t.Sessions, x.Session)
		for _, path := range slices.Concat(o.Paths, t.Nodes.SomeEphemeralsOf(x.Session, math.MaxInt)) {
			if err := t.delete(path, x.Zxid); err != nil {
				return err
			}
		}
	case jute.OpDelete, jute.OpDeleteContainer:
		return t.delete(o.Path, x.Zxid)
	case jute.OpSetData, jute.OpReconfig:
		return t.change(o.Path, func(n *tree.Info) {
			n.Data, n.Version, n.Mzxid, n.Mtime = o.Data, o.Version, x.Zxid, x.Time
		})
	case jute.OpSetACL:
		return t.change(o.Path, func(n *tree.Info) { n.ACL, n.Aversion = someACL(o.ACL), o.Version })
	}
	if o.Create() {
		return t.create(x, o)
	}
	return nil
}

// someACL returns `list`, or the list that allows everything if `list` is empty: both have the same effect.
func someACL(list []jute.ACL) []jute.ACL {
	if len(list) == 0 {
		return jute.WorldAnyone
	}
	return list
}

func (t *Tree) create(x *Txn, o *Op) error {
	name := bounds.ParentPath(o.Path)
	if _, there := t.Nodes.Get(name); !there {
		return nil // a later transaction deleted the parent; the snapshot already shows that
	}
	_, exists := t.Nodes.Get(o.Path)
	if exists && o.Type != jute.OpCreate {
		return nil
	}
	err := t.change(name, func(parent *tree.Info) {
		cversion := o.Cversion
		if cversion == -1 {
			cversion = parent.Counter + 1
		}
		if cversion > parent.Counter {
			parent.Counter, parent.Pzxid = cversion, x.Zxid
		}
	})
	if exists || err != nil {
		return err
	}
	n := &tree.Info{Data: o.Data, ACL: someACL(o.ACL), Stat: jute.Stat{Czxid: x.Zxid, Mzxid: x.Zxid,
		Pzxid: x.Zxid, Ctime: x.Time, Mtime: x.Time}}
	switch {
	case o.Type == jute.OpCreateTTL:
		n.Kind, n.TTL = tree.TTLNode, o.TTL
	case o.Type == jute.OpCreateContainer:
		n.Kind = tree.ContainerNode
	case o.Ephemeral:
		n.Kind, n.EphemeralOwner = tree.EphemeralNode, x.Session
	}
	return t.put(o.Path, n)
}

// delete() removes a node. A snapshot may already hold children of a later node with the same path. delete()
// removes them too; the log creates them again.
func (t *Tree) delete(path string, zxid int64) error {
	t.Nodes.Remove(path, func(path string, n *tree.Info) {
		t.sum -= digest(path, n)
		t.odd -= odd(path)
	})
	return t.change(bounds.ParentPath(path), func(parent *tree.Info) { parent.Pzxid = max(parent.Pzxid, zxid) })
}
