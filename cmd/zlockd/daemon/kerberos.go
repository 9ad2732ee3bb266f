//go:build kerberos

package daemon

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/server/sasl/kerberos"
)

// newKerberos reads the keytab and returns the function that begins a GSSAPI negotiation.
func newKerberos(s *settings, keytab, principal string, log *slog.Logger) (func(io.Reader) sasl.Negotiation,
	error) {
	rules, err := kerberos.ParseRules(s.authToLocal)
	if err != nil {
		return nil, fmt.Errorf("--kerberos-rules: %w", err)
	}
	service, err := kerberos.New(kerberos.Options{
		Keytab: keytab, Principal: principal, Logger: log,
		Names: kerberos.Names{Rules: rules, RemoveHost: s.removeHost, RemoveRealm: s.removeRealm},
	})
	if err != nil {
		return nil, fmt.Errorf("--kerberos-keytab: %w", err)
	}
	log.Info("clients can authenticate with Kerberos", "principal", service.Principal())
	return func(random io.Reader) sasl.Negotiation { return service.Begin(random) }, nil
}

// checkKerberos refuses rules that cannot be parsed.
func (s *settings) checkKerberos() {
	if _, err := kerberos.ParseRules(s.authToLocal); err != nil {
		s.fault("--kerberos-rules: %w", err)
	}
}
