package zk

import (
	"crypto/sha1"
	"encoding/base64"

	"github.com/zlockd/zlockd/jute"
)

// ACL grants permissions to an identity.
type ACL = jute.ACL

// ID is an identity.
type ID = jute.ID

// The permissions of an ACL.
const (
	PermRead   = jute.PermRead
	PermWrite  = jute.PermWrite
	PermCreate = jute.PermCreate
	PermDelete = jute.PermDelete
	PermAdmin  = jute.PermAdmin
	PermAll    = jute.PermAll
)

// WorldACL lets every client do what perms says.
func WorldACL(perms int32) []ACL { return []ACL{{Perms: perms, ID: ID{Scheme: "world", ID: "anyone"}}} }

// AuthACL lets the creator of the node do what perms says: every client with an identity that the
// creator presented before.
func AuthACL(perms int32) []ACL { return []ACL{{Perms: perms, ID: ID{Scheme: "auth"}}} }

// DigestACL lets clients that know the user's password do what perms says.
func DigestACL(perms int32, user, password string) []ACL {
	sum := sha1.Sum([]byte(user + ":" + password)) // as the protocol has it
	return []ACL{{Perms: perms, ID: ID{Scheme: "digest", ID: user + ":" + base64.StdEncoding.EncodeToString(
		sum[:])}}}
}
