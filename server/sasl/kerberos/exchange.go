//go:build kerberos

package kerberos

import (
	"fmt"
	"io"
	"time"
)

// qopAuth is the only protection that the server offers: no protection after the authentication.
// ZooKeeper's clients go on in the clear, or in TLS.
const qopAuth = 1

// Exchange is one negotiation; see Service.Begin.
type Exchange struct {
	service *Service
	random  io.Reader
	step    int
	context *context
	user    string
}

// steps of an exchange.
const (
	stepHello  = iota // the client's ticket is awaited
	stepProven        // the server has proved who it is; an empty token is awaited
	stepOffer         // what the server offers is out, the client's choice is awaited
	stepDone
	stepFailed
)

// Begin begins a negotiation; random is where its key and number come from.
func (s *Service) Begin(random io.Reader) *Exchange { return &Exchange{service: s, random: random} }

// Answer takes the client's next token and returns the server's, nil at the end. An error ends
// the exchange: the client has proved nothing.
func (e *Exchange) Answer(token []byte, now time.Time) (answer []byte, err error) {
	if len(token) > maxToken {
		e.step = stepFailed
		return nil, fmt.Errorf("%w: %d bytes", errProtocol, len(token))
	}
	step := e.step
	e.step = stepFailed
	switch step {
	case stepHello:
		if e.context, answer, err = e.service.accept(token, now, e.random); err != nil {
			return nil, err
		}
		if answer != nil {
			e.step = stepProven
			return answer, nil
		}
		return e.offer()
	case stepProven:
		if len(token) > 0 {
			return nil, fmt.Errorf("%w: %d bytes where the client has nothing to say", errProtocol, len(token))
		}
		return e.offer()
	case stepOffer:
		return nil, e.choice(token)
	}
	return nil, fmt.Errorf("%w: it goes on behind its end", errProtocol)
}

// offer says what the server can do to protect what follows, and that it takes
// no protected message of any size.
func (e *Exchange) offer() ([]byte, error) {
	answer, err := e.context.wrap([]byte{qopAuth, 0, 0, 0})
	if err == nil {
		e.step = stepOffer
	}
	return answer, err
}

// choice reads the protection that the client has chosen. The name that the client wants to act
// as comes behind it; as in ZooKeeper, only the name in its ticket counts.
func (e *Exchange) choice(token []byte) error {
	text, err := e.context.unwrap(token)
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	if len(text) < 4 || text[0] != qopAuth {
		return fmt.Errorf("%w: it chooses a protection that was not offered", errProtocol)
	}
	if e.user, err = e.service.names.identity(e.context.client); err != nil {
		return fmt.Errorf("%w: %s: %w", errRefused, e.context.client, err)
	}
	e.step = stepDone
	return nil
}

// User returns the user that the client has proved to be, once it has.
func (e *Exchange) User() (string, bool) { return e.user, e.step == stepDone }

// Principal returns the client's name as the KDC has it.
func (e *Exchange) Principal() string {
	if e.step != stepDone {
		return ""
	}
	return e.context.client.String()
}
