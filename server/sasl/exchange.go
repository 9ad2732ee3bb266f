package sasl

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"
)

// Mechanisms are the ways in which clients may prove who they are: one of the two, or both. A ZooKeeper can
// have only one.
type Mechanisms struct {
	Users Users // users of DIGEST-MD5; nil: the server does not have this mechanism
	// GSSAPI is Kerberos, from the module server/sasl/kerberos; nil: clients cannot use it.
	GSSAPI Mechanism
}

// Mechanism is a way to prove an identity that another package provides.
type Mechanism interface {
	// Begin begins a negotiation; `random` is the source of its nonces and keys.
	Begin(random io.Reader) Negotiation
}

// Negotiation is one negotiation of a mechanism.
type Negotiation interface {
	// Answer handles the client's next token and returns the server's token. An error ends the negotiation:
	// the client has proved nothing.
	Answer(token []byte, now time.Time) ([]byte, error)
	// User returns the user that the client has proved to be, and with Kerberos the user's principal. `done` is
	// false until the client has proved that.
	User() (user, principal string, done bool)
}

// Begin begins a negotiation in the mechanism that the client speaks. The client does not name it, but its
// first token shows it: in DIGEST-MD5 the server speaks first, so that token is empty (`empty`); in GSSAPI
// the client speaks first. Nonces and keys come from `random`.
func (m *Mechanisms) Begin(empty bool, random io.Reader) (Negotiation, error) {
	switch {
	case m.GSSAPI != nil && !empty:
		return m.GSSAPI.Begin(random), nil
	case m.Users != nil:
		return m.Users.begin(random)
	}
	return nil, errors.New("the client speaks DIGEST-MD5, but this server speaks only GSSAPI with Kerberos")
}

// begin() begins a negotiation; `random` is the source of its nonce.
func (u Users) begin(random io.Reader) (Negotiation, error) {
	var raw [nonceBytes]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return nil, fmt.Errorf("make a nonce: %w", err)
	}
	e := &digest{users: u, nonce: base64.StdEncoding.EncodeToString(raw[:])}
	e.next = e.challenge
	return e, nil
}
