package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Names are the paths of the files; CA and CRL may be empty. Error messages name the files by their flags:
// Flag-cert, Flag-key, Flag-ca and tls-crl.
type Names struct {
	Flag, Cert, Key, CA, CRL string
	// Peer is the DNS name of the server among its peers. The peers check that name, and use the same
	// authority. Peer is empty if the certificate is not for peers.
	Peer string
}

// forPeers returns an error if peers would refuse the certificate. It returns nil if the certificate is not
// for peers.
func (n *Names) forPeers(pair tls.Certificate, ca *x509.CertPool, now time.Time) error {
	if n.Peer == "" {
		return nil
	}
	return errors.Join(n.CheckName(pair.Leaf), n.CheckChain(pair, ca, now))
}

// CheckName returns an error unless Peer is the only DNS name of the certificate.
func (n *Names) CheckName(leaf *x509.Certificate) error {
	if len(leaf.DNSNames) == 1 && leaf.DNSNames[0] == n.Peer {
		return nil
	}
	return fmt.Errorf("--%s-cert %s is for %q: the certificate of this server must have only the DNS name %q "+
		"(see --id)", n.Flag,
		n.Cert, strings.Join(leaf.DNSNames, ", "), n.Peer)
}

// CheckChain returns an error if no chain leads from a certificate, through the certificates after it in its
// file, to an authority. It returns nil if ca is nil.
func (n *Names) CheckChain(pair tls.Certificate, ca *x509.CertPool, now time.Time) error {
	if ca == nil {
		return nil
	}
	if _, err := chainsOf(pair, ca, now); err != nil {
		return fmt.Errorf("--%s-cert %s is not signed by --%s-ca %s, or an intermediate certificate is "+
			"missing after it in the file: %w", n.Flag, n.Cert, n.Flag, n.CA, err)
	}
	return nil
}

func chainsOf(pair tls.Certificate, ca *x509.CertPool, now time.Time) ([][]*x509.Certificate, error) {
	o := x509.VerifyOptions{Roots: ca, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			o.Intermediates.AddCert(c)
		}
	}
	return pair.Leaf.Verify(o)
}

// endOf returns when the last of the chains stops being valid.
func endOf(chains [][]*x509.Certificate) (until time.Time) {
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(until) {
			until = end
		}
	}
	return until
}

// LastEnd returns when the last of the certificates in a PEM text expires. It returns zero if there is no
// certificate.
func LastEnd(text []byte) (until time.Time) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.After(until) {
			until = c.NotAfter
		}
	}
	return until
}
