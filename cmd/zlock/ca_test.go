package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestCAMakesCertificatesForACluster: the authority signs what servers and clients need, keys are
// for their owner alone, and nothing is overwritten.
func TestCAMakesCertificatesForACluster(t *testing.T) {
	dir := t.TempDir()
	ca := func(code int, args ...string) string {
		t.Helper()
		out, errs, got := runIn(t, nil, append([]string{"ca", "--dir", dir}, args...)...)
		must.Equal(t, got, code, "%v: exit %d: %s%s", args, got, out, errs)
		return out + errs
	}
	expect.Has(t, ca(exitFailed, "server", "1", "--host", "a"), "zlock ca init", "without an authority")
	ca(exitOK, "init")
	ca(exitOK, "server", "2", "--host", "b,10.0.0.2")
	ca(exitOK, "client", "ann")
	roots := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	must.That(t, err == nil && roots.AppendCertsFromPEM(text), "ca.pem: %v", err)
	for _, tc := range []struct {
		file, name string
		use        x509.ExtKeyUsage
	}{
		{"peer2", "zlockd-2", x509.ExtKeyUsageServerAuth}, {"peer2", "zlockd-2", x509.ExtKeyUsageClientAuth},
		{"server2", "b", x509.ExtKeyUsageServerAuth}, {"server2", "10.0.0.2", x509.ExtKeyUsageServerAuth},
		{"ann", "", x509.ExtKeyUsageClientAuth},
	} {
		pair := must.Get(tls.LoadX509KeyPair(filepath.Join(dir, tc.file+".pem"),
			filepath.Join(dir, tc.file+".key")))(t)
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: tc.name,
			KeyUsages: []x509.ExtKeyUsage{tc.use}}); err != nil {
			t.Errorf("%s as %s: %v", tc.file, tc.name, err)
		}
		if info, err := os.Stat(filepath.Join(dir, tc.file+".key")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key of %s: %v %v", tc.file, info.Mode(), err)
		}
		if names := pair.Leaf.DNSNames; tc.file == "peer2" && len(names) != 1 {
			t.Errorf("a peer has one name, not %q", names)
		}
	}
	before := string(text)
	expect.Has(t, ca(exitFailed, "init"), "nothing is overwritten", "a second authority")
	if text, _ := os.ReadFile(filepath.Join(dir, "ca.pem")); string(text) != before {
		t.Error("the authority was overwritten")
	}
	for _, args := range [][]string{{"server", "0", "--host", "a"}, {"server", "255", "--host", "a"},
		{"server", "1"},
		{"server"}, {"init", "x"}, {"client", "../x"}, {"other", "x"}} {
		ca(exitFailed, args...)
	}
}
