package tlsfiles

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// write() makes a certificate with a serial number, and its key.
func write(t *testing.T, dir string, serial int64, at time.Time) (cert, key string) {
	t.Helper()
	return writeValid(t, dir, serial, at, time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
}

func writeValid(t *testing.T, dir string, serial int64, at, from, until time.Time) (cert, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"x"}, NotBefore: from,
		NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		Subject:  pkix.Name{CommonName: "x"}}
	der := must.Get(x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private))(t)
	secret := must.Get(x509.MarshalPKCS8PrivateKey(private))(t)
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	put(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), at)
	put(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), at)
	return cert, key
}

func put(t *testing.T, file string, b []byte, at time.Time) {
	t.Helper()
	must.OK(t, os.WriteFile(file, b, 0o600))
	must.OK(t, os.Chtimes(file, at, at))
}

func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := write(t, dir, 1, now)
	f := must.Get(Open(Names{Flag: "tls", Cert: cert, Key: key, CA: cert}, slog.New(slog.DiscardHandler)))(t)
	serial := func() int64 { return f.Get(now).Pair.Leaf.SerialNumber.Int64() }
	first := f.current
	expect.Equal(t, serial(), 1, "not the first certificate and its authority: serial()")
	expect.That(t, f.Get(now).CA != nil,
		"not the first certificate and its authority: want f.Get(now).CA != nil")
	expect.That(t, f.Get(now) == first, "files that have not changed are read again")
	write(t, dir, 2, now.Add(time.Minute))
	expect.Equal(t, serial(), 1, "files are looked at for every connection")
	now = now.Add(lookAgain)
	expect.Equal(t, serial(), 2, "the new certificate")
	put(t, cert, []byte("half a fi"), now.Add(2*time.Minute))
	if now = now.Add(lookAgain); serial() != 2 || !strings.Contains(f.Problem(), "--tls-cert "+cert) {
		t.Errorf("a broken file: serial %d, problem %q", serial(), f.Problem())
	}
	write(t, dir, 3, now.Add(3*time.Minute))
	if now = now.Add(lookAgain); serial() != 3 || f.Problem() != "" {
		t.Errorf("mended: serial %d, problem %q", serial(), f.Problem())
	}
}

// A file may be read while it is being written. It is read again, and used when it is complete, even if its
// size and time do not change.
func TestFilesThatCannotBeUsedAreReadAgain(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := write(t, dir, 1, now)
	before := must.Get(os.ReadFile(cert))(t)
	oldKey := must.Get(os.ReadFile(key))(t)
	f := must.Get(Open(Names{Flag: "tls", Cert: cert, Key: key}, slog.New(slog.DiscardHandler)))(t)
	serial := func() int64 { now = now.Add(lookAgain); return f.Get(now).Pair.Leaf.SerialNumber.Int64() }
	first, later := now, now.Add(time.Minute)
	write(t, dir, 2, later)
	whole := must.Get(os.ReadFile(cert))(t)
	newKey := must.Get(os.ReadFile(key))(t)
	put(t, cert, bytes.Repeat([]byte(" "), len(whole)), later)
	expect.Equal(t, serial(), 1, "the first certificate stays: serial()")
	expect.That(t, f.Problem() != "", "a certificate of spaces is no problem")
	// With the old files back, and with their old times, there is no problem.
	put(t, cert, before, first)
	put(t, key, oldKey, first)
	expect.Equal(t, serial(), 1, "serial number, with the old files back")
	expect.Equal(t, f.Problem(), "", "the problem, with the old files back")
	put(t, key, newKey, later)
	put(t, cert, bytes.Repeat([]byte(" "), len(whole)), later)
	expect.Equal(t, serial(), 1, "serial number, with a certificate of spaces and a new key")
	expect.That(t, f.Problem() != "", "a certificate of spaces with a new key is no problem")
	put(t, cert, whole, later)
	expect.Equal(t, serial(), 2, "serial number, with the new files")
	expect.Equal(t, f.Problem(), "", "the problem, with the new files")
}

// A server does not start with a key that each user of the machine can read. A running server does not take
// such a key in place of another one. If its key becomes readable, it logs a warning.
func TestKeyThatEveryUserCanReadIsNotUsed(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := write(t, dir, 1, now)
	f := must.Get(Open(Names{Flag: "tls", Cert: cert, Key: key}, slog.New(slog.DiscardHandler)))(t)
	serial := func() int64 { now = now.Add(lookAgain); return f.Get(now).Pair.Leaf.SerialNumber.Int64() }
	told := func(want bool) {
		t.Helper()
		text := f.Problem()
		expect.Equal(t, strings.Contains(text, "--tls-key: "+key+" can be read by every user"), want, "%q", text)
	}
	must.OK(t, os.Chmod(key, 0o644))
	expect.Equal(t, serial(), 1)
	told(true)
	write(t, dir, 2, now.Add(time.Minute))
	expect.Equal(t, serial(), 1, "the new key is open")
	told(true)
	expect.Fails(t, expect.Err(Open(f.n, f.log)), "a start takes it")
	must.OK(t, os.Chmod(key, 0o600))
	expect.Equal(t, serial(), 2, "the new key is a secret")
	told(false)
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	cert, key := write(t, t.TempDir(), 1, time.Now())
	_, other := write(t, t.TempDir(), 2, time.Now())
	for _, tc := range []struct{ cert, key, ca, crl, want string }{
		{"/nonexistent", key, "", "", "--tls-cert: "},
		{cert, "/nonexistent", "", "", "--tls-key: "},
		{cert, other, "", "", "private key does not match"},
		{cert, key, "/nonexistent", "", "--tls-ca: "},
		{cert, key, key, "", "--tls-ca " + key + " holds no certificate"},
		{cert, key, cert, "/nonexistent", "--tls-crl: "},
		{cert, key, cert, key, "--tls-crl " + key},
		{cert, key, cert, os.DevNull, "--tls-crl " + os.DevNull + " holds no revocation list"},
	} {
		_, err := Open(Names{Flag: "tls", Cert: tc.cert, Key: tc.key, CA: tc.ca, CRL: tc.crl}, nil)
		if expect.Fails(t, err, "%+v", tc) {
			expect.Has(t, err.Error(), tc.want, "%+v", tc)
		}
	}
}

