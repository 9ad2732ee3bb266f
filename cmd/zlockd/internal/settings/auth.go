package settings

import (
	"crypto/fips140"
	"slices"
	"strings"
)

// authSchemes are the schemes in which a client can prove its identity.
var authSchemes = []string{"digest", "sasl", "x509"}

// Words splits a list at commas and blanks.
func Words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// checkSASL reports flags of authentication that would let no client in.
func (s *Settings) checkSASL() {
	required := Words(s.AuthSchemes)
	if s.AuthSchemes != "" && len(required) == 0 {
		s.Fault("--require-auth %q names no scheme: want %s", s.AuthSchemes, strings.Join(authSchemes, ", "))
	}
	for _, scheme := range required {
		if !slices.Contains(authSchemes, scheme) {
			s.Fault("--require-auth %q is unknown: want %s", scheme, strings.Join(authSchemes, ", "))
		}
	}
	switch {
	case s.SASLUsers != "" || s.Keytab != "":
	case slices.Contains(required, "sasl"):
		s.Fault("--require-auth sasl needs --sasl-users or --kerberos-keytab: otherwise no client could " +
			"authenticate")
	case s.SASLSuper != "":
		s.Fault("--sasl-super needs --sasl-users or --kerberos-keytab")
	case s.Principal != "":
		s.Fault("--kerberos-principal needs --kerberos-keytab")
	}
	s.checkKerberos()
	if fips140.Enforced() { // GODEBUG=fips140=only
		for _, o := range []struct {
			flag  string
			given bool
		}{
			{"super-digest", s.SuperDigest != ""},
			{"kerberos-keytab", s.Keytab != ""},
			{"require-auth digest", slices.Contains(required, "digest")},
		} {
			if o.given {
				s.Fault("--%s needs SHA-1, which fips140=only refuses: leave it out, and name the super "+
					"user by "+
					"--x509-super", o.flag)
			}
		}
	}
	if slices.Equal(required, []string{"x509"}) && !s.asksCertificates() {
		s.Fault("--require-auth x509 needs --tls-ca and does not work with ssl.clientAuth=none: otherwise " +
			"no client could show a " +
			"certificate")
	}
}

// requiredAuth maps the three keys that let no client in without authentication.
func (z *zoo) requiredAuth() {
	var required []string
	if z.is("enforce.auth.enabled", "true") {
		if required = Words(z.seen["enforce.auth.schemes"]); len(required) == 0 {
			z.wrong("enforce.auth.enabled needs a scheme in enforce.auth.schemes")
		}
	}
	if z.is("sessionRequireClientSASLAuth", "true") && !slices.Contains(required, "sasl") {
		required = append(required, "sasl")
	}
	if len(required) > 0 {
		z.put("require-auth", strings.Join(required, ","))
	}
}
