package kerberos

import (
	"fmt"
	"io"
	"time"

	"github.com/zlockd/zlockd/server/sasl"
)

// qopAuth is the only protection that the server offers: none, after the authentication. ZooKeeper's clients
// then send plain text, perhaps over TLS.
const qopAuth = 1

// Exchange is one negotiation; see Service.Begin.
type Exchange struct {
	service *Service
	random  io.Reader
	// handles the client's next token; nil: no token may follow
	next    func(token []byte, now time.Time) ([]byte, error)
	context *context
	user    string // the user that the client has proved to be
}

// Begin begins a negotiation, with random numbers from `random`. It makes a Service a [sasl.Mechanism].
func (s *Service) Begin(random io.Reader) sasl.Negotiation { return s.begin(random) }

func (s *Service) begin(random io.Reader) *Exchange {
	e := &Exchange{service: s, random: random}
	e.next = e.hello
	return e
}

// Answer handles the client's next token and returns the server's token. It returns nil at the end. An error
// ends the exchange; the client has then proved nothing.
func (e *Exchange) Answer(token []byte, now time.Time) (answer []byte, err error) {
	next := e.next
	e.next = nil
	switch {
	case len(token) > maxToken:
		return nil, fmt.Errorf("%w: %d bytes", errProtocol, len(token))
	case next == nil:
		return nil, fmt.Errorf("%w: a token came after the end of the exchange", errProtocol)
	}
	return next(token, now)
}

// hello() checks the client's ticket, and proves the server's identity if the client asks for that.
func (e *Exchange) hello(token []byte, now time.Time) (answer []byte, err error) {
	if e.context, answer, err = e.service.accept(token, now, e.random); err != nil {
		return nil, err
	}
	if answer == nil {
		return e.offer(nil, now)
	}
	e.next = e.offer
	return answer, nil
}

// offer() answers the empty token that follows the ticket. It offers only qopAuth, no protection. The next
// three bytes bound the length of protected messages: 0, because there are none.
func (e *Exchange) offer(token []byte, _ time.Time) ([]byte, error) {
	if len(token) > 0 {
		return nil, fmt.Errorf("%w: a token of %d bytes instead of an empty one", errProtocol, len(token))
	}
	answer, err := e.context.wrap([]byte{qopAuth, 0, 0, 0})
	if err == nil {
		e.next = e.choice
	}
	return answer, err
}

// choice() reads the client's choice, which must be qopAuth. The rest of the token is a name for the client
// to act under. Like ZooKeeper, the server ignores it and uses the name in the ticket.
func (e *Exchange) choice(token []byte, _ time.Time) ([]byte, error) {
	text, err := e.context.unwrap(token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProtocol, err)
	}
	if len(text) < 4 || text[0] != qopAuth {
		return nil, fmt.Errorf("%w: it chooses a protection that was not offered", errProtocol)
	}
	if e.user, err = e.service.names.identity(e.context.client); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errRefused, e.context.client, err)
	}
	return nil, nil
}

// User returns the user that the client has proved to be, and the user's principal. `done` is false until the
// client has proved that.
func (e *Exchange) User() (user, principal string, done bool) {
	if e.user == "" {
		return "", "", false
	}
	return e.user, e.context.client.String(), true
}
