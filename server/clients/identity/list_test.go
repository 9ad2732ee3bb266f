package identity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func listOf(host string) *List {
	l := new(List)
	l.Store(Unproved(host, false))
	return l
}

// An address of version 6 is shown in eight groups, as Java writes it.
func TestWhoAmIShowsAddressesAsJavaDoes(t *testing.T) {
	for host, want := range map[string]string{"::1": "0:0:0:0:0:0:0:1", "fe80::fc:0:1": "fe80:0:0:0:0:fc:0:1",
		"127.0.0.1": "127.0.0.1", "pipe": "pipe"} {
		t.Run(host, func(t *testing.T) {
			b := jute.AppendString(jute.AppendString(jute.AppendInt(nil, 1), "ip"), want)
			expect.Equal(t, string(listOf(host).AppendWhoAmI(nil)), string(b))
		})
	}
}

// whoAmI does not show the hash of a password.
func TestWhoAmIShowsNoSecret(t *testing.T) {
	l := listOf("127.0.0.1")
	must.That(t, l.Add(jute.ID{Scheme: Digest, ID: "bob:hash"}, Super{}), "it is refused")
	shown := string(l.AppendWhoAmI(nil))
	expect.Has(t, shown, "bob")
	expect.That(t, !strings.Contains(shown, "hash"), "%q has the hash", shown)
}

func TestUnproved(t *testing.T) {
	ip := jute.ID{Scheme: "ip", ID: "10.0.0.1"}
	expect.List(t, *Unproved("10.0.0.1", false), []jute.ID{ip}, "identities where rights are checked")
	all := *Unproved("10.0.0.1", true)
	expect.Equal(t, len(all), 2, "identities where none are: length of %v", all)
	expect.That(t, slices.Contains(all, ip), "identities where none are: %v", all)
	expect.That(t, slices.Contains(all, SuperID), "identities where none are: %v", all)
}

// The number and the length of a client's identities have bounds. A refused identity changes nothing.
func TestIdentitiesUpToTheirBounds(t *testing.T) {
	x509 := func(id string) jute.ID { return jute.ID{Scheme: X509, ID: id} }
	l := listOf("127.0.0.1")
	for i := range MaxIDs - 1 {
		must.That(t, l.Add(x509(fmt.Sprint(i)), Super{}), "number %d", i)
	}
	before := l.Load()
	expect.That(t, !l.Add(x509("more"), Super{}), "one more is taken")
	expect.That(t, l.Load() == before, "the refused one changes the list")
	expect.That(t, l.Add(x509("1"), Super{}), "one that is known is refused")
	most := strings.Repeat("x", MaxBytes-len("ip127.0.0.1")-len("x509"))
	expect.That(t, !listOf("127.0.0.1").Add(x509(most+"x"), Super{}), "a byte too many is taken")
	expect.That(t, listOf("127.0.0.1").Add(x509(most), Super{}), "as many as may are refused")
	expect.That(t, !listOf("127.0.0.1").Add(x509(most), Super{X509: most}), "the super user is taken beside")
	expect.That(t, !listOf("127.0.0.1").Add(x509(""), Super{}), "an empty identity is taken")
}

// Without required schemes every client is admitted. Otherwise a client must have proved an identity of one
// of the required schemes.
func TestSchemesThatAreRequired(t *testing.T) {
	for _, x := range []struct {
		required []string
		has      string
		want     bool
	}{
		{nil, "digest", true}, {[]string{"digest"}, "digest", true}, {[]string{"sasl"}, "digest", false},
		{[]string{"sasl", "digest"}, "digest", true}, {[]string{"ip"}, "digest", true},
	} {
		l := listOf("127.0.0.1")
		must.That(t, l.Add(jute.ID{Scheme: x.has, ID: "a"}, Super{}), "proved")
		expect.Equal(t, l.HasOneOf(x.required), x.want, "%v of %q", x.has, x.required)
	}
}
