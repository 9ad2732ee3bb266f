package history

import (
	"reflect"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/rights"
	"github.com/zlockd/zlockd/tree/watches"
)

// The model keeps the ACL of each node; nil stands for the open ACL. Unanswered writes may have changed it
// since, so a node can have several possible ACLs. The checker reports only what none of them explains.

// normal returns nil for the open ACL, and acl otherwise.
func normal(acl []jute.ACL) []jute.ACL {
	if len(acl) == 1 && acl[0] == jute.WorldAnyone[0] {
		return nil
	}
	return acl
}

// ids returns the identities of a connection's client.
func (c *checker) ids(conn int) []jute.ID {
	if k := c.conns[conn]; k != nil {
		return k.ids
	}
	return nil
}

// eachACL calls f with each ACL that n may have at zxid, until f returns false.
func (c *checker) eachACL(n *node, zxid int64, f func(acl []jute.ACL) bool) {
	if !f(n.acl) {
		return
	}
	for _, list := range [][]*looseStep{c.loose.acls[n.path], c.loose.creates[n.path],
		c.loose.seqs[parentOf(n.path)]} {
		for _, l := range list {
			if !l.within(n.aclFrom, zxid) || isCreate(l.Op) && !l.makes(n.path, nil) {
				continue
			}
			if !f(normal(l.ACL)) {
				return
			}
		}
	}
}

// may() reports whether the ACL of n can let the client of a connection do something at zxid, and whether it
// can refuse.
func (c *checker) may(n *node, conn int, perm int32, zxid int64) (yes, no bool) {
	ids := c.ids(conn)
	c.eachACL(n, zxid, func(acl []jute.ACL) bool {
		if acl == nil || rights.Allowed(acl, ids, perm) {
			yes = true
		} else {
			no = true
		}
		return !yes || !no
	})
	return yes, no
}

// allowed() checks that a client could do what it did.
func (c *checker) allowed(n *node, conn int, perm int32, zxid int64, record int) {
	if n == nil {
		return
	}
	if yes, _ := c.may(n, conn, perm, zxid); !yes {
		c.fail("G6", record, "the ACL of %s, %v, forbids it to the client with the identities %v", n.path, n.acl,
			c.ids(conn))
	}
}

// denied() checks that a client could be refused for the lack of a permission.
func (c *checker) denied(n *node, conn int, perm int32, zxid int64, record int) {
	if n == nil {
		return
	}
	if _, no := c.may(n, conn, perm, zxid); !no {
		c.fail("G6", record, "the ACL of %s, %v, allows it to the client with the identities %v", n.path, n.acl,
			c.ids(conn))
	}
}

// needs returns the permission that a step needs, and the node whose ACL must give it.
func (s *Step) needs() (path string, perm int32) {
	switch s.Op {
	case jute.OpDelete:
		return parentOf(s.Path), jute.PermDelete
	case jute.OpSetData:
		return s.Path, jute.PermWrite
	case jute.OpSetACL:
		return s.Path, jute.PermAdmin
	case jute.OpGetACL:
		return s.Path, jute.PermRead | jute.PermAdmin
	case jute.OpExists:
		return s.Path, 0
	}
	if isCreate(s.Op) {
		return parentOf(s.Path), jute.PermCreate
	}
	return s.Path, jute.PermRead
}

// permitted() checks that the client of a connection could take a successful step after zxid.
func (c *checker) permitted(s *Step, conn int, zxid int64, record int) {
	if path, perm := s.needs(); c.within(path) && perm != 0 {
		c.allowed(c.model.nodes[path], conn, perm, zxid, record)
	}
}

// forbidden() checks that a step could be refused with NoAuth.
func (c *checker) forbidden(s *Step, conn int, zxid int64, record int) {
	if path, perm := s.needs(); c.within(path) {
		c.denied(c.there(path, zxid, record, "a request was refused because of its ACL"), conn, perm, zxid, record)
	}
}

// compareACL compares an ACL that was read with the possible ACLs of the node. Without ADMIN a client does
// not see the hashes of passwords.
func (c *checker) compareACL(n *node, read []jute.ACL, ids []jute.ID, zxid int64, record int) {
	read = normal(read)
	var fits [][]jute.ACL
	c.eachACL(n, zxid, func(acl []jute.ACL) bool {
		if reflect.DeepEqual(shown(acl, ids), read) {
			fits = append(fits, acl)
		}
		return true
	})
	if len(fits) == 0 {
		c.fail("G6", record, "%s: the ACL is %v, must be %v", n.path, read, n.acl)
		return
	}
	if len(fits) == 1 {
		n.acl, n.aclFrom = fits[0], zxid
	}
}

// shown() returns the part of an ACL that a client sees.
func shown(acl []jute.ACL, ids []jute.ID) []jute.ACL {
	if acl == nil || rights.Allowed(acl, ids, jute.PermAdmin) {
		return acl
	}
	acl = slices.Clone(acl)
	for i := range acl {
		if name, _, found := strings.Cut(acl[i].ID.ID, ":"); found && acl[i].Scheme == "digest" {
			acl[i].ID.ID = name + ":x"
		}
	}
	return acl
}

// hidden() reports whether the ACL of the node at path may hide the node's changes from the client of a
// connection. No event came when the client renewed its watch. So it is not known whether the watch is used
// up: either nothing has changed, or the client was not allowed to hear of it.
func (c *checker) hidden(path string, o *Op) (hidden bool) {
	if !c.within(path) {
		return false
	}
	n := c.model.nodes[path]
	if n == nil {
		n = &node{path: path}
	}
	_, hidden = c.may(n, o.Conn, jute.PermRead, o.Zxid)
	return hidden
}

// hide makes the watches doubtful that a change of n may have used up without an event.
func (c *checker) hide(typ jute.EventType, n *node, m moment) {
	for _, id := range sorted(c.conns) {
		if _, no := c.may(n, id, jute.PermRead, m.zxid); !no {
			continue
		}
		o := &Op{Conn: id}
		lists := typ == jute.EventDeleted || typ == jute.EventChildrenChanged
		if typ != jute.EventChildrenChanged && c.model.oneShot.Remove(id, n.path, jute.WatcherData) {
			c.doubt(o, n.path, watches.Data)
		}
		if lists && c.model.oneShot.Remove(id, n.path, jute.WatcherChildren) {
			c.doubt(o, n.path, watches.Child)
		}
	}
}

// doubt arms a watch that may be used up. From then on the model arms it again after each event, and every
// event of the path may come or not.
func (c *checker) doubt(o *Op, path string, k watches.Kind) {
	x := c.conns[o.Conn]
	if x.doubts == nil {
		x.doubts = map[string][]watches.Kind{}
	}
	if !slices.Contains(x.doubts[path], k) {
		x.doubts[path] = append(x.doubts[path], k)
	}
	c.rearm(o, path, k)
}
