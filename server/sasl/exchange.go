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

// Negotiation is one negotiation of a mechanism.
type Negotiation interface {
	// Answer takes the client's next token and returns the server's. An error ends the negotiation:
	// the client has proved nothing.
	Answer(token []byte, now time.Time) ([]byte, error)
	// User returns the user that the client has proved to be, once it has.
	User() (string, bool)
	// Principal returns the client's name as Kerberos has it, empty without Kerberos.
	Principal() string
}

// Exchange is one negotiation of either mechanism.
type Exchange struct {
	mechanisms *Mechanisms
	random     io.Reader
	chosen     Negotiation // nil before the first token
}

// Begin begins a negotiation; random is where nonces and keys come from.
func (m *Mechanisms) Begin(random io.Reader) *Exchange {
	return &Exchange{mechanisms: m, random: random}
}

// Answer takes the client's next token and returns the server's. An error ends the exchange: the
// client has proved nothing.
func (e *Exchange) Answer(token []byte, now time.Time) (answer []byte, err error) {
	if e.chosen == nil {
		if e.chosen, err = e.mechanisms.choose(len(token) == 0, e.random); err != nil {
			return nil, err
		}
	}
	return e.chosen.Answer(token, now)
}

// choose takes the mechanism that the client speaks. The client does not say which, but in
// DIGEST-MD5 the server has the first word and in GSSAPI the client.
func (m *Mechanisms) choose(empty bool, random io.Reader) (Negotiation, error) {
	switch {
	case m.Kerberos != nil && !empty:
		return m.Kerberos(random), nil
	case m.Users != nil:
		return m.Users.begin(random)
	}
	return nil, errors.New("the client speaks DIGEST-MD5, and this server only GSSAPI with Kerberos")
}

// User returns the user that the client has proved to be, once it has, and with Kerberos its
// principal.
func (e *Exchange) User() (user, principal string, done bool) {
	if e.chosen == nil {
		return "", "", false
	}
	user, done = e.chosen.User()
	return user, e.chosen.Principal(), done
}
