package clients

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
	"github.com/zlockd/zlockd/tree/acl"
)

// secureRig returns a rig that also serves clients over TLS, with and without certificates.
func secureRig(t *testing.T, o options.Options) (r *rig, dial func(certs ...tls.Certificate) *wire.Conn) {
	t.Helper()
	cert, leaf := certificate(t, "server")
	o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	r = newRig(t, o)
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var served sync.WaitGroup
	served.Go(func() { expect.OK(t, r.srv.ServeTLS(ln)) })
	t.Cleanup(served.Wait)
	t.Cleanup(r.srv.CutOff)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return r, func(certs ...tls.Certificate) *wire.Conn {
		nc := must.Get(tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: roots, Certificates: certs}))(t)
		c := wire.New(nc)
		t.Cleanup(func() { c.Close() })
		must.OK(t, c.Connect(wire.NewSession(30_000)))
		return c
	}
}

// On both ports and in every scheme, a client is the super user if it proves an identity that the options
// name. No other identity makes a client the super user.
func TestWhichClientsAreTheSuperUser(t *testing.T) {
	subject := func(name string) tls.Certificate {
		cert, _ := certificate(t, name)
		return cert
	}
	digest := func(credentials string) string { return acl.DigestID(credentials).ID }
	type client struct {
		digest, user, password string
		certificates           []tls.Certificate
	}
	kinds := map[string]client{
		"nothing proved":                {},
		"a certificate":                 {certificates: []tls.Certificate{subject("root")}},
		"a certificate of another":      {certificates: []tls.Certificate{subject("rootroot")}},
		"a certificate without subject": {certificates: []tls.Certificate{subject("")}},
		"a password":                    {digest: "root:secret"},
		"an empty password":             {digest: "root:"},
		"a missing password":            {digest: "root"},
		"a doubled password":            {digest: "root:secret:secret"},
		"empty credentials":             {digest: ""},
		"sasl":                          {user: "root", password: "top"},
		"sasl of another":               {user: "bob", password: "secret"},
	}
	for _, x := range []struct {
		name  string
		super identity.Super
		who   string // the kind of client that is the super user
	}{
		{"none", identity.Super{}, ""},
		{"x509", identity.Super{X509: "CN=root"}, "a certificate"},
		{"digest", identity.Super{Digest: digest("root:secret")}, "a password"},
		{"empty digest", identity.Super{Digest: digest("root:")}, ""},
		{"digest without a user", identity.Super{Digest: digest("")}, ""},
		{"sasl", identity.Super{SASL: "root"}, "sasl"},
	} {
		r, dial := secureRig(t, options.Options{Super: x.super, SASL: &sasl.Mechanisms{Users: saslUsers}})
		for kind, k := range kinds {
			for port, c := range map[string]*wire.Conn{"TLS": dial(k.certificates...), "plain": r.client()} {
				t.Run(fmt.Sprintf("%s/%s/%s", x.name, kind, port), func(t *testing.T) {
					call(t, c, jute.OK, jute.OpAuth, wire.Auth("digest", k.digest))
					if k.user != "" {
						must.Equal(t, authenticate(t, c, k.user, k.password), jute.OK)
					}
					ids := who(t, c)
					want := x.who == kind && (port == "TLS" || k.certificates == nil)
					expect.Equal(t, ids[identity.SuperID], want, "super user among %v", ids)
					expect.That(t, !ids[jute.ID{Scheme: "x509"}], "an empty subject is an identity: %v", ids)
				})
			}
		}
	}
}

// A certificate proves its whole subject. If the subject has two names, the certificate does not prove either
// name alone.
func TestCertificateWithTwoNames(t *testing.T) {
	_, dial := secureRig(t, options.Options{Super: identity.Super{X509: "CN=admin"}})
	cert, _ := certificateOf(t, pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "eve"},
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "admin"}}})
	ids := who(t, dial(cert))
	expect.That(t, ids[jute.ID{Scheme: "x509", ID: "CN=admin,CN=eve"}], "identities %v", ids)
	expect.That(t, !ids[identity.SuperID], "it is the super user's: %v", ids)
}

// An empty subject does not count as authentication.
func TestCertificateWithoutSubjectProvesNothing(t *testing.T) {
	_, dial := secureRig(t, options.Options{RequireAuth: []string{"x509"}})
	named, _ := certificate(t, "client")
	unnamed, _ := certificate(t, "")
	call(t, dial(named), jute.OK, jute.OpExists, wire.PathWatch("/zookeeper", false))
	call(t, dial(unnamed), jute.SessionClosedRequireAuth, jute.OpExists, wire.PathWatch("/zookeeper", false))
}
