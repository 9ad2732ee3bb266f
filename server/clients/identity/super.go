// Package identity determines what a client has proved of itself: its identities, and whether it is the
// super user.
package identity

import (
	"crypto/subtle"
	"strings"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree/acl"
)

// Schemes of the identities that clients prove.
const (
	Digest = "digest"
	SASL   = "sasl"
	X509   = "x509"
)

// Super names the super user in each scheme. A scheme whose text is empty has no super user.
type Super struct {
	Digest string // the digest identity, as acl.DigestID makes it
	SASL   string // the name of the SASL user
	X509   string // the subject of the certificate
}

// Is reports whether a proved identity is the super user's. It never matches an empty text, neither in the
// options nor in the identity. So that this holds everywhere, all schemes and ports call Is.
func (s Super) Is(id jute.ID) bool {
	var super string
	switch id.Scheme {
	case Digest:
		super = s.Digest
		user, _, _ := strings.Cut(id.ID, ":")
		if user == "" || id == acl.DigestID(user) || id == acl.DigestID(user+":") {
			return false // a digest without a name or a password never matches
		}
	case SASL:
		super = s.SASL
	case X509:
		super = s.X509
	}
	return super != "" && id.ID != "" && subtle.ConstantTimeCompare([]byte(id.ID), []byte(super)) == 1
}

// HasPassword reports whether a user with this password is the super user.
func (s Super) HasPassword(user, password string) bool {
	return s.Is(acl.DigestID(user + ":" + password))
}
