package kerberos

import (
	"crypto/sha256"
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Skew is how far a client's clock may be from this server's.
const Skew = 5 * time.Minute

// checksumGSS is the type of the field `checksum` in which a GSS-API client says what it wants (RFC 4121,
// 4.1.1). The server reads only flagMutual: the client wants a proof of the server's identity.
const (
	checksumGSS = 0x8003
	flagMutual  = 1 << 1
)

// Errors about a client. They go to the log; the client learns only that the exchange has failed.
var (
	errProtocol = errors.New("the client's token does not follow GSSAPI with Kerberos")
	errRefused  = errors.New("Kerberos refuses the client")
)

// context is what the client and the server share when the server has accepted the client's ticket.
type context struct {
	client     Principal
	key        sessionKey
	subkeyFlag byte  // wrapAcceptorSubkey if the server has made `key`, and otherwise 0
	sequence   int64 // number of the server's next token
}

// accept() verifies the client's first token. The answer proves the server's identity; it is nil if the
// client does not want that proof.
func (s *Service) accept(token []byte, now time.Time, random io.Reader) (*context, []byte, error) {
	message, err := unframe(token)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errProtocol, err)
	}
	var req apReq
	if err := decode(message, &req, tagAPReq); err != nil {
		return nil, nil, fmt.Errorf("%w: AP-REQ: %w", errProtocol, err)
	}
	var t ticket
	if err := decode(req.Ticket.Bytes, &t, tagTicket); err != nil {
		return nil, nil, fmt.Errorf("%w: ticket: %w", errProtocol, err)
	}
	switch {
	case req.Version != protocolVersion || req.Type != typeAPReq || t.Version != protocolVersion:
		return nil, nil, fmt.Errorf("%w: version %d, type %d, ticket of version %d", errProtocol, req.Version,
			req.Type, t.Version)
	case req.Options.At(optionUseSessionKey) != 0:
		return nil, nil, fmt.Errorf("%w: user-to-user authentication is not supported", errProtocol)
	}
	secret, err := s.openTicket(&t, now)
	if err != nil {
		return nil, nil, err
	}
	client, err := secret.check(now)
	if err != nil {
		return nil, nil, err
	}
	a, mutual, err := openAuthenticator(&req, secret.Key, client, now)
	if err != nil {
		return nil, nil, err
	}
	// Each time that it is encrypted, a random part makes the cipher text different. So the same cipher text
	// again is a replay.
	if err := s.replays.add(sha256.Sum256(req.Authenticator.Cipher), now); err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", errRefused, client, err)
	}
	// A client that gets no proof expects that the server numbers its tokens as the client does. Some clients
	// write a negative number: keep only its 32 bits.
	c := &context{client: client, key: secret.Key, sequence: a.Sequence & 0xffffffff}
	if len(a.Key.Value) > 0 {
		c.key = a.Key
	}
	if !mutual {
		return c, nil, nil
	}
	answer, err := c.prove(a, secret.Key, random)
	return c, answer, err
}

// openTicket finds the key with which the KDC encrypted the ticket, and reads the ticket.
func (s *Service) openTicket(t *ticket, now time.Time) (*ticketSecret, error) {
	server, err := principal(t.Server, t.Realm)
	if err != nil {
		return nil, fmt.Errorf("%w: ticket: %w", errProtocol, err)
	}
	if !server.equal(s.principal) {
		return nil, fmt.Errorf("%w: its ticket is for %s, and this server is %s", errRefused, server, s.principal)
	}
	secret, err := s.keys(now, false).open(t)
	if err != nil { // perhaps the keytab was replaced just now: look at the file again
		secret, err = s.keys(now, true).open(t)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: a ticket for %s: %w", errRefused, server, err)
	}
	return secret, nil
}

// open() reads a ticket with one of the keys.
func (k keytab) open(t *ticket) (*ticketSecret, error) {
	keys, err := k.find(t.Secret)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		plain, err := key.open(t.Secret, usageTicket)
		if err != nil {
			continue
		}
		secret := &ticketSecret{}
		return secret, decode(plain, secret, tagTicketSecret)
	}
	return nil, fmt.Errorf(
		"the keytab's key of version %d does not decrypt the ticket: the KDC has another key, so "+
			"export the keytab again", t.Secret.KVNO)
}

