package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/server/report"
)

// certificate is a certificate that the server shows, or the date of the authority for the certificates that
// others show to it.
type certificate struct {
	// which port: clients, peers, admin, metrics or tickets; followed by -ca for an authority
	use               string
	*x509.Certificate           // nil for an authority
	until             time.Time // its end; at the peer port, the authority's end if that is sooner
}

// certificates returns the certificates that the server shows at its ports now, and the authorities that it
// accepts there.
func (i *Instance) certificates() (list []certificate) {
	port := func(use string, cfg *tls.Config) {
		for _, leaf := range shown(cfg) {
			list = append(list, certificate{use, leaf, leaf.NotAfter})
		}
	}
	port("clients", i.o.ClientTLS)
	if t := i.peerTLS; t != nil {
		now := t.Get(time.Now())
		list = append(list, certificate{"peers", now.Pair.Leaf, now.Until})
	}
	port("admin", i.o.AdminTLS)
	port("metrics", i.o.MetricsTLS)
	port("tickets", i.o.TicketTLS)
	for _, use := range slices.Sorted(maps.Keys(i.o.TLSAuthorities)) {
		list = append(list, certificate{use + "-ca", nil, i.o.TLSAuthorities[use]()})
	}
	return list
}

// shown() returns the certificates that a port with this configuration shows to an ordinary client.
func shown(cfg *tls.Config) (list []*x509.Certificate) {
	if cfg == nil {
		return nil
	}
	hello := &tls.ClientHelloInfo{}
	if cfg.GetConfigForClient != nil { // each connection gets its own configuration: take that
		if c, err := cfg.GetConfigForClient(hello); err == nil && c != nil {
			cfg = c
		}
	}
	pairs := cfg.Certificates
	if cfg.GetCertificate != nil {
		if c, err := cfg.GetCertificate(hello); err == nil && c != nil {
			pairs = []tls.Certificate{*c}
		}
	}
	for _, p := range pairs {
		leaf := p.Leaf
		if leaf == nil && len(p.Certificate) > 0 {
			leaf, _ = x509.ParseCertificate(p.Certificate[0]) // omit an unreadable certificate
		}
		if leaf != nil {
			list = append(list, leaf)
		}
	}
	return list
}

// When a certificate ends in less time than these, /health shows a notice or, for the shorter one, a fault.
const (
	certificateSoon = 30 * 24 * time.Hour
	certificateBad  = 3 * 24 * time.Hour
)

// word() says what is wrong with the certificate at the time `now`, and "" if nothing is. `bad` is true if
// others refuse the certificate, now or within days.
func (c *certificate) word(now time.Time) (text string, bad bool) {
	if c.Certificate == nil {
		return c.authorityWord(now)
	}
	from, to := c.NotBefore.UTC().Format(time.DateTime), c.NotAfter.UTC().Format(time.DateTime)
	switch left := c.until.Sub(now); {
	case c.until.Before(c.NotAfter) && left < certificateSoon:
		return fmt.Sprintf("the authority that signed the certificate for %s ends on %s (UTC), and no server "+
			"trusts the certificate after that: renew the authority, and give its new certificate to all "+
			"servers", c.use, c.until.UTC().Format(time.DateTime)), left < certificateBad
	case now.Before(c.NotBefore):
		return fmt.Sprintf("the certificate for %s is not valid yet: it is valid from %s to %s (UTC); look "+
			"at the clock",
			c.use, from, to), true
	case now.After(c.NotAfter):
		return fmt.Sprintf("the certificate for %s has ended: it was valid from %s to %s (UTC); renew it", c.use,
			from, to), true
	case c.NotAfter.Sub(now) < certificateSoon:
		return fmt.Sprintf("the certificate for %s ends on %s (UTC); renew it", c.use, to),
			c.NotAfter.Sub(now) < certificateBad
	}
	return "", false
}

// authorityWord is word() for an authority. Of several authorities in a file, that one counts which ends
// last.
func (c *certificate) authorityWord(now time.Time) (text string, bad bool) {
	left := c.until.Sub(now)
	if left >= certificateSoon {
		return "", false
	}
	ends := "ends"
	if left < 0 {
		ends = "has ended"
	}
	return fmt.Sprintf("the last authority for the certificates of %s %s on %s (UTC), and no certificate is "+
		"trusted after that: add the certificate of the next authority to the file",
		strings.TrimSuffix(c.use, "-ca"), ends, c.until.UTC().Format(time.DateTime)), left < certificateBad
}

// logCertificates logs bad certificates.
func (i *Instance) logCertificates() {
	for _, c := range i.certificates() {
		if text, bad := c.word(i.o.Now()); bad {
			i.o.Logger.Error(text)
		}
	}
}

// certificateStatus adds faults, notices and metrics of certificates and their files to a status.
func (i *Instance) certificateStatus(s *report.Status, metrics bool) {
	for _, c := range i.certificates() {
		s.Certificates = append(s.Certificates, report.Certificate{Use: c.use, Expires: c.until})
		if text, bad := c.word(s.Now); bad {
			s.Faults = append(s.Faults, text)
		} else if text != "" {
			s.Notices = append(s.Notices, text)
		}
		if metrics {
			s.Measure("certificate_expiry_seconds",
				"Seconds until the end of a certificate of this server, or of an authority for callers' "+
					"certificates; negative after the end.",
				c.until.Sub(s.Now).Seconds(), report.Pair{Key: "use", Value: c.use})
		}
	}
	var problems []string
	for _, problem := range i.o.TLSProblems {
		problems = append(problems, problem())
	}
	if t := i.peerTLS; t != nil {
		problems = append(problems, t.Problem())
	}
	for _, p := range problems {
		if p != "" {
			s.Notices = append(s.Notices, p)
		}
	}
}
