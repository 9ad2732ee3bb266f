package acl

import (
	"crypto/sha1"
	"encoding/base64"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Super passes every check. A server uses it to read and change nodes on its own account. A client that is
// the super user has Super besides its other identities.
var Super = []jute.ID{{Scheme: schemeSuper}}

// DigestID returns the identity that the credentials "user:password" prove in the digest scheme.
// Without a colon all of the text is the user.
func DigestID(credentials string) jute.ID {
	user, _, _ := strings.Cut(credentials, ":")
	sum := sha1.Sum([]byte(credentials))
	return jute.ID{Scheme: schemeDigest, ID: user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
}

// Asker caches the permissions that ACLs give the client of a request, because one request may ask tens of
// thousands of times.
type Asker struct {
	last  *Set
	perms int32          // what the ACL in `last` grants
	known map[*Set]int32 // only for clients with many identities
}

// The permissions of a client with at most fewIDs identities are computed each time and not cached.
const fewIDs = 4

// Recalls reports whether the last call of Allows was about this ACL. If so, another call costs nothing.
func (a *Asker) Recalls(acl *Set) bool { return a.last == acl }

// Allows reports whether an ACL gives a client one of the permissions in perm. The identities are
// the same in every call.
func (a *Asker) Allows(acl *Set, ids []jute.ID, perm int32) bool {
	if a.last != acl {
		a.last, a.perms = acl, a.grants(acl, ids)
	}
	return a.perms&perm != 0
}

func (a *Asker) grants(acl *Set, ids []jute.ID) int32 {
	if len(ids) <= fewIDs {
		return acl.Grants(ids)
	}
	perms, known := a.known[acl]
	if !known {
		if a.known == nil {
			a.known = make(map[*Set]int32)
		}
		perms = acl.Grants(ids)
		a.known[acl] = perms
	}
	return perms
}