// check() returns the client of the ticket. It refuses a ticket that is not valid now. Like ZooKeeper it
// ignores the addresses in the ticket, because they are wrong where addresses are translated.
func (t *ticketSecret) check(now time.Time) (Principal, error) {
	client, err := principal(t.Client, t.Realm)
	if err != nil {
		return client, fmt.Errorf("%w: ticket: %w", errProtocol, err)
	}
	if _, err := t.Key.suite(); err != nil {
		return client, fmt.Errorf("%w: %s: the ticket's key: %w", errRefused, client, err)
	}
	start := t.Start
	if start.IsZero() {
		start = t.SignedInAt
	}
	switch {
	case t.Flags.At(flagInvalid) != 0:
		return client, fmt.Errorf("%w: %s: the ticket is not valid yet", errRefused, client)
	case start.Sub(now) > Skew:
		return client, fmt.Errorf("%w: %s: the ticket begins at %s, and it is %s here: compare the clocks",
			errRefused, client, utc(start), utc(now))
	case now.Sub(t.End) > Skew:
		return client, fmt.Errorf("%w: %s: the ticket has expired at %s, and it is %s here", errRefused, client,
			utc(t.End), utc(now))
	case len(t.Transited.Realms) > 0 && t.Flags.At(flagTransitChecked) == 0:
		return client, fmt.Errorf("%w: %s: no KDC has checked the realms that the ticket came through", errRefused,
			client)
	}
	return client, nil
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// openAuthenticator reads the authenticator. That shows that the client has the key in the ticket. The clock
// of the client must be within Skew of `now`.
func openAuthenticator(req *apReq, key sessionKey, client Principal, now time.Time) (a *authenticator,
	mutual bool, err error) {
	plain, err := key.open(req.Authenticator, usageAuthenticator)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %s: authenticator: %w", errRefused, client, err)
	}
	a = &authenticator{}
	if err := decode(plain, a, tagAuthenticator); err != nil {
		return nil, false, fmt.Errorf("%w: authenticator: %w", errProtocol, err)
	}
	who, err := principal(a.Client, a.Realm)
	if err != nil {
		return nil, false, fmt.Errorf("%w: authenticator: %w", errProtocol, err)
	}
	if len(a.Key.Value) > 0 {
		if _, err := a.Key.suite(); err != nil {
			return nil, false, fmt.Errorf("%w: %s: the client's key: %w", errRefused, client, err)
		}
	}
	at := a.Time.Add(time.Duration(a.Micros) * time.Microsecond)
	sum := a.Checksum.Value
	switch {
	case a.Version != protocolVersion || a.Micros < 0 || a.Micros > 999_999:
		return nil, false, fmt.Errorf("%w: the authenticator has version %d and %d µs", errProtocol,
			a.Version,
			a.Micros)
	case !who.equal(client):
		return nil, false, fmt.Errorf("%w: %s uses the ticket of %s", errRefused, who, client)
	case at.Sub(now).Abs() > Skew:
		return nil, false, fmt.Errorf("%w: %s: its clock differs from this server's by %s, more than %s",
			errRefused, client, at.Sub(now).Abs().Round(time.Second), Skew)
	case a.Checksum.Type != checksumGSS || len(sum) < 24 || binary.LittleEndian.Uint32(sum) != 16:
		return nil, false, fmt.Errorf("%w: the authenticator lacks the checksum of RFC 4121", errProtocol)
	}
	return a, binary.LittleEndian.Uint32(sum[20:])&flagMutual != 0, nil
}

// prove() makes the answer, which only a server that can read the ticket can make. It has a new key for the
// tokens that follow. An attacker who replays a client's tokens does not know that key, and gets no further.
func (c *context) prove(a *authenticator, ticketKey sessionKey, random io.Reader) (answer []byte, err error) {
	if c.key, err = c.key.fresh(random); err != nil {
		return nil, err
	}
	var number [4]byte
	if _, err = io.ReadFull(random, number[:]); err != nil {
		return nil, err
	}
	// Keep the number small: some clients read it as a signed one.
	c.subkeyFlag, c.sequence = wrapAcceptorSubkey, int64(binary.BigEndian.Uint32(number[:])&0x3fffffff)
	plain, err := asn1.MarshalWithParams(apRepSecret{a.Time.UTC(), a.Micros, c.key, c.sequence},
		application(tagAPRepSecret))
	if err != nil {
		return nil, err
	}
	secret, err := ticketKey.seal(plain, usageAPRep)
	if err != nil {
		return nil, err
	}
	message, err := asn1.MarshalWithParams(apRep{protocolVersion, typeAPRep, secret}, application(tagAPRep))
	if err != nil {
		return nil, err
	}
	return frame(message)
}
