package daemon

import (
	"errors"
	"log/slog"

	"github.com/zlockd/zlockd/server/sasl"
)

// Kerberos is what a program with Kerberos adds to zlockd; see [Main].
type Kerberos interface {
	// CheckRules refuses rules that cannot be parsed.
	CheckRules(rules string) error
	// New reads the keytab. Its errors name the flag.
	New(KerberosOptions) (sasl.Mechanism, error)
}

// KerberosOptions are the settings of Kerberos.
type KerberosOptions struct {
	Keytab, Principal, Rules string
	RemoveHost, RemoveRealm  bool
	Logger                   *slog.Logger
}

// errNoKerberos says how to get a zlockd with Kerberos.
var errNoKerberos = errors.New(
	"this zlockd has no Kerberos; build bin/zlockd-kerberos, which has it, with: make kerberos")

// checkKerberos refuses rules that cannot be parsed, and without Kerberos every option that asks for it.
func (s *settings) checkKerberos() {
	if s.kerberos != nil {
		if err := s.kerberos.CheckRules(s.authToLocal); err != nil {
			s.fault("--kerberos-rules: %w", err)
		}
		return
	}
	for _, o := range []struct {
		flag  string
		asked bool
	}{
		{"keytab", s.keytab != ""},
		{"principal", s.principal != ""},
		{"rules", s.authToLocal != "DEFAULT"},
		{"remove-host", s.removeHost},
		{"remove-realm", s.removeRealm},
	} {
		if o.asked {
			s.fault("--kerberos-%s: %w", o.flag, errNoKerberos)
		}
	}
}
