package settings

import (
	"errors"
	"log/slog"

	"github.com/zlockd/zlockd/server/sasl"
)

// Kerberos is what the program zlockd-kerberos has and zlockd lacks. In zlockd it is nil.
type Kerberos interface {
	// CheckRules refuses rules that cannot be parsed.
	CheckRules(rules string) error
	// New reads the keytab. An error names the flag that is wrong.
	New(KerberosOptions) (sasl.Mechanism, error)
}

// KerberosOptions are the settings of Kerberos.
type KerberosOptions struct {
	Keytab, Principal, Rules string
	RemoveHost, RemoveRealm  bool
	Logger                   *slog.Logger
}

// ErrNoKerberos is the error of options of Kerberos in a zlockd without Kerberos.
var ErrNoKerberos = errors.New(
	"this zlockd has no Kerberos; build bin/zlockd-kerberos, which has it, with: make kerberos")

// checkKerberos refuses rules that cannot be parsed. In a program without Kerberos it refuses every option of
// Kerberos.
func (s *Settings) checkKerberos() {
	if s.Kerberos != nil {
		if err := s.Kerberos.CheckRules(s.AuthToLocal); err != nil {
			s.Fault("--kerberos-rules: %w", err)
		}
		return
	}
	for _, o := range []struct {
		flag  string
		asked bool
	}{
		{"keytab", s.Keytab != ""},
		{"principal", s.Principal != ""},
		{"rules", s.AuthToLocal != "DEFAULT"},
		{"remove-host", s.RemoveHost},
		{"remove-realm", s.RemoveRealm},
	} {
		if o.asked {
			s.Fault("--kerberos-%s: %w", o.flag, ErrNoKerberos)
		}
	}
}
