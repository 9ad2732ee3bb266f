package conn

import (
	"crypto/fips140"
	"errors"
	"slices"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/ends"
	"github.com/zlockd/zlockd/server/clients/identity"
)

// auth adds to the client's identities. After a failure it answers, waits a moment to slow down guesses, and
// closes the connection; the session stays alive.
func (c *Conn) auth(xid int32, body []byte) bool {
	d := jute.NewDecoder(body)
	d.Int() // an unused type
	scheme, _ := d.String()
	credentials := d.Buffer()
	if d.Err() != nil {
		c.out.Last(nil, ends.Malformed)
		return false
	}
	o := &c.shared.Options
	if !c.proof.Try() || !c.proof.Prove(scheme, credentials, o.Super, o.EnsembleNames) {
		return c.authFailed(xid, scheme)
	}
	return c.reply(xid, jute.OpAuth, 0, jute.OK, nil)
}

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

// sasl handles one token of a negotiation.
func (c *Conn) sasl(xid int32, body []byte) bool {
	d := jute.NewDecoder(body)
	token := d.Buffer()
	if d.Err() != nil {
		c.out.Last(nil, ends.Malformed)
		return false
	}
	if !c.proof.Try() {
		return c.saslFailed(xid)
	}
	o := &c.shared.Options
	answer, as, err := c.proof.Negotiate(c.shared.mechanisms.Load(), token, o.Rand, o.Now(), o.Super)
	if as.Principal != "" {
		c.shared.Log.Debug("signed in with Kerberos", "addr", c.from.Host, "principal", as.Principal,
			"user", as.User)
	}
	if err != nil {
		if !errors.Is(err, identity.ErrNoSASL) {
			c.say("SASL authentication failed", "err", err)
		}
		return c.saslFailed(xid)
	}
	return c.reply(xid, jute.OpSASL, 0, jute.OK, jute.AppendBuffer(nil, answer))
}

// saslFailed answers that the negotiation has failed, and ends the connection.
func (c *Conn) saslFailed(xid int32) bool {
	code := jute.AuthFailed
	if slices.Contains(c.shared.Options.RequireAuth, identity.SASL) {
		code = jute.SessionClosedRequireAuth
	}
	c.shared.Metrics.AuthFailed.Add(1)
	// Delay the answer, and not only the end of the connection: some clients that fail while they connect take
	// an early answer for a time-out.
	time.Sleep(authPenalty)
	if c.reply(xid, jute.OpSASL, 0, code, jute.AppendBuffer(nil, nil)) {
		c.out.Last(nil, ends.Auth)
	}
	return false
}
