//go:build !kerberos

package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/zlockd/zlockd/server/sasl"
)

// errNoKerberos says how to get a zlockd with Kerberos.
var errNoKerberos = errors.New(
	"this zlockd is built without Kerberos; build one that has it with: make build TAGS=kerberos")

// newKerberos refuses the keytab of a JAAS file; checkKerberos has refused the flags.
func newKerberos(s *settings, _, _ string, _ *slog.Logger) (func(io.Reader) sasl.Negotiation, error) {
	return nil, fmt.Errorf("%s names a Krb5LoginModule: %w", s.saslUsers, errNoKerberos)
}

// checkKerberos refuses every option that asks for Kerberos.
func (s *settings) checkKerberos() {
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
