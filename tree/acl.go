package tree

import (
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"
	"unsafe"

	"github.com/zlockd/zlockd/jute"
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

// Allowed tells whether somebody with the identities ids may do what any of
// the bits of perm stands for, under acl. It is the one permission check:
// reads, writes and the delivery of events all come here.
func Allowed(acl []jute.ACL, ids []jute.ID, perm int32) bool {
	if len(acl) == 0 || hasScheme(ids, schemeSuper) {
		return true
	}
	if QuicklyAllowed(acl, ids) {
		return allowedFew(acl, ids, perm)
	}
	return allowedMany(acl, ids, perm)
}

// QuicklyAllowed tells whether Allowed takes no longer than it does for nearly
// everybody; else its answer is worth keeping.
func QuicklyAllowed(acl []jute.ACL, ids []jute.ID) bool { return len(acl)*len(ids) <= fewPairs }

// fewPairs is how many pairs of entry and identity are compared one by one. An
// ACL of a thousand entries and a client of 64 identities are both allowed, but
// not that one request after another takes milliseconds with the log waiting.
const fewPairs = 64

// asked is what the ACL that was asked about last allows somebody: one request may
// ask ten thousand times.
type asked struct {
	acl  *aclSet
	perm int32
	ok   bool
}

// allows is Allowed for the ACL of a node. The identities are always the same.
func (a *asked) allows(n *node, ids []jute.ID, perm int32) bool {
	if a.acl != n.acl || a.perm != perm {
		*a = asked{n.acl, perm, Allowed(n.acl.list, ids, perm)}
	}
	return a.ok
}

// anyone tells whether an entry is for everybody.
func anyone(a *jute.ACL) bool { return a.Scheme == schemeWorld && a.ID.ID == "anyone" }

// allowedMany is Allowed for a client with many identities.
func allowedMany(acl []jute.ACL, ids []jute.ID, perm int32) bool {
	proved := make(map[jute.ID]bool, len(ids))
	for _, id := range ids {
		proved[id] = true
	}
	for i := range acl {
		a := &acl[i]
		if a.Perms&perm == 0 {
			continue
		}
		switch a.Scheme {
		case schemeSASL:
			if proved[a.ID] || proved[jute.ID{Scheme: schemeSASL, ID: schemeSuper}] {
				return true
			}
		case schemeDigest, schemeX509:
			if proved[a.ID] {
				return true
			}
		case schemeIP:
			if slices.ContainsFunc(ids, func(id jute.ID) bool { return id.Scheme == schemeIP && inRange(id.ID, a.ID.ID) }) {
				return true
			}
		default:
			if anyone(a) {
				return true
			}
		}
	}
	return false
}

// allowedFew is Allowed for the usual client.
func allowedFew(acl []jute.ACL, ids []jute.ID, perm int32) bool {
	for i := range acl {
		a := &acl[i]
		if a.Perms&perm == 0 {
			continue
		}
		if anyone(a) {
			return true
		}
		for j := range ids {
			if ids[j].Scheme == a.Scheme && matches(a.Scheme, ids[j].ID, a.ID.ID) {
				return true
			}
		}
	}
	return false
}

func hasScheme(ids []jute.ID, scheme string) bool {
	for i := range ids {
		if ids[i].Scheme == scheme {
			return true
		}
	}
	return false
}

// matches tells whether the identity id of a connection is the one that an
// ACL entry of the same scheme names.
func matches(scheme, id, entry string) bool {
	switch scheme {
	case schemeDigest:
		return subtle.ConstantTimeCompare(bytesOf(id), bytesOf(entry)) == 1
	case schemeIP:
		return inRange(id, entry)
	case schemeSASL:
		return id == entry || id == schemeSuper
	case schemeX509:
		return id == entry
	}
	return false
}

// bytesOf views a string as bytes that must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// stringOf views bytes that do not change while the string is in use.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// inRange tells whether the address addr is in the range of an ACL entry. As
// in the reference only IPv4 can match; an address mapped into IPv6 counts as
// what it maps.
func inRange(addr, entry string) bool {
	p, ok := parseRange(entry)
	if !ok {
		return false
	}
	a, err := netip.ParseAddr(addr)
	return err == nil && p.Contains(a.Unmap())
}

// parseRange reads "a.b.c.d" or "a.b.c.d/bits".
func parseRange(s string) (netip.Prefix, bool) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		return netip.PrefixFrom(a, 32), err == nil && a.Is4()
	}
	p, err := netip.ParsePrefix(s)
	return p, err == nil && p.Addr().Is4()
}

// DigestID returns the identity that the credentials "user:password" prove in
// the digest scheme. Without a colon the user is everything.
func DigestID(credentials string) jute.ID {
	user, _, _ := strings.Cut(credentials, ":")
	sum := sha1.Sum([]byte(credentials))
	return jute.ID{Scheme: schemeDigest, ID: user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
}

// FixACL checks the ACL that somebody with the identities ids gives to a node
// and returns what is to be stored: without duplicates, and with "auth"
// replaced by who the asker is. nullID tells that some id in it was null. It
// answers INVALIDACL, or MARSHALLINGERROR where the reference stumbles over a
// null id. The result may share memory with the arguments.
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
		case nullID && a.ID.ID == "" && (a.Scheme == schemeWorld || a.Scheme == schemeDigest || a.Scheme == schemeIP):
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
		// Valid where the scheme is configured. An asker that proved an
		// identity of it shows that it is, and every server sees the same.
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

// expandAuth replaces each "auth" entry by one for every identity the asker
// proved; an address is not proof.
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

// hidden returns id as somebody without ADMIN sees it: the hash of a digest
// is a secret worth guessing at.
func hidden(id jute.ID) (user, rest string) {
	if id.Scheme != schemeDigest {
		return id.ID, ""
	}
	user, _, _ = strings.Cut(id.ID, ":")
	return user, ":x"
}
