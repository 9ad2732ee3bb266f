package settings

import (
	"errors"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/certs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// strictRules is a Kerberos that accepts each rule except a senseless one.
type strictRules struct{ Kerberos }

func (strictRules) CheckRules(rules string) error {
	if strings.Contains(rules, "nonsense") {
		return errors.New("nonsense")
	}
	return nil
}

// If a zoo.cfg forbids the server to ask clients for certificates, the server refuses all settings that need
// clients' certificates.
func TestCertificatesThatNoClientShows(t *testing.T) {
	dir := t.TempDir()
	ca := certs.New(t, dir)
	ca.Sign(t, "server", []string{"zlockd-1"})
	for auth, ok := range map[string]bool{"none": false, "want": true, "need": true} {
		for _, needs := range []string{"X509AuthenticationProvider.superUser=CN=admin",
			"enforce.auth.enabled=true\nenforce.auth.schemes=x509"} {
			_, err := load(t, dir, "secureClientPort=2281\ndataDir=$DIR/d\nssl.clientAuth="+auth+"\n"+needs,
				"--tls-cert", ca.File("server.pem"), "--tls-key", ca.File("server.key"), "--tls-ca", ca.File("ca.pem"))
			expect.Equal(t, err == nil, ok, "%s with ssl.clientAuth=%s: %v", needs, auth, err)
			if !ok {
				expect.Has(t, err.Error(), "does not work with ssl.clientAuth=none")
			}
		}
	}
}

func TestKerberosOfAConfiguration(t *testing.T) {
	const text = "clientPort=2181\ndataDir=$DIR\nkerberos.removeHostFromPrincipal=true\n" +
		"kerberos.removeRealmFromPrincipal=TRUE\nsecurity.auth_to_local="
	dir := t.TempDir()
	s := must.Get(loadWith(t, strictRules{}, dir, text+"RULE:[1:$1]\\\n  DEFAULT"))(t)
	expect.Equal(t, len(s.Notes), 0, "notes")
	expect.Equal(t, s.RemoveHost, true, "the host is removed")
	expect.Equal(t, s.RemoveRealm, false, "the realm is removed")
	expect.Equal(t, s.AuthToLocal, "RULE:[1:$1]DEFAULT", "rules")
	_, err := loadWith(t, strictRules{}, dir, text+"RULE:nonsense")
	must.That(t, err != nil, "rules that cannot be read are taken")
	expect.Has(t, err.Error(), "--kerberos-rules", "rules that cannot be read")
}

// A zlockd without Kerberos refuses each option of Kerberos, and says how to build a zlockd with it.
func TestKerberosIsRefusedWithoutIt(t *testing.T) {
	const base = "clientPort=2181\ndataDir=$DIR\n"
	for _, test := range []struct {
		flag, text string
		args       []string
	}{
		{"keytab", base, []string{"--kerberos-keytab", "/etc/zlockd.keytab"}},
		{"principal", base, []string{"--kerberos-principal", "zookeeper/host@REALM"}},
		{"rules", base + "security.auth_to_local=RULE:[1:$1]", nil},
		{"remove-host", base + "kerberos.removeHostFromPrincipal=true", nil},
		{"remove-realm", base, []string{"--kerberos-remove-realm"}},
	} {
		t.Run(test.flag, func(t *testing.T) {
			_, err := load(t, t.TempDir(), test.text, test.args...)
			must.Is(t, err, ErrNoKerberos)
			expect.Has(t, err.Error(), "--kerberos-"+test.flag+": ", "the error")
		})
	}
	expect.Has(t, ErrNoKerberos.Error(), "make kerberos", "what to do")
}
