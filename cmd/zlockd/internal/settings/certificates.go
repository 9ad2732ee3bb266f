package settings

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/raftfsm/secretfile"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
)

// certificateSoon is how long before a certificate expires zlockd begins to mention it.
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

// checkAuthority checks a file of authorities. It checks the date of that authority only which ends last:
// before an authority ends, the file also has the next one, and then the old one may expire.
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

// readPEM returns the text of a file that the server reads at its start, and again later. If it cannot be
// read, readPEM records why, and returns nil. A secret file must not be readable for other users.
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

// adminTLS maps the keys for TLS at the admin port. As in ZooKeeper, this port has the certificate and the
// authority of the quorum's stores.
func (z *zoo) adminTLS() {
	force := z.is("admin.forceHttps", "true")
	if !force && !z.is("admin.portUnification", "true") {
		return
	}
	z.s.AdminClear = !force
	store, ca := z.seen["ssl.quorum.keyStore.location"], z.seen["ssl.quorum.trustStore.location"]
	switch {
	case z.given["admin-tls-cert"]:
	case store == "":
		z.wrong("admin.forceHttps and admin.portUnification need ssl.quorum.keyStore.location, or " +
			"--admin-tls-cert and --admin-tls-key")
		return
	default:
		z.put("admin-tls-cert", store)
		z.put("admin-tls-key", store)
	}
	if len(z.s.Peers) == 0 { // without peers only the admin port uses these stores
		z.s.peerFiles.Cert, z.s.peerFiles.Key, z.s.peerFiles.CA = "", "", ""
	}
	switch {
	case !z.is("admin.needClientAuth", "true"):
	case ca == "" && !z.given["admin-tls-ca"]:
		z.wrong("admin.needClientAuth needs ssl.quorum.trustStore.location, or --admin-tls-ca")
	default:
		z.put("admin-tls-ca", ca)
	}
	if z.s.AdminClear && z.s.AdminFiles.CA != "" {
		z.s.Note("", "admin.portUnification admits callers in clear text, without a certificate of "+
			"--admin-tls-ca; admin.forceHttps=true refuses them")
	}
}

const asPEM = "only PEM files are read; convert with: keytool -importkeystore -srckeystore store.jks " +
	"-destkeystore store.p12 " +
	"-deststoretype PKCS12 && openssl pkcs12 -in store.p12 -nodes -out store.pem"

// pemFile is the rule for a key that names a store. The store must be a PEM file, with the certificate and
// its key if it is a key store.
func pemFile(cert, key string) rule {
	return rule{"sets --" + cert + "; a PEM file", func(z *zoo, _, value string) error {
		if z.given[cert] {
			return nil
		}
		if !strings.HasSuffix(strings.ToLower(value), ".pem") {
			return errors.New(asPEM)
		}
		if key != "" {
			if err := z.set(key, value); err != nil {
				return err
			}
		}
		return z.set(cert, value)
	}}
}

// storeType is the rule for a key that gives the type of a store. Only PEM is accepted.
var storeType = unless("PEM", rule{"only the value PEM is accepted", refused(asPEM).apply})

func clientAuth(z *zoo, _, value string) error {
	switch v := strings.ToLower(value); v {
	case "":
		return nil // an empty value is the same as no key
	case "none", "want", "need":
		z.s.TLSClientAuth = v
		return nil
	}
	return fmt.Errorf("%q must be one of: none, want, need", value)
}

// protocols() sets the oldest TLS version that the server accepts. It is never older than 1.2.
func protocols(z *zoo, _, value string) error {
	asked := Words(value)
	switch {
	case slices.Contains(asked, "TLS"), slices.Contains(asked, "TLSv1.2"):
	case slices.Contains(asked, "TLSv1.3"):
		z.s.TLS13 = true
	default:
		return errors.New("only TLS 1.2 and 1.3 are supported")
	}
	return nil
}

func sslQuorum(z *zoo, _, value string) error {
	_, store := z.seen["ssl.quorum.keyStore.location"]
	if strings.EqualFold(value, "true") && !store && !z.given["peer-tls-cert"] {
		return errors.New("give --peer-tls-cert, --peer-tls-key and --peer-tls-ca")
	}
	return nil
}

// sslOther refuses every setting of TLS that the server does not support.
func sslOther(_ *zoo, key, value string) error {
	if value == "" {
		return nil
	}
	if strings.Contains(key, "password") {
		return errors.New("keys with a password are not read: store the key without one, in a file that only " +
			"the server may read")
	}
	return errors.New("this setting of TLS is not supported")
}
