package server

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server/report"
	"github.com/zlockd/zlockd/test/certs"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// For every port that can have a certificate, a warning announces the end of the certificate.
func TestCertificateOfEachPortIsWatched(t *testing.T) {
	pair, _, _ := until(t, time.Now().Add(24*time.Hour))
	options := reflect.TypeFor[Options]()
	uses := map[string]bool{}
	for n := range options.NumField() {
		if options.Field(n).Type != reflect.TypeFor[*tls.Config]() {
			continue
		}
		t.Run(options.Field(n).Name, func(t *testing.T) {
			i := &Instance{}
			reflect.ValueOf(&i.o).Elem().Field(n).Set(reflect.ValueOf(
				&tls.Config{Certificates: []tls.Certificate{pair}}))
			s := report.Status{Now: time.Now()}
			i.certificateStatus(&s, true)
			must.Equal(t, len(s.Faults), 1, "faults for a certificate that ends within a day")
			must.Equal(t, len(s.Extra), 1, "metrics")
			use := s.Extra[0].Labels[0].Value
			expect.That(t, !uses[use], "another port is called %s, too", use)
			expect.Has(t, s.Faults[0], "the certificate for "+use+" ends on ")
			uses[use] = true
		})
	}
	expect.That(t, len(uses) >= 4, "only %v have certificates", uses)
}

// A certificate whose authority has expired admits no caller.
func TestEndOfTheAuthoritiesOfCallersIsTold(t *testing.T) {
	const day = 24 * time.Hour
	end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for _, use := range []string{"clients", "admin", "metrics", "tickets"} {
		i := &Instance{}
		i.o.TLSAuthorities = map[string]func() time.Time{use: func() time.Time { return end }}
		for left, want := range map[time.Duration]struct {
			text string
			bad  bool
		}{40 * day: {"", false}, 20 * day: {" ends on 2026-12-01 ", false},
			2 * day: {" ends on 2026-12-01 ", true}, -day: {" has ended on 2026-12-01 ", true}} {
			s := report.Status{Now: end.Add(-left)}
			i.certificateStatus(&s, true)
			told := strings.Join(s.Notices, "") + strings.Join(s.Faults, "")
			expect.Equal(t, told != "", want.text != "", "%s, %v before: something is told", use, left)
			expect.Has(t, told, want.text, "%s, %v before", use, left)
			expect.Equal(t, len(s.Faults) == 1, want.bad, "%s, %v before its end, faults %q", use, left, s.Faults)
			expect.Equal(t, s.Extra[0].Labels[0].Value, use+"-ca")
			expect.Equal(t, time.Duration(s.Extra[0].Value)*time.Second, left, "time left in the metric")
		}
	}
}

// Peers accept no certificate whose authority has expired, however long the certificate itself lasts.
func TestEndOfTheAuthorityOfPeersIsTold(t *testing.T) {
	const day = 24 * time.Hour
	a := &certs.Authority{Dir: t.TempDir(), From: -90 * day, Life: 20 * day}
	a.Cert, a.Key = a.Sign(t, "ca", nil)
	a.Life = 300 * day
	a.Sign(t, "peer1", []string{"zlockd-1"})
	i := &Instance{peerTLS: must.Get(tlsfiles.Open(tlsfiles.Names{Flag: "peer-tls", Cert: a.File("peer1.pem"),
		Key: a.File("peer1.key"), CA: a.File("ca.pem")}, nil))(t)}
	for left, bad := range map[time.Duration]bool{20 * day: false, 2 * day: true, -day: true} {
		s := report.Status{Now: a.Cert.NotAfter.Add(-left)}
		i.certificateStatus(&s, true)
		told := strings.Join(s.Notices, "") + strings.Join(s.Faults, "")
		expect.Has(t, told, "the authority that signed the certificate for peers ends on ", "%v before", left)
		expect.Equal(t, len(s.Faults) == 1, bad, "%v before its end, faults %q", left, s.Faults)
		expect.Equal(t, time.Duration(s.Extra[0].Value)*time.Second, left, "time left in the metric")
	}
	s := report.Status{Now: a.Cert.NotAfter.Add(-40 * day)}
	i.certificateStatus(&s, false)
	expect.Equal(t, len(s.Notices)+len(s.Faults), 0, "what is told long before: %q, %q", s.Notices, s.Faults)
}
