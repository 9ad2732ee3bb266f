package clients

import (
	"crypto/fips140"
	"crypto/subtle"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/tree"
)

// Limits of authentication on one connection.
const (
	maxAuths   = 100
	maxIDs     = state.MaxIDs
	maxIDBytes = state.MaxIDBytes // of all identities together: they travel with every write
)

// superID passes every check.
var superID = jute.ID{Scheme: "super"}

// setIDs makes ids the client's identities.
func (c *conn) setIDs(ids []jute.ID) { c.ids.Store(inOrder(ids)) }

// addressIDs returns the identities of a client that has proved nothing: its address and, with
// SkipACL, the super user.
func (s *Server) addressIDs(host string) *[]jute.ID {
	ids := []jute.ID{{Scheme: "ip", ID: javaHost(host)}}
	if s.o.SkipACL {
		ids = append(ids, superID)
	}
	return inOrder(ids)
}

// javaHost writes an address as Java does: IPv6 in eight groups.
func javaHost(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Is4() {
		return host
	}
	var b []byte
	for group := range slices.Chunk(ip.AsSlice(), 2) {
		b = strconv.AppendUint(append(b, ':'), uint64(binary.BigEndian.Uint16(group)), 16)
	}
	return string(b[1:])
}

// inOrder brings identities into the order in which the reference keeps them:
// whoAmI shows it, and so does an ACL made of "auth".
func inOrder(ids []jute.ID) *[]jute.ID {
	buckets := jute.GrownTable(len(ids) + 1) // this kind of table grows one earlier
	jute.SortByBucket(ids, buckets, func(id jute.ID) int32 {
		return 37*(37*17+jute.JavaHash(id.Scheme)) + jute.JavaHash(id.ID)
	})
	return &ids
}

// auth adds to the client's identities. After a failure it answers, and closes the connection
// after a moment, which makes guessing slow; the session lives on.
func (c *conn) auth(xid int32, body []byte) bool {
	d := jute.NewDecoder(body)
	d.Int() // an unused type
	scheme, _ := d.String()
	credentials := d.Buffer()
	c.auths++
	if d.Err() != nil {
		c.finishReplies(endMalformed)
		return false
	}
	ids, ok := c.prove(scheme, credentials)
	if !ok || c.auths > maxAuths || tooMany(ids) {
		return c.authFailed(xid, scheme)
	}
	c.setIDs(ids)
	return c.reply(xid, jute.OpAuth, 0, jute.OK, nil)
}

// tooMany reports whether a client may not have all of these identities.
func tooMany(ids []jute.ID) bool {
	size := 0
	for i := range ids {
		size += len(ids[i].Scheme) + len(ids[i].ID)
	}
	return len(ids) > maxIDs || size > maxIDBytes
}

// prove returns the client's identities, and whether the credentials hold; they may be null.
func (c *conn) prove(scheme string, credentials []byte) ([]jute.ID, bool) {
	ids := slices.Clone(*c.ids.Load())
	add := func(id jute.ID) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	switch scheme {
	case "ip": // the address is known without being told
	case "digest":
		if credentials == nil || fips140.Enforced() {
			return nil, false
		}
		add(tree.DigestID(string(credentials)))
		if IsSuper(c.srv.o.SuperDigest, string(credentials)) {
			add(superID)
		}
	case "ensemble": // which proves nothing
		names := c.srv.o.EnsembleNames
		return ids, len(names) == 0 || len(credentials) == 0 || slices.Contains(names, string(credentials))
	default:
		return nil, false
	}
	return ids, true
}

// IsSuper reports whether credentials, user:password, are those of the super user with this
// digest. Without a digest it reports false.
func IsSuper(digest, credentials string) bool {
	_, password, _ := strings.Cut(credentials, ":")
	return digest != "" && password != "" &&
		subtle.ConstantTimeCompare([]byte(tree.DigestID(credentials).ID), []byte(digest)) == 1
}

func (c *conn) authFailed(xid int32, scheme string) bool {
	if scheme == "digest" && fips140.Enforced() {
		c.say("authentication failed: the scheme digest needs SHA-1, which fips140=only refuses")
	} else {
		c.say("authentication failed", "scheme", scheme)
	}
	c.srv.metrics.AuthFailed.Add(1)
	if !c.reply(xid, jute.OpAuth, 0, jute.AuthFailed, nil) {
		return false
	}
	c.flush()
	c.penalty()
	c.last(nil, endAuth)
	return false
}

// penalty makes guessing slow.
func (c *conn) penalty() {
	select {
	case <-time.After(authPenalty):
	case <-c.srv.ctx.Done():
	}
}

// appendWhoAmI appends the client's identities without their secrets.
func (c *conn) appendWhoAmI(b []byte) []byte {
	ids := *c.ids.Load()
	b = jute.AppendInt(b, int32(len(ids)))
	for _, id := range ids {
		user := id.ID
		if id.Scheme == "digest" {
			user, _, _ = strings.Cut(user, ":")
		}
		b = jute.AppendString(b, id.Scheme)
		b = jute.AppendString(b, user)
	}
	return b
}
