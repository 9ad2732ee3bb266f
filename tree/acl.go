package tree

import (
	"crypto/sha1"
	"encoding/base64"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Super passes every check. A server uses it to read and change nodes on its own account; a client that is
// the super user has it in addition to its other identities.
var Super = []jute.ID{{Scheme: schemeSuper}}

// asker caches the permissions that ACLs give the client of a request, because one request may ask tens of
// thousands of times.
type asker struct {
	last  *ACL
	perms int32          // the permissions that last gives
	known map[*ACL]int32 // only for clients with many identities
}

// fewIDs is how many identities are looked up in an ACL each time.
const fewIDs = 4

// recalls reports whether allows was last asked about this ACL, so that its answer costs nothing.
func (a *asker) recalls(acl *ACL) bool { return a.last == acl }

// allows reports whether an ACL gives a client one of the permissions in perm. The identities are
// the same in every call.
func (a *asker) allows(acl *ACL, ids []jute.ID, perm int32) bool {
	if a.last != acl {
		a.last, a.perms = acl, a.grants(acl, ids)
	}
	return a.perms&perm != 0
}

func (a *asker) grants(acl *ACL, ids []jute.ID) int32 {
	if len(ids) <= fewIDs {
		return acl.Grants(ids)
	}
	perms, known := a.known[acl]
	if !known {
		if a.known == nil {
			a.known = make(map[*ACL]int32)
		}
		perms = acl.Grants(ids)
		a.known[acl] = perms
	}
	return perms
}

func hasScheme(ids []jute.ID, scheme string) bool {
	for i := range ids {
		if ids[i].Scheme == scheme {
			return true
		}
	}
	return false
}

// DigestID returns the identity that the credentials "user:password" prove in the digest scheme.
// Without a colon all of the text is the user.
func DigestID(credentials string) jute.ID {
	user, _, _ := strings.Cut(credentials, ":")
	sum := sha1.Sum([]byte(credentials))
	return jute.ID{Scheme: schemeDigest, ID: user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
}

// MaxACLEntries and MaxACLBytes bound an ACL after expansion. Every server must decide alike about them, so
// they are constants.
const (
	MaxACLEntries = jute.KeptACL - 1
	MaxACLBytes   = 64 << 10
)

// FixACL checks the ACL that a client with the identities ids gives to a node and returns the ACL to store:
// without duplicates, and with "auth" replaced by the client's identities. nullID says that some id in it was
// null. It answers INVALIDACL, or MARSHALLINGERROR for a null id on which ZooKeeper fails. The result may
// share memory with the arguments.
func FixACL(acl []jute.ACL, ids []jute.ID, nullID bool) ([]jute.ACL, jute.ErrCode) {
	if len(acl) == 0 || len(acl) > MaxACLEntries {
		return nil, jute.InvalidACL
	}
	acl = unique(acl)
	expand := false
	for i := range acl {
		a := &acl[i]
		switch {
		case a.Scheme == schemeAuth:
			expand = true
			if !hasScheme(ids, schemeDigest) && !hasScheme(ids, schemeSASL) && !hasScheme(ids, schemeX509) {
				return nil, jute.InvalidACL
			}
		case nullID && a.ID.ID == "" && (a.Scheme == schemeWorld || a.Scheme == schemeDigest ||
			a.Scheme == schemeIP):
			return nil, jute.MarshallingError
		case !validEntry(a, ids):
			return nil, jute.InvalidACL
		}
	}
	if expand {
		acl = expandAuth(acl, ids)
	}
	size := 4
	for i := range acl {
		size += 12 + len(acl[i].Scheme) + len(acl[i].ID.ID)
	}
	if len(acl) > MaxACLEntries || size > MaxACLBytes {
		return nil, jute.InvalidACL
	}
	return acl, jute.OK
}

func validEntry(a *jute.ACL, ids []jute.ID) bool {
	switch a.Scheme {
	case schemeWorld:
		return a.ID.ID == "anyone"
	case schemeDigest:
		return validDigest(a.ID.ID)
	case schemeIP:
		_, ok := parseRange(a.ID.ID)
		return ok
	case schemeSASL, schemeX509:
		// Such an entry is valid if the scheme is configured. A client that has proved an identity of the
		// scheme shows that it is. All servers decide in the same way.
		return hasScheme(ids, a.Scheme)
	}
	return false
}

// validDigest wants exactly two parts around a colon, not counting empty ones
// at the end, which is what the reference's splitting amounts to.
func validDigest(id string) bool {
	id = strings.TrimRight(id, ":")
	_, rest, ok := strings.Cut(id, ":") // the user may be empty
	return ok && !strings.Contains(rest, ":")
}

// unique drops exact duplicates and keeps the first of each.
func unique(acl []jute.ACL) []jute.ACL {
	if len(acl) == 1 {
		return acl
	}
	seen := make(map[jute.ACL]struct{}, len(acl))
	out := make([]jute.ACL, 0, len(acl))
	for _, a := range acl {
		if _, dup := seen[a]; !dup {
			seen[a] = struct{}{}
			out = append(out, a)
		}
	}
	return out
}

// expandAuth replaces each "auth" entry by one for every identity that the client proved; an
// address is not proof.
func expandAuth(acl []jute.ACL, ids []jute.ID) []jute.ACL {
	out := make([]jute.ACL, 0, len(acl)+len(ids))
	for _, a := range acl {
		if a.Scheme != schemeAuth {
			out = append(out, a)
			continue
		}
		for _, id := range ids {
			switch id.Scheme {
			case schemeDigest, schemeSASL, schemeX509:
				out = append(out, jute.ACL{Perms: a.Perms, ID: id})
			}
		}
		if len(out) > MaxACLEntries {
			break // the caller refuses it anyway
		}
	}
	return out
}
