package acl

import (
	"strings"

	"github.com/zlockd/zlockd/jute"
)

func hasScheme(ids []jute.ID, scheme string) bool {
	for i := range ids {
		if ids[i].Scheme == scheme {
			return true
		}
	}
	return false
}

// MaxEntries and MaxBytes bound an ACL after expansion. Every server must apply the same bounds, so they are
// constants.
const (
	MaxEntries = jute.KeptACL - 1
	MaxBytes   = 64 << 10
)

// Fix checks the ACL that a client with the identities `ids` gives to a node and returns the ACL to store:
// without duplicates, and with "auth" replaced by the client's identities. `nullID` says that some id in the
// ACL was null. Fix answers INVALIDACL, or MARSHALLINGERROR for a null id on which ZooKeeper fails. The
// result may share memory with the arguments.
func Fix(acl []jute.ACL, ids []jute.ID, nullID bool) ([]jute.ACL, jute.ErrCode) {
	if len(acl) == 0 || len(acl) > MaxEntries {
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
	if len(acl) > MaxEntries || size > MaxBytes {
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
		// A sasl or x509 entry is valid if the scheme is configured. The client's identity of this scheme
		// shows that it is. All servers decide in the same way.
		return hasScheme(ids, a.Scheme)
	}
	return false
}

// validDigest accepts two parts with one colon between them. Like ZooKeeper, it ignores empty parts at the
// end.
func validDigest(id string) bool {
	id = strings.TrimRight(id, ":")
	_, rest, ok := strings.Cut(id, ":") // the user may be empty
	return ok && !strings.Contains(rest, ":")
}

// unique() drops exact duplicates. It keeps the first of equal entries.
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

// expandAuth replaces each "auth" entry by one entry for each identity that the client has proved. An address
// does not count as proved.
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
		if len(out) > MaxEntries {
			break // the caller refuses such a long list
		}
	}
	return out
}