// If a new certificate has expired or is not valid yet, the old certificate stays in use while it is valid.
// The new certificate is used as soon as it is valid.
func TestExpiredFilesDoNotReplaceGoodOnes(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := writeValid(t, dir, 1, now, now.Add(-time.Hour), now.Add(time.Hour))
	var log strings.Builder
	f := must.Get(Open(Names{Flag: "tls", Cert: cert, Key: key}, slog.New(slog.NewTextHandler(&log, nil))))(t)
	serial := func() int64 { now = now.Add(lookAgain); return f.Get(now).Pair.Leaf.SerialNumber.Int64() }
	writeValid(t, dir, 2, now.Add(time.Minute), now.Add(-2*time.Hour), now.Add(-time.Minute))
	for range 2 {
		expect.Equal(t, serial(), 1, "serial number, with an expired certificate")
	}
	expect.Has(t, f.Problem(), "--tls-cert "+cert+" is valid from ")
	expect.Equal(t, strings.Count(log.String(), "level=ERROR"), 1, "errors logged for one file")
	writeValid(t, dir, 3, now.Add(2*time.Minute), now.Add(30*time.Minute), now.Add(2*time.Hour))
	expect.Equal(t, serial(), 1, "a certificate is used before it is valid")
	now = now.Add(40 * time.Minute)
	expect.Equal(t, serial(), 3, "a certificate")
	writeValid(t, dir, 4, now.Add(3*time.Minute), now.Add(-time.Hour), now.Add(-time.Minute))
	now = now.Add(3 * time.Hour)
	expect.Equal(t, serial(), 4, "a file")
}

// A certificate is refused as soon as the list has its serial number and issuer.
func TestRevokedCertificatesAreRefused(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := write(t, dir, 1, now) // the authority, which is also the server's certificate
	pair := must.Get(tls.LoadX509KeyPair(cert, key))(t)
	crl := filepath.Join(dir, "crl")
	list := func(number int64, next, at time.Time, revoked ...int64) {
		t.Helper()
		l := &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: now.Add(-time.Hour), NextUpdate: next}
		for _, n := range revoked {
			l.RevokedCertificateEntries = append(l.RevokedCertificateEntries,
				x509.RevocationListEntry{SerialNumber: big.NewInt(n), RevocationTime: now})
		}
		der := must.Get(x509.CreateRevocationList(rand.Reader, l, pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)))(
			t)
		put(t, crl, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), at)
	}
	list(1, now.Add(time.Hour), now, 7)
	f, err := Open(Names{Flag: "tls", Cert: cert, Key: key, CA: cert, CRL: crl}, slog.New(slog.DiscardHandler))
	must.OK(t, err)
	client := &x509.Certificate{SerialNumber: big.NewInt(8), RawIssuer: pair.Leaf.RawSubject}
	ask := func() error {
		now = now.Add(lookAgain)
		return f.Get(now).NotRevoked(tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{
			{client, pair.Leaf}}})
	}
	expect.OK(t, ask(), "another is revoked, and this one is refused")
	expect.Equal(t, f.Problem(), "", "a list that is up to date")
	list(2, now.Add(-time.Minute), now.Add(time.Minute), 7, 8)
	if err := ask(); expect.Fails(t, err, "a revoked certificate") {
		expect.Has(t, err.Error(), "serial number 8 is revoked")
	}
	expect.Has(t, f.Problem(), "--tls-crl "+crl+" is out of date since ", "a list past its next update")
	other, _ := write(t, t.TempDir(), 1, now)
	forged := must.Get(os.ReadFile(other))(t)
	block, _ := pem.Decode(forged)
	issuer := must.Get(x509.ParseCertificate(block.Bytes))(t)
	err = f.Get(now).NotRevoked(tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{client, issuer}}})
	expect.OK(t, err, "a list that another authority of the same name has signed counts")
}

// A list without the date of its next update is never out of date: RFC 5280 requires the date, but not all
// authorities give it.
func TestListWithoutItsNextUpdateIsNeverOutOfDate(t *testing.T) {
	cert, key := write(t, t.TempDir(), 1, time.Now())
	f := must.Get(Open(Names{Flag: "tls", Cert: cert, Key: key, CA: cert}, slog.New(slog.DiscardHandler)))(t)
	f.current.crl = []*x509.RevocationList{{}}
	expect.Equal(t, f.Problem(), "")
}

// A file that an operator names is read up to a limit.
func TestFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for size, ok := range map[int]bool{0: true, 1: true, MaxFile: true, MaxFile + 1: false} {
		put(t, file, make([]byte, size), time.Now())
		b, err := ReadFile(file)
		if ok {
			expect.OK(t, err, "%d bytes", size)
			expect.Equal(t, len(b), size, "bytes read")
			continue
		}
		if expect.Fails(t, err, "%d bytes", size) {
			expect.Has(t, err.Error(), file+" is longer than ")
		}
	}
	expect.Is(t, expect.Err(ReadFile(filepath.Join(dir, "none"))), os.ErrNotExist)
	_, err := ReadFile(dir)
	if expect.Fails(t, err, "a directory") {
		expect.That(t, !strings.Contains(err.Error(), "longer"), "a directory counts as too long: %v", err)
	}
}
