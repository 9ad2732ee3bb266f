//go:build kerberos

package clients

import (
	"encoding/hex"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/server/sasl/kerberos"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// javaKerberos is what a client of Java's has sent to sign in with Kerberos,
// when, and how a service with the keytab of then begins.
func javaKerberos(t *testing.T) (begin func(io.Reader) sasl.Negotiation, at time.Time, tokens [][]byte) {
	t.Helper()
	text, err := os.ReadFile("../sasl/kerberos/testdata/recorded.txt")
	must.OK(t, err)
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		must.OK(t, err)
		return b
	}
	file := filepath.Join(t.TempDir(), "keytab")
	for line := range strings.Lines(string(text)) {
		switch words := strings.Fields(line); words[0] {
		case "keytab":
			must.OK(t, os.WriteFile(file, unhex(words[1]), 0o600))
		case "java":
			seconds, err := strconv.ParseInt(words[2], 10, 64)
			must.OK(t, err)
			at, tokens = time.Unix(seconds, 0), [][]byte{unhex(words[3]), unhex(words[4])}
		}
	}
	service, err := kerberos.New(kerberos.Options{Keytab: file, Principal: "zookeeper/localhost@ZK.TEST",
		Logger: slog.New(slog.DiscardHandler)})
	must.OK(t, err)
	return func(r io.Reader) sasl.Negotiation { return service.Begin(r) }, at, tokens
}

func TestKerberos(t *testing.T) {
	for name, users := range map[string]sasl.Users{"alone": nil, "beside passwords": saslUsers} {
		begin, at, tokens := javaKerberos(t)
		r := newRig(t, Options{
			SASL: &sasl.Mechanisms{Users: users, Kerberos: begin}, Super: identity.Super{SASL: "alice@ZK.TEST"},
			RequireAuth: []string{"sasl"}, Now: func() time.Time { return at },
		})
		c := r.client()
		code, offer := saslStep(t, c, tokens[0])
		must.That(t, code == jute.OK && len(offer) != 0, "%v %v", name, code)
		if code, last := saslStep(t, c, tokens[1]); code != jute.OK || last != nil {
			t.Fatal(name, code, last)
		}
		if ids := who(t, c); len(ids) != 3 || !ids[jute.ID{Scheme: "sasl", ID: "alice@ZK.TEST"}] || !ids[identity.SuperID] {
			t.Errorf("%s: identities %v", name, ids)
		}
		// Recorded and played again, on another connection.
		thief := r.client()
		if code, _ := saslStep(t, thief, tokens[0]); code != jute.SessionClosedRequireAuth {
			t.Errorf("%s: a replay: %v", name, code)
		}
		must.OK(t, thief.Closed())
		// Passwords: where there are any.
		other := r.client()
		want := jute.OK
		if users == nil {
			want = jute.SessionClosedRequireAuth
		}
		expect.Equal(t, authenticate(t, other, "bob", "secret"), want, "%s: a password", name)
	}
}
