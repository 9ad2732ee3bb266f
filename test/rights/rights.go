// Package rights has the rule of ACLs in its simplest form, so that tests can compare other code with it.
package rights

import (
	"net"
	"strings"

	"github.com/zlockd/zlockd/jute"
)

// Allowed reports whether acl gives a client one of the permissions in perm. It follows ZooKeeper's
// documentation: it compares each entry with each identity.
func Allowed(acl []jute.ACL, ids []jute.ID, perm int32) bool {
	matches := func(a *jute.ACL, id jute.ID) bool {
		switch {
		case a.Scheme == "world":
			return a.ID.ID == "anyone"
		case a.Scheme != id.Scheme:
			return false
		case a.Scheme == "digest", a.Scheme == "x509":
			return a.ID.ID == id.ID
		case a.Scheme == "sasl":
			return a.ID.ID == id.ID || id.ID == "super"
		case a.Scheme == "ip":
			addr, bits, ranged := strings.Cut(a.ID.ID, "/")
			if !ranged {
				bits = "32"
			}
			_, network, err := net.ParseCIDR(addr + "/" + bits)
			return err == nil && strings.Contains(addr, ".") && network.Contains(net.ParseIP(id.ID))
		}
		return false
	}
	for _, id := range ids {
		if id.Scheme == "super" {
			return true
		}
	}
	for i := range acl {
		for _, id := range append([]jute.ID{{}}, ids...) {
			if acl[i].Perms&perm != 0 && matches(&acl[i], id) {
				return true
			}
		}
	}
	return len(acl) == 0
}
