package daemon

import (
	"cmp"
	"crypto/fips140"
	"fmt"
	"log/slog"
	"strings"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/server/sasl"
)

// Kerberos and KerberosOptions are named here for the program zlockd-kerberos, which has a Kerberos.
type (
	Kerberos        = settings.Kerberos
	KerberosOptions = settings.KerberosOptions
)

// ensembleNames splits the names of the cluster at commas.
func ensembleNames(s *settings.Settings) (list []string) {
	for name := range strings.SplitSeq(s.Ensemble, ",") {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, name)
		}
	}
	return list
}

// newSASL reads how clients may authenticate by SASL. It returns nil without SASL.
func newSASL(s *settings.Settings, log *slog.Logger) (*sasl.Mechanisms, error) {
	if s.SASLUsers == "" && s.Keytab == "" {
		return nil, nil
	}
	var file sasl.File
	if s.SASLUsers != "" {
		var err error
		if file, err = sasl.ReadFile(s.SASLUsers); err != nil {
			return nil, fmt.Errorf("--sasl-users: %w", err)
		}
	}
	if file.Users != nil && fips140.Enabled() {
		return nil, fmt.Errorf("--sasl-users %s: SASL DIGEST-MD5 is off in FIPS 140 mode, which has no MD5: leave "+
			"out --sasl-users, and let clients authenticate by certificates (--tls-ca)", s.SASLUsers)
	}
	m := &sasl.Mechanisms{Users: file.Users}
	// If both a flag and the JAAS file give a value, the flag's counts.
	if keytab := cmp.Or(s.Keytab, file.Keytab); keytab != "" {
		if s.Kerberos == nil { // then the keytab is the JAAS file's: checkKerberos has refused the flag
			return nil, fmt.Errorf("%s names a Krb5LoginModule: %w", s.SASLUsers, settings.ErrNoKerberos)
		}
		var err error
		m.GSSAPI, err = s.Kerberos.New(settings.KerberosOptions{
			Keytab: keytab, Principal: cmp.Or(s.Principal, file.Principal),
			Rules: s.AuthToLocal, RemoveHost: s.RemoveHost, RemoveRealm: s.RemoveRealm, Logger: log})
		if err != nil {
			return nil, err
		}
	} else if s.Principal != "" {
		return nil, fmt.Errorf("--kerberos-principal needs --kerberos-keytab, or a Krb5LoginModule in %s",
			s.SASLUsers)
	}
	if _, known := m.Users[s.SASLSuper]; s.SASLSuper != "" && !known && m.GSSAPI == nil {
		return nil, fmt.Errorf("--sasl-super %s: there is no such user in %s", s.SASLSuper, s.SASLUsers)
	}
	return m, nil
}
