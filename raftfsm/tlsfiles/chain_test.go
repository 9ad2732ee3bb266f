package tlsfiles

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/certs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server does not start with a certificate that other servers would refuse. A running server does not take
// such a certificate in place of a good one, either.
func TestFilesThatPeersWouldRefuseAreNotUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		other bool // another authority signed the certificate
		dns   string
		want  string // a part of the problem; empty: the files are used
	}{
		"renewed":           {false, "zlockd-1", ""},
		"another server's":  {false, "zlockd-2", `must have only the DNS name "zlockd-1"`},
		"another authority": {true, "zlockd-1", "is not signed by --peer-tls-ca "},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := certs.New(t, t.TempDir()), certs.New(t, t.TempDir())
			a.Sign(t, "peer", []string{"zlockd-1"})
			cert, key := a.File("peer.pem"), a.File("peer.key")
			f := must.Get(Open(Names{Flag: "peer-tls", Cert: cert, Key: key, CA: a.File("ca.pem"),
				Peer: "zlockd-1"}, slog.New(slog.DiscardHandler)))(t)
			first := f.Get(time.Now())
			by := a
			if tc.other {
				by = b
			}
			by.Sign(t, "new", []string{tc.dns})
			later := time.Now().Add(time.Minute)
			put(t, cert, must.Get(os.ReadFile(by.File("new.pem")))(t), later)
			put(t, key, must.Get(os.ReadFile(by.File("new.key")))(t), later)
			now := f.Get(time.Now().Add(lookAgain))
			expect.Equal(t, now == first, tc.want != "", "whether the first files stay")
			expect.Has(t, f.Problem(), tc.want)
			expect.Equal(t, f.Problem() == "", tc.want == "", "whether there is no problem")
		})
	}
}

// A revocation list that was cut short, as on a full disk, is refused. Otherwise certificates that the whole
// list revokes would be admitted.
func TestListThatIsNotWholeIsRefused(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := write(t, dir, 1, now)
	pair := must.Get(tls.LoadX509KeyPair(cert, key))(t)
	list := func(revoked int64) []byte {
		l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now, NextUpdate: now.Add(time.Hour),
			RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(revoked),
				RevocationTime: now}}}
		der := must.Get(x509.CreateRevocationList(rand.Reader, l, pair.Leaf,
			pair.PrivateKey.(*ecdsa.PrivateKey)))(t)
		return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
	}
	one, two := list(7), list(8)
	crl := filepath.Join(dir, "crl")
	for name, tc := range map[string]struct {
		text []byte
		want string
	}{
		"two":                 {append(bytes.Clone(one), two...), ""},
		"text before":         {append([]byte("Certificate Revocation List:\n"), one...), ""},
		"the last is cut":     {append(bytes.Clone(one), two[:len(two)/2]...), "contains 2 revocation lists"},
		"the first is cut":    {append(bytes.Clone(one[:len(one)/2]), two...), "--tls-crl "},
		"the only one is cut": {one[:len(one)/2], "holds no revocation list"},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, crl, tc.text, now)
			_, err := ReadCRL(crl)
			if tc.want == "" {
				expect.OK(t, err)
				return
			}
			must.Fails(t, err, "it is read")
			expect.Has(t, err.Error(), tc.want)
		})
	}
}
