package settings

import (
	"crypto/fips140"
	"fmt"
	"slices"
	"strings"
)

// authSchemes are the schemes that --require-auth may name.
var authSchemes = []string{"digest", "sasl", "x509"}

// Words splits a list at commas and blanks.
func Words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// checkSASL reports flags for authentication that lack another flag, or that together let no client in.
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

// requiredAuth maps the three keys by which a ZooKeeper demands authentication to --require-auth.
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

// skipACL maps the key that turns off all access rights. It is careful: only ZooKeeper's own spelling counts.
func skipACL(z *zoo, key, value string) error {
	if _, bare := z.raw[key]; !bare {
		z.s.Note("zookeeper."+key, "ZooKeeper reads this key only without the prefix \"zookeeper.\"")
		return nil
	}
	return toFlag("skip-acl", exactly("yes")).apply(z, key, value)
}

// superUser maps a key whose value names the super user: of SASL or, if it has a colon, USER:HASH of the
// scheme digest, as in ZooKeeper.
func superUser(z *zoo, key, value string) error {
	if strings.Contains(value, ":") {
		return toFlag("super-digest").apply(z, key, value)
	}
	return z.set("sasl-super", value)
}

// authProvider accepts the names of schemes that zlockd has. It accepts SASL even without any SASL users:
// then no client can authenticate by SASL, but none gets in by it either.
func authProvider(z *zoo, key, value string) error {
	if strings.HasSuffix(value, ".SASLAuthenticationProvider") {
		if z.seen["java.security.auth.login.config"] == "" && !z.given["sasl-users"] &&
			!z.given["kerberos-keytab"] {
			z.s.Note(key, "there are no users: give --sasl-users or --kerberos-keytab, or name a JAAS file by "+
				"java.security.auth.login.config")
		}
		return nil
	}
	for _, known := range []string{"DigestAuthenticationProvider", "IPAuthenticationProvider",
		"EnsembleAuthenticationProvider", "X509AuthenticationProvider"} {
		if strings.HasSuffix(value, "."+known) {
			return nil
		}
	}
	return fmt.Errorf("%s cannot be loaded: the schemes are world, auth, digest, ip, x509, sasl and "+
		"ensemble", value)
}
