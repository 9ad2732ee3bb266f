package tree

import "github.com/zlockd/zlockd/jute"

// aclSet is one distinct ACL, shared by all nodes that have it. It never
// changes, so an event or a snapshot may keep its list for as long as it
// likes.
type aclSet struct {
	list []jute.ACL // its strings are parts of key
	key  string     // the encoded list
	refs int        // nodes that have it; at 0 it leaves the table
}

// aclTable finds the aclSet of an encoded ACL.
type aclTable map[string]*aclSet

// intern returns the set of acl. Nodes that take it say so with retain.
func (t aclTable) intern(acl []jute.ACL) *aclSet {
	var room [128]byte
	key := jute.AppendACL(room[:0], acl)
	if a := t[string(key)]; a != nil {
		return a
	}
	a := newACLSet(string(key))
	t[a.key] = a
	return a
}

// newACLSet returns the set of a well-formed encoded list.
func newACLSet(key string) *aclSet {
	d := jute.NewDecoder(bytesOf(key))
	list, _ := d.ACL()
	return &aclSet{list: list, key: key}
}

// retain counts a node that has a.
func (t aclTable) retain(a *aclSet) {
	a.refs++
	if a.refs == 1 {
		t[a.key] = a
	}
}

// release ends what retain began.
func (t aclTable) release(a *aclSet) {
	a.refs--
	if a.refs == 0 {
		delete(t, a.key)
	}
}

// sweep drops sets that no node has.
func (t aclTable) sweep() {
	for key, a := range t {
		if a.refs == 0 {
			delete(t, key)
		}
	}
}
