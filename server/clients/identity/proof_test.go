package identity

import (
	"slices"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/tree/acl"
)

// Each scheme derives its identity from the credentials.
func TestWhatCredentialsProve(t *testing.T) {
	super := acl.DigestID("super:secret").ID
	address := jute.ID{Scheme: "ip", ID: "127.0.0.1"}
	for _, x := range []struct {
		scheme      string
		credentials []byte
		names       []string
		want        bool
		ids         int // number of identities, without the address
	}{
		{"ip", []byte("10.0.0.1"), nil, true, 0},
		{"digest", []byte("a:b"), nil, true, 1},
		{"digest", []byte(""), nil, true, 1},
		{"digest", nil, nil, false, 0},
		{"digest", []byte("super:secret"), nil, true, 2},
		{"digest", []byte("super:other"), nil, true, 1},
		{"ensemble", []byte("any"), nil, true, 0},
		{"ensemble", []byte("one"), []string{"one", "two"}, true, 0},
		{"ensemble", []byte("three"), []string{"one", "two"}, false, 0},
		{"ensemble", nil, []string{"one"}, true, 0},
		{"x509", []byte("CN=a"), nil, false, 0},
		{"sasl", []byte("a"), nil, false, 0},
		{"super", []byte(""), nil, false, 0},
		{"", nil, nil, false, 0},
	} {
		var p Proof
		p.IDs.Store(Unproved("127.0.0.1", false))
		for range 2 { // twice: the second time proves nothing new
			expect.Equal(t, p.Prove(x.scheme, x.credentials, Super{Digest: super}, x.names), x.want, "%s %q", x.scheme, x.credentials)
			ids := *p.IDs.Load()
			if expect.Equal(t, len(ids), 1+x.ids, "%s %q: len(ids)", x.scheme, x.credentials) {
				expect.That(t, slices.Contains(ids, address),
					"%s %q: %v: want slices.Contains(ids, address)", x.scheme, x.credentials, ids)
				expect.Equal(t, slices.Contains(ids, SuperID), x.ids == 2,
					"%s %q: slices.Contains(ids, SuperID)", x.scheme, x.credentials)
			}
		}
	}
}
