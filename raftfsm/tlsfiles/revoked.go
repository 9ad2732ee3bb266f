package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// NotRevoked refuses a peer if its certificate, or a certificate between it and the authority, is on a
// revocation list of the certificate's issuer. It can be the VerifyConnection of a tls.Config.
func (l *Loaded) NotRevoked(s tls.ConnectionState) error {
	for _, chain := range s.VerifiedChains {
		for i, c := range chain[:len(chain)-1] {
			if l.revoked(c, chain[i+1]) {
				return fmt.Errorf("the certificate %s with the serial number %x is revoked", c.Subject, c.SerialNumber)
			}
		}
	}
	return nil
}

func (l *Loaded) revoked(c, issuer *x509.Certificate) bool {
	for _, list := range l.crl {
		if !bytes.Equal(list.RawIssuer, c.RawIssuer) || list.CheckSignatureFrom(issuer) != nil {
			continue
		}
		for i := range list.RevokedCertificateEntries {
			if list.RevokedCertificateEntries[i].SerialNumber.Cmp(c.SerialNumber) == 0 {
				return true
			}
		}
	}
	return false
}

// ReadCRL reads the revocation lists in a PEM file.
func ReadCRL(path string) (lists []*x509.RevocationList, err error) {
	text, err := read("tls-crl", path)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("--tls-crl %s: %w", path, err)
		}
		lists = append(lists, list)
	}
	switch begun := bytes.Count(text, []byte("-----BEGIN ")); {
	case lists == nil:
		return nil, fmt.Errorf("--tls-crl %s holds no revocation list: want a PEM file with BEGIN X509 CRL", path)
	case begun != len(lists): // a list is not whole: without it, certificates that it revokes would be accepted
		return nil, fmt.Errorf("--tls-crl %s contains %d revocation lists, but only %d of them are whole",
			path,
			begun, len(lists))
	}
	return lists, nil
}
