// Package certs makes certificates for tests.
package certs

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
)

// Authority signs certificates for a test.
type Authority struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
	Dir  string
	From time.Duration // when certificates become valid, relative to now; default: an hour ago
	Life time.Duration // how long certificates are valid from now on; default: an hour
}

// New makes an authority. It writes the certificate to ca.pem in the directory, and the key to ca.key.
func New(t *testing.T, dir string) *Authority {
	t.Helper()
	a := &Authority{Dir: dir}
	a.Cert, a.Key = a.Sign(t, "ca", nil)
	return a
}

// Sign makes NAME.pem and NAME.key in the directory.
func (a *Authority) Sign(t *testing.T, name string, dns []string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: dns,
		NotBefore: time.Now().Add(cmp.Or(a.From, -time.Hour)), NotAfter: time.Now().Add(cmp.Or(a.Life, time.Hour)),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.Cert, a.Key
	if parent == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.IPAddresses = true, true, x509.KeyUsageCertSign, nil
		parent, signer = c, key
	} else if dns != nil {
		c.IPAddresses = nil // a peer is known only by its name
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer))(t)
	private := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	a.write(t, name+".pem", "CERTIFICATE", der)
	a.write(t, name+".key", "PRIVATE KEY", private)
	cert := must.Get(x509.ParseCertificate(der))(t)
	return cert, key
}

func (a *Authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	must.OK(t, os.WriteFile(a.File(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
		0o600))
}

// File returns the path of a file in the directory.
func (a *Authority) File(name string) string { return filepath.Join(a.Dir, name) }

// Trust returns a configuration of a client that trusts the authority.
func (a *Authority) Trust() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	return &tls.Config{RootCAs: roots}
}
