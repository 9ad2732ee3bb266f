package acl

import (
	"strings"
	"unsafe"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/digest"
)

// Schemes of identities and ACL entries.
const (
	schemeWorld  = "world"
	schemeAuth   = "auth"
	schemeDigest = "digest"
	schemeIP     = "ip"
	schemeSASL   = "sasl"
	schemeX509   = "x509"
	schemeSuper  = "super"
)

// Set is one distinct ACL, shared by all nodes that have it. It is parsed when it is stored, so
// that a permission check costs next to nothing, however many entries it has. It never changes: an
// event or a snapshot may keep it.
type Set struct {
	list []jute.ACL // the strings of the list are parts of `key`
	key  string     // the encoded list
	refs int        // number of nodes with this ACL; at 0 the table drops the ACL
	sum  uint64     // hash of key, for the digest of the tree

	hash   uint64 // hash of key, for the tree's table of ACLs
	listed bool   // the ACL is in the table

	anyone int32             // what every client may do
	proved map[jute.ID]int32 // what a client with this digest, sasl or x509 identity may do
	sasl   int32             // what any sasl entry allows; the sasl super user may do all of that
	// the ranges of ip entries, sorted by first address; a range comes before the ranges that it contains
	ranges []addrRange
}

// New returns the ACL with the given entries.
func New(list []jute.ACL) *Set { return parse(string(jute.AppendACL(nil, list))) }

// parse() returns the ACL of a well-formed encoded list.
func parse(key string) *Set {
	d := jute.NewDecoder(unsafe.Slice(unsafe.StringData(key), len(key)))
	list, _ := d.ACL()
	a := &Set{list: list, key: key}
	var sum digest.Sum
	sum.Text(key)
	a.sum = uint64(sum)
	for i := range list {
		a.enter(&list[i])
	}
	a.nest()
	return a
}

// enter() stores an entry for Grants if a client can match it.
func (a *Set) enter(e *jute.ACL) {
	switch e.Scheme {
	case schemeWorld:
		if e.ID.ID == "anyone" {
			a.anyone |= e.Perms
		}
	case schemeIP:
		if p, ok := parseRange(e.ID.ID); ok {
			first := addressNumber(p.Masked().Addr())
			a.ranges = append(a.ranges, addrRange{first: first, last: first | (1<<(32-p.Bits()) - 1), perms: e.Perms})
		}
	case schemeDigest, schemeSASL, schemeX509:
		if a.proved == nil {
			a.proved = make(map[jute.ID]int32)
		}
		a.proved[e.ID] |= e.Perms
		if e.Scheme == schemeSASL {
			a.sasl |= e.Perms
		}
	}
}

// List returns the entries. They must not be changed.
func (a *Set) List() []jute.ACL { return a.list }

// Key returns the encoded list. Two ACLs with the same key are the same ACL.
func (a *Set) Key() string { return a.key }

// Sum returns a hash of the key that is the same on every server.
func (a *Set) Sum() uint64 { return a.sum }

// Nodes returns how many nodes have the ACL.
func (a *Set) Nodes() int { return a.refs }

// Grants returns every permission that a client with the identities ids has. It
// is the one permission check: reads, writes and events all come here.
func (a *Set) Grants(ids []jute.ID) int32 {
	if len(a.list) == 0 {
		return -1
	}
	perms := a.anyone
	for i := range ids {
		switch id := &ids[i]; id.Scheme {
		case schemeSuper:
			return -1
		case schemeIP:
			perms |= a.address(id.ID)
		case schemeSASL:
			if id.ID == schemeSuper {
				perms |= a.sasl
			}
			perms |= a.proved[*id]
		case schemeDigest, schemeX509:
			perms |= a.proved[*id]
		}
	}
	return perms
}

// Allows reports whether a client with the identities ids has one of the permissions in perm.
func (a *Set) Allows(ids []jute.ID, perm int32) bool { return a.Grants(ids)&perm != 0 }

// AppendFor appends the encoded list as a client with the identities ids sees it.
func (a *Set) AppendFor(b []byte, ids []jute.ID) []byte {
	if a.Allows(ids, jute.PermAdmin) {
		return append(b, a.key...)
	}
	b = jute.AppendInt(b, int32(len(a.list)))
	for i := range a.list {
		e := &a.list[i]
		user, rest := hidden(e.ID)
		b = jute.AppendInt(b, e.Perms)
		b = jute.AppendString(b, e.Scheme)
		b = jute.AppendInt(b, int32(len(user)+len(rest)))
		b = append(append(b, user...), rest...)
	}
	return b
}

// hidden() returns id as a client without ADMIN sees it: without the hash of a digest, from which a password
// could be guessed.
func hidden(id jute.ID) (user, rest string) {
	if id.Scheme != schemeDigest {
		return id.ID, ""
	}
	user, _, _ = strings.Cut(id.ID, ":")
	return user, ":x"
}
