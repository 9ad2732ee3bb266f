package server

import (
	"crypto/subtle"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/tree"
)

// Limits of authentication on one connection.
const (
	maxAuths = 100
	maxIDs   = 32
)

// superID passes every check.
var superID = jute.ID{Scheme: "super"}

// auth adds to who the client is. A failure is answered, and the connection
// closed after a moment, which makes guessing slow; the session lives on.
func (c *conn) auth(xid int32, body []byte) bool {
	d := jute.NewDecoder(body)
	d.Int() // a type nobody uses
	scheme, _ := d.String()
	credentials := d.Buffer()
	c.auths++
	if d.Err() != nil || credentials == nil {
		c.finishReplies(endMalformed)
		return false
	}
	ids, ok := c.prove(scheme, string(credentials))
	if !ok || c.auths > maxAuths || len(ids) > maxIDs {
		return c.authFailed(xid, scheme)
	}
	c.setIDs(ids)
	return c.reply(xid, jute.OpAuth, 0, jute.OK, nil)
}

// prove returns who the client is if the credentials hold.
func (c *conn) prove(scheme, credentials string) ([]jute.ID, bool) {
	ids := slices.Clone(*c.ids.Load())
	add := func(id jute.ID) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	switch scheme {
	case "ip": // the address is known without being told
	case "digest":
		id := tree.DigestID(credentials)
		add(id)
		if c.srv.isSuper(id, credentials) {
			add(superID)
		}
	default:
		return nil, false
	}
	return ids, true
}

// isSuper reports whether a digest identity is the configured super user's.
func (s *Server) isSuper(id jute.ID, credentials string) bool {
	_, password, _ := strings.Cut(credentials, ":")
	return s.o.SuperDigest != "" && password != "" &&
		subtle.ConstantTimeCompare([]byte(id.ID), []byte(s.o.SuperDigest)) == 1
}

func (c *conn) authFailed(xid int32, scheme string) bool {
	c.srv.metrics.AuthFailed.Add(1)
	c.srv.log.info("authentication failed", "addr", c.host, "scheme", scheme)
	if !c.reply(xid, jute.OpAuth, 0, jute.AuthFailed, nil) {
		return false
	}
	c.flush()
	select {
	case <-time.After(authPenalty):
	case <-c.srv.ctx.Done():
	}
	c.last(nil, endAuth)
	return false
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
