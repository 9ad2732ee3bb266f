package clients

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// fakeGSSAPI is a Kerberos mechanism. It accepts the token "ticket" once, at the time `at`, and answers with
// an offer. Then it accepts the token "choice".
type fakeGSSAPI struct {
	at   time.Time
	used bool
}

func (f *fakeGSSAPI) Begin(io.Reader) sasl.Negotiation { return &fakeNegotiation{service: f} }

type fakeNegotiation struct {
	service *fakeGSSAPI
	steps   int
}

func (n *fakeNegotiation) Answer(token []byte, now time.Time) ([]byte, error) {
	switch string(token) {
	case "ticket":
		if n.service.used || !now.Equal(n.service.at) {
			return nil, errors.New("a replay")
		}
		n.service.used, n.steps = true, 1
		return []byte("offer"), nil
	case "choice":
		if n.steps == 1 {
			n.steps = 2
			return nil, nil
		}
	}
	return nil, errors.New("no such token")
}

func (n *fakeNegotiation) User() (user, principal string, done bool) {
	if n.steps < 2 {
		return "", "", false
	}
	return "alice@ZK.TEST", "alice@ZK.TEST", true
}

// If a client speaks first, the server passes the client's tokens to the Kerberos mechanism of the program.
// It asks other clients for passwords if it has users.
func TestKerberos(t *testing.T) {
	for name, users := range map[string]sasl.Users{"alone": nil, "beside passwords": saslUsers} {
		t.Run(name, func(t *testing.T) {
			at := time.Unix(1_700_000_000, 0)
			r := newRig(t, options.Options{
				SASL:        &sasl.Mechanisms{Users: users, GSSAPI: &fakeGSSAPI{at: at}},
				Super:       identity.Super{SASL: "alice@ZK.TEST"},
				RequireAuth: []string{"sasl"}, Now: func() time.Time { return at },
			})
			c := r.client()
			code, offer := saslStep(t, c, []byte("ticket"))
			must.Equal(t, code, jute.OK, "the ticket")
			must.Equal(t, string(offer), "offer", "the answer to the ticket")
			code, last := saslStep(t, c, []byte("choice"))
			must.Equal(t, code, jute.OK, "the choice")
			must.That(t, last == nil, "the answer to the choice is %q, want none", last)
			ids := who(t, c)
			expect.Equal(t, len(ids), 3, "identities")
			expect.That(t, ids[jute.ID{Scheme: "sasl", ID: "alice@ZK.TEST"}], "identities %v, want alice", ids)
			expect.That(t, ids[identity.SuperID], "identities %v, want the super user", ids)
			// A thief replays the recorded token on another connection.
			thief := r.client()
			code, _ = saslStep(t, thief, []byte("ticket"))
			expect.Equal(t, code, jute.SessionClosedRequireAuth, "a replay")
			must.OK(t, thief.Closed())
			// A password works only if the server has users.
			other := r.client()
			want := jute.OK
			if users == nil {
				want = jute.SessionClosedRequireAuth
			}
			expect.Equal(t, authenticate(t, other, "bob", "secret"), want, "a password")
		})
	}
}
