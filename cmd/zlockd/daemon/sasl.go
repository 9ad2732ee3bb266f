package daemon

import (
	"cmp"
	"crypto/fips140"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/server/sasl"
)

// authSchemes are the schemes in which a client can prove its identity.
var authSchemes = []string{"digest", "sasl", "x509"}

// words splits a list at commas and blanks.
func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// names splits the names of the cluster at commas.
func (s *settings) names() (list []string) {
	for name := range strings.SplitSeq(s.ensembleNames, ",") {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, name)
		}
	}
	return list
}

// newSASL reads how clients may authenticate by SASL. It returns nil without SASL.
func newSASL(s *settings, log *slog.Logger) (*sasl.Mechanisms, error) {
	if s.saslUsers == "" && s.keytab == "" {
		return nil, nil
	}
	var file sasl.File
	if s.saslUsers != "" {
		var err error
		if file, err = sasl.ReadFile(s.saslUsers); err != nil {
			return nil, fmt.Errorf("--sasl-users: %w", err)
		}
	}
	if file.Users != nil && fips140.Enabled() {
		return nil, fmt.Errorf("--sasl-users %s: SASL DIGEST-MD5 is off in FIPS 140 mode, which has no MD5: leave "+
			"it out, and let clients authenticate by certificates (--tls-ca)", s.saslUsers)
	}
	m := &sasl.Mechanisms{Users: file.Users}
	// Flags take precedence over the JAAS file.
	if keytab := cmp.Or(s.keytab, file.Keytab); keytab != "" {
		if s.kerberos == nil { // checkKerberos has refused the flags
			return nil, fmt.Errorf("%s names a Krb5LoginModule: %w", s.saslUsers, errNoKerberos)
		}
		var err error
		m.GSSAPI, err = s.kerberos.New(KerberosOptions{
			Keytab: keytab, Principal: cmp.Or(s.principal, file.Principal),
			Rules: s.authToLocal, RemoveHost: s.removeHost, RemoveRealm: s.removeRealm, Logger: log})
		if err != nil {
			return nil, err
		}
	} else if s.principal != "" {
		return nil, fmt.Errorf("--kerberos-principal needs --kerberos-keytab, or a Krb5LoginModule in %s",
			s.saslUsers)
	}
	if _, known := m.Users[s.SASLSuper]; s.SASLSuper != "" && !known && m.GSSAPI == nil {
		return nil, fmt.Errorf("--sasl-super %s: there is no such user in %s", s.SASLSuper, s.saslUsers)
	}
	return m, nil
}

// checkSASL reports flags of authentication that would let no client in.
func (s *settings) checkSASL() {
	required := words(s.requireAuth)
	if s.requireAuth != "" && len(required) == 0 {
		s.fault("--require-auth %q names no scheme: want %s", s.requireAuth, strings.Join(authSchemes, ", "))
	}
	for _, scheme := range required {
		if !slices.Contains(authSchemes, scheme) {
			s.fault("--require-auth %q is unknown: want %s", scheme, strings.Join(authSchemes, ", "))
		}
	}
	switch {
	case s.saslUsers != "" || s.keytab != "":
	case slices.Contains(required, "sasl"):
		s.fault("--require-auth sasl needs --sasl-users or --kerberos-keytab: no client could authenticate")
	case s.SASLSuper != "":
		s.fault("--sasl-super needs --sasl-users or --kerberos-keytab")
	case s.principal != "":
		s.fault("--kerberos-principal needs --kerberos-keytab")
	}
	s.checkKerberos()
	if fips140.Enforced() { // GODEBUG=fips140=only
		for _, o := range []struct {
			flag  string
			given bool
		}{
			{"super-digest", s.SuperDigest != ""},
			{"kerberos-keytab", s.keytab != ""},
			{"require-auth digest", slices.Contains(required, "digest")},
		} {
			if o.given {
				s.fault("--%s: it needs SHA-1, which fips140=only refuses: leave it out, and name the super user by "+
					"--x509-super", o.flag)
			}
		}
	}
	if slices.Equal(required, []string{"x509"}) && !s.asksCertificates() {
		s.fault("--require-auth x509 needs --tls-ca, and not ssl.clientAuth=none: no client could show a " +
			"certificate")
	}
}

// requiredAuth maps the three keys that let no client in without authentication.
func (z *zoo) requiredAuth() {
	var required []string
	if z.is("enforce.auth.enabled", "true") {
		if required = words(z.seen["enforce.auth.schemes"]); len(required) == 0 {
			z.wrong("enforce.auth.enabled: enforce.auth.schemes names no scheme")
		}
	}
	if z.is("sessionRequireClientSASLAuth", "true") && !slices.Contains(required, "sasl") {
		required = append(required, "sasl")
	}
	if len(required) > 0 {
		z.put("require-auth", strings.Join(required, ","))
	}
}
