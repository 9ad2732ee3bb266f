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
	// GSSAPI is Kerberos, if not nil. The module server/sasl/kerberos has it.
	GSSAPI Mechanism
}

// Mechanism is a way to prove one's identity that a program adds to a server.
type Mechanism interface {
	// Begin begins a negotiation; random is where its nonces and keys come from.
	Begin(random io.Reader) Negotiation
}

// Negotiation is one negotiation of a mechanism.
type Negotiation interface {
	// Answer takes the client's next token and returns the server's. An error ends the negotiation:
	// the client has proved nothing.
	Answer(token []byte, now time.Time) ([]byte, error)
	// User returns the user that the client has proved to be, once it has, and with Kerberos its
	// principal.
	User() (user, principal string, done bool)
}

// Begin begins a negotiation of the mechanism that the client speaks; random is where nonces and
// keys come from. The client does not say which it is, but in DIGEST-MD5 the server has the first
// word and in GSSAPI the client: empty reports whether the client's first token is.
func (m *Mechanisms) Begin(empty bool, random io.Reader) (Negotiation, error) {
	switch {
	case m.GSSAPI != nil && !empty:
		return m.GSSAPI.Begin(random), nil
	case m.Users != nil:
		return m.Users.begin(random)
	}
	return nil, errors.New("the client speaks DIGEST-MD5, and this server only GSSAPI with Kerberos")
}
