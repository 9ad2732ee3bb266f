package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients"
)

// until makes a certificate that ends then, and its files.
func until(t *testing.T, end time.Time) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"zlockd-1"}, NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	cert, key = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	pair, err = tls.LoadX509KeyPair(cert, key)
	must(t, err)
	return pair, cert, key
}

// TestCertificatesAreShownAsTheyAre: that for clients may be another one since the
// start, and the peers' has an end as well. What ends soon is a notice.
func TestCertificatesAreShownAsTheyAre(t *testing.T) {
	day := 24 * time.Hour
	first, _, _ := until(t, time.Now().Add(2*day))
	second, _, _ := until(t, time.Now().Add(300*day))
	_, cert, key := until(t, time.Now().Add(3*day))
	peers, err := peer.LoadTLS(cert, key, cert)
	must(t, err)
	now := &tls.Config{Certificates: []tls.Certificate{first}}
	conf := &tls.Config{Certificates: now.Certificates, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now, nil }}
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", Clients: clients.Options{TLSConfig: conf}, Raft: raftfsm.Options{PeerTLS: peers}})

	ends := func(name string) bool {
		return slices.ContainsFunc(i.Status(0).Notices, func(n string) bool { return strings.Contains(n, "the certificate for "+name+" ends on ") })
	}
	if !ends("clients") || !ends("peers") {
		t.Errorf("notices %q", i.Status(0).Notices)
	}
	now = &tls.Config{Certificates: []tls.Certificate{second}} // renewed
	if ends("clients") || !ends("peers") {
		t.Errorf("notices after one was renewed: %q", i.Status(0).Notices)
	}
	if list := i.certificates(); len(list) != 2 || !list[0].Expires.Equal(second.Leaf.NotAfter) {
		t.Errorf("shown are %+v", list)
	}
	now = &tls.Config{Certificates: []tls.Certificate{first}}
	s := admin.Status{Now: time.Now().Add(10 * day)}
	i.certificateStatus(&s)
	if len(s.Notices) != 2 || !strings.Contains(s.Notices[0], "the certificate for clients has ended on ") {
		t.Errorf("notices when it is too late: %q", s.Notices)
	}
}
