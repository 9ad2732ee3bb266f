package daemon

import (
	"cmp"
	"crypto/fips140"
	"fmt"
	"log/slog"
	"strings"

	"github.com/zlockd/zlockd/server/sasl"
)

// ensembleNames splits the names of the cluster at commas.
func ensembleNames(s *settings) (list []string) {
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
