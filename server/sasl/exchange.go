package sasl

import (
	"errors"
	"io"
	"time"
)

// Mechanisms are the ways in which clients can prove their identity. A server may have one of
// them or both, where a ZooKeeper has one.
type Mechanisms struct {
	Users Users // DIGEST-MD5, if not nil
	// Kerberos begins a negotiation of GSSAPI, if not nil. Package kerberos
	// provides it in builds with the tag of that name.
	Kerberos func(random io.Reader) Negotiation
}

// Negotiation is one negotiation of GSSAPI. Its methods mean what those of
// Exchange mean.
type Negotiation interface {
	Answer(token []byte, now time.Time) ([]byte, error)
	User() (string, bool)
	Principal() string
}

// Exchange is one negotiation of either mechanism.
type Exchange struct {
	mechanisms *Mechanisms
	random     io.Reader
	digest     *digest
	kerberos   Negotiation
}

// Begin begins a negotiation; random is where nonces and keys come from.
func (m *Mechanisms) Begin(random io.Reader) *Exchange {
	return &Exchange{mechanisms: m, random: random}
}

// Answer takes the client's next token and returns the server's. An error ends the exchange: the
// client has proved nothing.
func (e *Exchange) Answer(token []byte, now time.Time) ([]byte, error) {
	if e.digest == nil && e.kerberos == nil {
		if err := e.choose(len(token) == 0); err != nil {
			return nil, err
		}
	}
	if e.kerberos != nil {
		return e.kerberos.Answer(token, now)
	}
	return e.digest.answer(token)
}

// choose takes the mechanism that the client speaks. The client does not say which, but in
// DIGEST-MD5 the server has the first word and in GSSAPI the client.
func (e *Exchange) choose(empty bool) (err error) {
	m := e.mechanisms
	switch {
	case m.Kerberos != nil && !empty:
		e.kerberos = m.Kerberos(e.random)
	case m.Users != nil:
		e.digest, err = m.Users.begin(e.random)
	default:
		err = errors.New("the client speaks DIGEST-MD5, and this server only GSSAPI with Kerberos")
	}
	return err
}

// User returns the user that the client has proved to be, once it has, and with Kerberos its
// principal.
func (e *Exchange) User() (user, principal string, done bool) {
	switch {
	case e.kerberos != nil:
		user, done = e.kerberos.User()
		return user, e.kerberos.Principal(), done
	case e.digest != nil:
		user, done = e.digest.done()
	}
	return user, "", done
}
