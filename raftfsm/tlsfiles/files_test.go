package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write makes a certificate with a serial number, and its key.
func write(t *testing.T, dir string, serial int64, at time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"x"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	put(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), at)
	put(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), at)
	return cert, key
}

func put(t *testing.T, file string, b []byte, at time.Time) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := write(t, dir, 1, now)
	f, err := Open("tls", cert, key, cert, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 { return f.Get(now).Pair.Leaf.SerialNumber.Int64() }
	if serial() != 1 || f.Get(now).CA == nil {
		t.Error("not the first certificate and its authority")
	}
	write(t, dir, 2, now.Add(time.Minute))
	if serial() != 1 {
		t.Error("files are looked at for every connection")
	}
	if now = now.Add(lookAgain); serial() != 2 {
		t.Error("the new certificate is not used")
	}
	put(t, cert, []byte("half a fi"), now.Add(2*time.Minute))
	if now = now.Add(lookAgain); serial() != 2 || !strings.Contains(f.Problem(), "--tls-cert "+cert) {
		t.Errorf("a broken file: serial %d, problem %q", serial(), f.Problem())
	}
	write(t, dir, 3, now.Add(3*time.Minute))
	if now = now.Add(lookAgain); serial() != 3 || f.Problem() != "" {
		t.Errorf("mended: serial %d, problem %q", serial(), f.Problem())
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	cert, key := write(t, t.TempDir(), 1, time.Now())
	_, other := write(t, t.TempDir(), 2, time.Now())
	for _, tc := range []struct{ cert, key, ca, want string }{
		{"/nonexistent", key, "", "--tls-cert: "},
		{cert, "/nonexistent", "", "--tls-key: "},
		{cert, other, "", "private key does not match"},
		{cert, key, key, "--tls-ca " + key + " holds no certificate"},
	} {
		if _, err := Open("tls", tc.cert, tc.key, tc.ca, nil); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
