package clients

import (
	"errors"
	"slices"

	"github.com/zlockd/zlockd/jute"
)

// schemeSASL is the scheme of identities proved by SASL.
const schemeSASL = "sasl"

var errTooManyIDs = errors.New("too many identities on one connection")

// saslEmpty is how often the server tells a client, in the reference's way, that it has no SASL.
// Some clients take that for progress and ask forever.
const saslEmpty = 3

// sasl carries on a negotiation by one token. Success adds the proved identity to the client's
// identities. A second negotiation may follow.
func (c *conn) sasl(xid int32, body []byte) bool {
	d := jute.NewDecoder(body)
	token := d.Buffer()
	if d.Err() != nil {
		c.finishReplies(endMalformed)
		return false
	}
	if c.auths++; c.auths > maxAuths {
		return c.saslFailed(xid)
	}
	if c.exchange == nil {
		m := c.srv.mechanisms.Load()
		if m == nil {
			if c.empties++; c.empties > saslEmpty {
				return c.saslFailed(xid)
			}
			return c.reply(xid, jute.OpSASL, 0, jute.OK, jute.AppendBuffer(nil, nil))
		}
		c.exchange = m.Begin(c.srv.o.Rand)
	}
	answer, err := c.negotiate(token)
	if err != nil {
		c.say("SASL authentication failed", "err", err)
		return c.saslFailed(xid)
	}
	return c.reply(xid, jute.OpSASL, 0, jute.OK, jute.AppendBuffer(nil, answer))
}

// negotiate gives the client's token to the negotiation under way. At its end it
// adds the identity that the client has proved.
func (c *conn) negotiate(token []byte) (answer []byte, err error) {
	if answer, err = c.exchange.Answer(token, c.srv.o.Now()); err != nil {
		return nil, err
	}
	user, principal, done := c.exchange.User()
	if !done {
		return answer, nil
	}
	c.exchange = nil
	if principal != "" {
		c.srv.log.debug("signed in with Kerberos", "addr", c.host, "principal", principal, "user", user)
	}
	ids := slices.Clone(*c.ids.Load())
	for _, id := range []jute.ID{{Scheme: schemeSASL, ID: user}, superID} {
		if (id != superID || user == c.srv.o.SASLSuper) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > maxIDs {
		return nil, errTooManyIDs
	}
	c.setIDs(ids)
	return answer, nil
}

// saslFailed answers that the negotiation has failed, and ends the connection.
func (c *conn) saslFailed(xid int32) bool {
	code := jute.AuthFailed
	if slices.Contains(c.srv.o.RequireAuth, schemeSASL) {
		code = jute.SessionClosedRequireAuth
	}
	c.srv.metrics.AuthFailed.Add(1)
	// The answer itself waits: a client that fails in the moment in which it connects takes its own
	// start for a time-out.
	c.penalty()
	if c.reply(xid, jute.OpSASL, 0, code, jute.AppendBuffer(nil, nil)) {
		c.last(nil, endAuth)
	}
	return false
}
