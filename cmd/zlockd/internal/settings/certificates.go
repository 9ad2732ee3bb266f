package settings

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm/secretfile"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
)

// certificateSoon is how long before its expiry zlockd mentions a certificate.
const certificateSoon = 30 * 24 * time.Hour

// checkFiles checks the files of certificates and keys: their contents, whether each key belongs to
// its certificate, the dates, and for peers the name and the authority.
func (s *Settings) checkFiles(now time.Time) {
	if s.readPEM("tls-crl", s.tlsCRL, false) != nil {
		if _, err := tlsfiles.ReadCRL(s.tlsCRL); err != nil {
			s.Fault("%w", err)
		}
	}
	for _, f := range s.TLSFlags() {
		cert := s.readPEM(f.Flag+"-cert", f.Cert, false)
		key := s.readPEM(f.Flag+"-key", f.Key, true)
		ca := s.readPEM(f.Flag+"-ca", f.CA, false)
		if cert != nil && key != nil {
			s.checkCertificate(now, *f, cert, key, ca)
		}
		if ca != nil {
			s.checkAuthority(now, f.Flag, f.CA, ca)
		}
	}
}

// checkAuthority checks a file of authorities. Only the authority that ends last counts, because the file
// holds both the present and the next authority while certificates of both are in use.
func (s *Settings) checkAuthority(now time.Time, flag, file string, ca []byte) {
	if !x509.NewCertPool().AppendCertsFromPEM(ca) {
		s.Fault("--%s-ca %s holds no certificate: want a PEM file with BEGIN CERTIFICATE", flag, file)
		return
	}
	until := tlsfiles.LastEnd(ca)
	if until.Sub(now) >= certificateSoon {
		return
	}
	ends := "ends soon"
	if now.After(until) {
		ends = "has ended"
	}
	s.Note("", "the last authority of --%s-ca %s %s, at %s, and no certificate is trusted after that: add the "+
		"certificate of the next authority to the file", flag, file, ends, until.UTC().Format(time.RFC3339))
}

// checkSecrets refuses a configuration that holds a secret and that every user of the machine can read. The
// hash of --super-digest is a secret, because it has no salt.
func (s *Settings) checkSecrets() {
	if s.SuperDigest == "" || s.origin["super-digest"] != s.Config || s.Config == "" {
		return
	}
	if info, err := os.Stat(s.Config); err == nil && info.Mode().IsRegular() {
		if err := secretfile.Check(s.Config, info); err != nil {
			s.Fault("--super-digest: %w", err)
		}
	}
}

// readPEM returns the text of a file that the server must be able to read, at its start and later again. If
// it cannot be read, readPEM records the reason and returns nil. A secret must be readable only for the
// server's user.
func (s *Settings) readPEM(flag, file string, secret bool) []byte {
	if file == "" {
		return nil
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		s.Fault("--%s: %w", flag, err)
		return nil
	case info.IsDir():
		s.Fault("--%s %s is a directory: want a PEM file", flag, file)
		return nil
	case !info.Mode().IsRegular():
		s.Fault("--%s %s is a pipe or a device: want a PEM file, which the server can read again", flag, file)
		return nil
	}
	if secret {
		if err := secretfile.Check(file, info); err != nil {
			s.Fault("--%s: %w", flag, err)
		}
	}
	text, err := tlsfiles.ReadFile(file)
	if err != nil {
		s.Fault("--%s: %w", flag, err)
		return nil
	}
	return text
}

func (s *Settings) checkCertificate(now time.Time, f TLSFlags, cert, key, ca []byte) {
	flag, certFile, keyFile := f.Flag, f.Cert, f.Key
	if !bytes.Contains(cert, []byte("BEGIN CERTIFICATE")) {
		s.Fault("--%s-cert %s holds no certificate: want a PEM file with BEGIN CERTIFICATE", flag, certFile)
		return
	}
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err != nil && strings.Contains(string(key), "ENCRYPTED"):
		s.Fault("--%s-key %s is encrypted: store it without a passphrase, readable by the server only", flag,
			keyFile)
		return
	case err != nil:
		s.Fault("--%s-cert %s and --%s-key %s do not go together: %w", flag, certFile, flag, keyFile, err)
		return
	}
	leaf := pair.Leaf
	from, until := leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339)
	what := ""
	switch {
	case now.After(leaf.NotAfter):
		what = "has expired"
	case now.Before(leaf.NotBefore):
		what = "is not valid yet"
	case leaf.NotAfter.Sub(now) < certificateSoon:
		s.Note("", "the certificate of --%s-cert ends soon, at %s", flag, until)
	}
	if what != "" && !s.expiredCerts {
		s.Fault("--%s-cert %s %s: it is valid from %s until %s; renew it, or look at this machine's clock "+
			"(--allow-expired-certs starts all the same)", flag, certFile, what, from, until)
	}
	if f.Peer == "" {
		return
	}
	if err := f.CheckName(leaf); err != nil {
		s.Fault("%w", err)
	}
	if ca != nil && what == "" {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		if err := f.CheckChain(pair, roots, now); err != nil {
			s.Fault("%w", err)
		}
	}
}
