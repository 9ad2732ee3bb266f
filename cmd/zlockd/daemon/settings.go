package daemon

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/server"
)

// settings holds what the flags and a zoo.cfg say, before anything starts. Most flags are options of the
// server; serverOptions translates the others.
type settings struct {
	server.Options // as the flags have them: an address may be off, and no limit is 0

	// Start and storage.
	config                                        string
	dev, ignoreZooData, version, checkReady, help bool
	diskReserve, maxData, auditSize               int64 // MiB
	auditKeep                                     int

	adminHosts string
	peerTLS    tlsFlags

	// Security of clients.
	clientTLS, adminTLS, metricsTLS       tlsFlags
	ticketTLS                             tlsFlags
	ticketTokens                          string // file
	tlsCRL, ensembleNames, saslUsers      string
	keytab, principal, authToLocal        string   // Kerberos
	kerberos                              Kerberos // nil without
	requireAuth                           string   // schemes, by commas
	expiredCerts, removeHost, removeRealm bool

	// Operation.
	logLevel, logFormat, auditLog string
	jvmMetrics                    bool

	flags *pflag.FlagSet // the set they were read from
	// origin is the origin of each setting that differs from its default, by its flag.
	origin map[string]string

	// Only a zoo.cfg sets these.
	dataLogDir    string
	tlsClientAuth string // none, want, need; empty: need with --tls-ca
	tls13         bool   // nothing older

	faults []error // why a server with these settings would not start
	notes  []note  // what else an operator should know of them
}

// fault records why a server would not start, and what to do about it.
func (s *settings) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Errorf(format, args...))
}

// note says why a key of a zoo.cfg or a variable has no effect; without key it is a remark of another kind.
type note struct{ key, why string }

func (s *settings) note(key, format string, args ...any) {
	s.notes = append(s.notes, note{key, fmt.Sprintf(format, args...)})
}

// durationValue is a duration. A bare number counts units; it is refused where the unit is 0.
type durationValue struct {
	*time.Duration
	unit time.Duration
}

// millis is a duration whose bare numbers are milliseconds, as in the ZooKeeper key that the flag
// replaces.
func millis(d *time.Duration) durationValue { return durationValue{d, time.Millisecond} }

// withUnit is a duration that needs its unit.
func withUnit(d *time.Duration) durationValue { return durationValue{d, 0} }

// String implements pflag.Value.
func (v durationValue) String() string {
	if v.Duration == nil || *v.Duration == 0 { // pflag makes a zero value
		return ""
	}
	return v.Duration.String()
}

// Type implements pflag.Value.
func (v durationValue) Type() string { return "DURATION" }

// Set implements pflag.Value.
func (v durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if n, number := strconv.ParseInt(s, 10, 32); number == nil && v.unit != 0 {
		d, err = time.Duration(n)*v.unit, nil
	}
	switch {
	case err == nil && d < 0:
		return errors.New("it is negative")
	case err == nil:
		*v.Duration = d
		return nil
	case v.unit != 0:
		return errors.New("want a duration such as 2s or 500ms, or a number of milliseconds")
	}
	if _, number := strconv.ParseFloat(s, 64); number == nil {
		return errors.New("the unit is missing: write " + s + "ms or " + s + "s")
	}
	return errors.New("want a duration such as 500ms, 2s or 1h")
}

func orNone(addr string) string {
	if addr == off {
		return ""
	}
	return addr
}

// asksCertificates reports whether clients can show certificates.
func (s *settings) asksCertificates() bool {
	return s.clientTLS.CA != "" && s.tlsClientAuth != "none"
}

// readSettings returns the settings of the command line and of the zoo.cfg it names.
func readSettings(args []string, kerberos Kerberos) (*settings, error) {
	s, flags, err := parseFlags(args, os.LookupEnv)
	if err != nil || s.help || s.version {
		return s, err
	}
	s.flags, s.kerberos = flags, kerberos
	if s.config != "" {
		if err := applyConfig(s, flags); err != nil {
			s.faults = append(s.faults, err)
		}
		s.noteOrigin(flags, s.config)
	}
	s.unknownVariables(os.Environ())
	s.complete(flags.Changed)
	if !s.checkReady { // a server that runs does not need what another start would
		s.check()
	}
	return s, errors.Join(s.faults...)
}
