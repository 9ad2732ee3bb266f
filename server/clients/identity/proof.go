package identity

import (
	"crypto/fips140"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/tree/acl"
)

// Proof is what a client has proved of itself on one connection. Only the connection's goroutine uses it; any
// goroutine may load the list of identities.
type Proof struct {
	IDs      List             // the client's address, then its proved identities
	exchange sasl.Negotiation // the SASL negotiation under way, if any
	tries    int32            // number of authentications so far
	empties  uint8            // empty answers so far: the client asks for SASL, which the server lacks
}

// maxTries bounds the authentications on one connection.
const maxTries = 100

// Try counts an authentication. It returns false if the connection has had too many.
func (p *Proof) Try() bool {
	p.tries++
	return p.tries <= maxTries
}

// Prove reports whether the credentials (nil if they are null) are valid, and adds the identity that they
// prove. `names` are the names of the ensemble that the server accepts; an empty list accepts every name.
func (p *Proof) Prove(scheme string, credentials []byte, super Super, names []string) bool {
	switch scheme {
	case "ip": // the server knows the address itself
		return true
	case Digest:
		return credentials != nil && !fips140.Enforced() && p.IDs.Add(acl.DigestID(string(credentials)), super)
	case "ensemble": // a name of an ensemble proves no identity
		return len(names) == 0 || len(credentials) == 0 || slices.Contains(names, string(credentials))
	}
	return false
}

// saslEmpty is how many empty answers the server, like ZooKeeper, gives to a client that asks for SASL when
// the server has none. Some clients take such an answer for progress, and would ask forever.
const saslEmpty = 3

var (
	// ErrNoSASL means that the server has no SASL and gives no further empty answer.
	ErrNoSASL = errors.New("the server has no SASL")
	errNoRoom = errors.New("the identity is empty, or the connection has too many identities")
)

// Signed names the user of a complete negotiation.
type Signed struct {
	User      string
	Principal string // the Kerberos principal; empty: the client used another mechanism
}

// Negotiate answers one token of a SASL negotiation. It begins a negotiation if none is under way. m is nil
// if the server has no SASL. When the negotiation is complete, Negotiate adds the proved identity to the
// client's; the client may then begin another negotiation.
func (p *Proof) Negotiate(m *sasl.Mechanisms, token []byte, rand io.Reader, now time.Time, super Super) (
	answer []byte, as Signed, err error) {
	if p.exchange == nil {
		if m == nil {
			if p.empties++; p.empties > saslEmpty {
				return nil, as, ErrNoSASL
			}
			return nil, as, nil
		}
		if p.exchange, err = m.Begin(len(token) == 0, rand); err != nil {
			return nil, as, err
		}
	}
	if answer, err = p.exchange.Answer(token, now); err != nil {
		return nil, as, err
	}
	user, principal, done := p.exchange.User()
	if !done {
		return answer, as, nil
	}
	p.exchange = nil
	as = Signed{user, principal}
	if !p.IDs.Add(jute.ID{Scheme: SASL, ID: user}, super) {
		return nil, as, errNoRoom
	}
	return answer, as, nil
}
