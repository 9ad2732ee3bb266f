package conn

import (
	"crypto/fips140"
	"errors"
	"slices"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/tree/acl"
)

// maxAuths bounds the authentications on one connection.
const maxAuths = 100

// auth adds to the client's identities. After a failure it answers, waits a moment to slow down guesses, and
// closes the connection; the session stays alive.
func (c *Conn) auth(xid int32, body []byte) bool {
	d := jute.NewDecoder(body)
	d.Int() // an unused type
	scheme, _ := d.String()
	credentials := d.Buffer()
	c.proof.auths++
	if d.Err() != nil {
		c.out.Last(nil, ends.Malformed)
		return false
	}
	if c.proof.auths > maxAuths || !c.prove(scheme, credentials) {
		return c.authFailed(xid, scheme)
	}
	return c.reply(xid, jute.OpAuth, 0, jute.OK, nil)
}

// prove reports whether the credentials, which may be null, are valid, and adds the identity that they prove.
func (c *Conn) prove(scheme string, credentials []byte) bool {
	switch scheme {
	case "ip": // the server knows the address itself
		return true
	case identity.Digest:
		return credentials != nil && !fips140.Enforced() && c.proved(acl.DigestID(string(credentials)))
	case "ensemble": // a name of an ensemble proves no identity
		names := c.shared.Options.EnsembleNames
		return len(names) == 0 || len(credentials) == 0 || slices.Contains(names, string(credentials))
	}
	return false
}

// proved adds an identity to the connection. It returns false if the client may not have the identity.
func (c *Conn) proved(id jute.ID) bool { return c.proof.ids.Add(id, c.shared.Options.Super) }

func (c *Conn) authFailed(xid int32, scheme string) bool {
	if scheme == "digest" && fips140.Enforced() {
		c.say("authentication failed: the scheme digest needs SHA-1, which fips140=only refuses")
	} else {
		c.say("authentication failed", "scheme", scheme)
	}
	c.shared.Metrics.AuthFailed.Add(1)
	if !c.reply(xid, jute.OpAuth, 0, jute.AuthFailed, nil) {
		return false
	}
	c.out.Flush()
	time.Sleep(authPenalty)
	c.out.Last(nil, ends.Auth)
	return false
}

var errNoRoom = errors.New("the identity is empty, or the connection has too many")

// saslEmpty is how often the server answers a client, like a ZooKeeper, that it has no SASL. Some clients
// take that answer for progress, and would ask forever.
const saslEmpty = 3

// sasl handles one token of a negotiation. Success adds the proved identity to the client's identities. A
// second negotiation may follow.
func (c *Conn) sasl(xid int32, body []byte) bool {
	d := jute.NewDecoder(body)
	token := d.Buffer()
	if d.Err() != nil {
		c.out.Last(nil, ends.Malformed)
		return false
	}
	if c.proof.auths++; c.proof.auths > maxAuths {
		return c.saslFailed(xid)
	}
	var answer []byte
	var err error
	if c.proof.exchange == nil {
		m := c.shared.mechanisms.Load()
		if m == nil {
			if c.proof.empties++; c.proof.empties > saslEmpty {
				return c.saslFailed(xid)
			}
			return c.reply(xid, jute.OpSASL, 0, jute.OK, jute.AppendBuffer(nil, nil))
		}
		c.proof.exchange, err = m.Begin(len(token) == 0, c.shared.Options.Rand)
	}
	if err == nil {
		answer, err = c.negotiate(token)
	}
	if err != nil {
		c.say("SASL authentication failed", "err", err)
		return c.saslFailed(xid)
	}
	return c.reply(xid, jute.OpSASL, 0, jute.OK, jute.AppendBuffer(nil, answer))
}

// negotiate passes the client's token to the negotiation. When that is complete, it adds the identity that
// the client has proved.
func (c *Conn) negotiate(token []byte) (answer []byte, err error) {
	if answer, err = c.proof.exchange.Answer(token, c.shared.Options.Now()); err != nil {
		return nil, err
	}
	user, principal, done := c.proof.exchange.User()
	if !done {
		return answer, nil
	}
	c.proof.exchange = nil
	if principal != "" {
		c.shared.Log.Debug("signed in with Kerberos", "addr", c.from.Host, "principal", principal, "user", user)
	}
	if !c.proved(jute.ID{Scheme: identity.SASL, ID: user}) {
		return nil, errNoRoom
	}
	return answer, nil
}

// saslFailed answers that the negotiation has failed, and ends the connection.
func (c *Conn) saslFailed(xid int32) bool {
	code := jute.AuthFailed
	if slices.Contains(c.shared.Options.RequireAuth, identity.SASL) {
		code = jute.SessionClosedRequireAuth
	}
	c.shared.Metrics.AuthFailed.Add(1)
	// The answer itself is delayed: a client that fails at the moment of connecting mistakes an early answer
	// for a time-out.
	time.Sleep(authPenalty)
	if c.reply(xid, jute.OpSASL, 0, code, jute.AppendBuffer(nil, nil)) {
		c.out.Last(nil, ends.Auth)
	}
	return false
}
