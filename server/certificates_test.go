package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/clients"
	"github.com/zlockd/zlockd/test/must"
)

// until makes a certificate that ends then, and its files.
func until(t *testing.T, end time.Time) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"zlockd-1"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end}
	der := must.Get(x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private))(t)
	secret := must.Get(x509.MarshalPKCS8PrivateKey(private))(t)
	cert, key = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	must.OK(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must.OK(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	pair = must.Get(tls.LoadX509KeyPair(cert, key))(t)
	return pair, cert, key
}

// TestCertificatesAreShownAsTheyAre: that for clients may be another one since the
// start, and the peers' has an end as well. What ends soon is a notice.
func TestCertificatesAreShownAsTheyAre(t *testing.T) {
	day := 24 * time.Hour
	first, _, _ := until(t, time.Now().Add(20*day))
	second, _, _ := until(t, time.Now().Add(300*day))
	_, cert, key := until(t, time.Now().Add(21*day))
	peers := must.Get(peer.LoadTLS(tlsfiles.Names{Flag: "peer-tls", Cert: cert, Key: key, CA: cert},
		slog.New(slog.DiscardHandler)))(t)
	now := &tls.Config{Certificates: []tls.Certificate{first}}
	conf := &tls.Config{Certificates: now.Certificates, GetConfigForClient: func(*tls.ClientHelloInfo) (
		*tls.Config, error) {
		return now, nil
	}}
	i, _ := start(t, Options{AdminAddr: "127.0.0.1:0", Clients: clients.Options{TLSConfig: conf},
		Raft: raftfsm.Options{PeerTLS: peers}})

	ends := func(name string) bool {
		return slices.ContainsFunc(i.Status(0).Notices, func(n string) bool {
			return strings.Contains(n, "the certificate for "+name+" ends on ")
		})
	}
	if !ends("clients") || !ends("peers") {
		t.Errorf("notices %q", i.Status(0).Notices)
	}
	now = &tls.Config{Certificates: []tls.Certificate{second}} // renewed
	if ends("clients") || !ends("peers") {
		t.Errorf("notices after one was renewed: %q", i.Status(0).Notices)
	}
	if list := i.certificates(); len(list) != 2 || !list[0].NotAfter.Equal(second.Leaf.NotAfter) {
		t.Errorf("shown are %+v", list)
	}
	now = &tls.Config{Certificates: []tls.Certificate{first}}
	s := admin.Status{Now: time.Now().Add(17*day + time.Hour)}
	i.certificateStatus(&s, false)
	if len(s.Faults) != 1 || !strings.Contains(s.Faults[0], "the certificate for clients ends on ") ||
		len(s.Notices) != 1 {
		t.Errorf("within three days of one end: faults %q, notices %q", s.Faults, s.Notices)
	}
	s = admin.Status{Now: time.Now().Add(28 * day)}
	i.certificateStatus(&s, true)
	if len(s.Faults) != 2 ||
		!strings.Contains(s.Faults[0], "the certificate for clients has ended: it was valid from ") {
		t.Errorf("faults when it is too late: %q", s.Faults)
	}
	if len(s.Extra) != 2 || s.Extra[1].Labels[0].Value != "peers" || s.Extra[1].Value > -6*day.Seconds() ||
		s.Extra[1].Value < -8*day.Seconds() {
		t.Errorf("metrics: %+v", s.Extra)
	}
	s = admin.Status{Now: first.Leaf.NotBefore.Add(-time.Minute)}
	i.certificateStatus(&s, false)
	if len(s.Faults) < 1 ||
		!strings.Contains(s.Faults[0], "the certificate for clients is not valid yet: it is from ") {
		t.Errorf("faults when it is too early: %q", s.Faults)
	}
	// The peers' certificate is renewed, and then the file breaks.
	_, newCert, newKey := until(t, time.Now().Add(200*day))
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		must.OK(t, os.Rename(from, to))
		must.OK(t, os.Chtimes(to, time.Now().Add(time.Hour), time.Now().Add(time.Hour)))
	}
	await(t, "the peers' certificate is the new one", func() bool { return !ends("peers") })
	must.OK(t, os.WriteFile(cert, []byte("half a fi"), 0o600))
	await(t, "the broken file is told", func() bool {
		return slices.ContainsFunc(i.Status(0).Notices, func(n string) bool {
			return strings.Contains(n, "the old ones stay: --peer-tls-cert "+cert)
		})
	})
}

// await waits until ok, for a minute at most.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
