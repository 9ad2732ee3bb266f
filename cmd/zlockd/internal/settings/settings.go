// Package settings reads the settings of a server from flags, the environment and a zoo.cfg. It finds their
// mistakes before anything starts. [Read] returns the settings with which zlockd starts a server.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server"
)

// Settings are the values of the flags and of a zoo.cfg. Most are options of the server as they are;
// serverOptions translates the others.
type Settings struct {
	server.Options // as in the flags, for example "off" as an address, and 0 for no limit

	// Start and storage.
	Config                                                string
	Dev, ignoreZooData, ShowVersion, CheckReady, ShowHelp bool
	ReserveMiB, DataMiB, AuditMiB                         int64 // MiB
	AuditKeep                                             int

	AdminNames string
	peerFiles  TLSFlags

	// How clients are protected.
	clientFiles, AdminFiles, metricsFiles TLSFlags
	ticketFiles                           TLSFlags
	TokensFile                            string // name of the file with the tokens
	tlsCRL, Ensemble, SASLUsers           string
	Keytab, Principal, AuthToLocal        string   // Kerberos
	Kerberos                              Kerberos // nil: the program has no Kerberos
	AuthSchemes                           string   // schemes, separated by commas
	expiredCerts, RemoveHost, RemoveRealm bool

	// What the operator sees.
	LogLevel, LogFormat, AuditLog string
	JVMMetrics                    bool

	Flags *pflag.FlagSet // the set from which the settings were read
	// `origin` says where the value of a flag comes from. It lacks flags that have their default.
	origin map[string]string

	// These settings have no flags: they come from a zoo.cfg.
	dataLogDir    string
	TLSClientAuth string // none, want or need; empty: need if there is a --tls-ca, and otherwise none
	TLS13         bool   // accept only TLS 1.3

	Faults []error // why a server with these settings would not start
	Notes  []note  // remarks for the operator
}

// Fault records why a server would not start, with advice.
func (s *Settings) Fault(format string, args ...any) {
	s.Faults = append(s.Faults, fmt.Errorf(format, args...))
}

// note says why a key of a zoo.cfg, or a variable, has no effect. If Key is empty, it is another remark.
type note struct{ Key, Why string }

func (s *Settings) Note(key, format string, args ...any) {
	s.Notes = append(s.Notes, note{key, fmt.Sprintf(format, args...)})
}

// durationValue is a flag for a duration. `unit` is the unit of a number without one; 0: such a number is
// refused.
type durationValue struct {
	*time.Duration
	unit time.Duration
}

// millis returns a flag for a duration. A number without a unit counts milliseconds, as in the key of
// ZooKeeper that the flag replaces.
func millis(d *time.Duration) durationValue { return durationValue{d, time.Millisecond} }

// withUnit returns a flag for a duration that must have a unit.
func withUnit(d *time.Duration) durationValue { return durationValue{d, 0} }

// String implements pflag.Value.
func (v durationValue) String() string {
	if v.Duration == nil || *v.Duration == 0 { // nil: pflag calls String on a zero value, too
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

func OrNone(addr string) string {
	if addr == Off {
		return ""
	}
	return addr
}

// asksCertificates reports whether clients can show certificates.
func (s *Settings) asksCertificates() bool {
	return s.clientFiles.CA != "" && s.TLSClientAuth != "none"
}

// TLSFlags are the files for TLS at one port, as its flags name them.
type TLSFlags struct{ tlsfiles.Names }

// declare declares the three flags of a port. `cert` and `ca` say for the help what the certificate and the
// authority are for.
func (t *TLSFlags) declare(f *pflag.FlagSet, flag, cert, ca string) {
	t.Flag = flag
	f.StringVar(&t.Cert, flag+"-cert", "", cert+", PEM `FILE`, read again when it changes")
	f.StringVar(&t.Key, flag+"-key", "", "its key, PEM `FILE` that only the server may read")
	f.StringVar(&t.CA, flag+"-ca", "", ca+", PEM `FILE`")
}

// TLSFlags returns the files of the ports for clients, for peers, for the admin, for the metrics and for
// tickets.
func (s *Settings) TLSFlags() [5]*TLSFlags {
	all := [...]*TLSFlags{&s.clientFiles, &s.peerFiles, &s.AdminFiles, &s.metricsFiles, &s.ticketFiles}
	for _, t := range all {
		t.CRL = s.tlsCRL
	}
	s.peerFiles.Peer = fmt.Sprintf("zlockd-%d", s.ID)
	return all
}

// Print writes the settings in force and the origin of each.
func (s *Settings) Print(w io.Writer) {
	s.Flags.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		switch f.Name {
		case "help", "version":
			return
		case "super-digest":
			if value != "" {
				value = "(not shown)"
			}
		case "peer-addr":
			value = s.PeerListen
		}
		fmt.Fprintf(w, "%-28s %-32s %s\n", "--"+f.Name, cmp.Or(value, "-"), cmp.Or(s.origin[f.Name], "default"))
	})
}
