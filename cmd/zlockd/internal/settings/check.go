package settings

import (
	"encoding/base64"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/tickets"
)

// complete() sets defaults that depend on other settings.
func (s *Settings) complete(given func(flag string) bool) {
	if s.MinSessionTimeout == 0 {
		s.MinSessionTimeout = 2 * s.TickTime
	}
	if s.MaxSessionTimeout == 0 {
		s.MaxSessionTimeout = 20 * s.TickTime
	}
	if addr := s.Peers[s.ID]; addr != "" && !given("peer-addr") {
		s.PeerListen = addr
	}
}

// check() records every mistake that it can find before the start, with advice for each.
func (s *Settings) check() {
	given := s.Flags.Changed
	s.Flags.VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Value.Type(), "int") && f.Value.String()[0] == '-' {
			_, usage := pflag.UnquoteUsage(f)
			s.Fault("--%s %s is negative: %s", f.Name, f.Value, usage)
		}
	})
	s.checkAddresses()
	if s.Dev {
		switch {
		case given("data-dir"):
			s.Fault("--dev keeps everything in memory: leave out --data-dir, or --dev")
		case len(s.Peers) > 0:
			s.Fault("--dev is a single server: leave out --peers, or --dev")
		}
	} else if s.DataDir == "" {
		s.Fault("--data-dir is empty: name a directory, or use --dev to keep everything in memory")
	} else if logs := s.dataLogDir; !s.ignoreZooData && logs != "" &&
		isDir(filepath.Join(logs, "version-2")) && !disk.IsDataDir(s.DataDir) {
		s.Fault("dataLogDir %s holds the logs of a ZooKeeper, which a server would not read: take them over with: "+
			"zlockd import --from %s --log-dir %s "+
			"--data-dir NEW, then start with --data-dir NEW; or start empty with --ignore-zookeeper-data", logs,
			s.DataDir, logs)
	} else if !s.ignoreZooData && isDir(filepath.Join(s.DataDir, "version-2")) && !disk.IsDataDir(s.DataDir) {
		s.Fault("%s holds the data of a ZooKeeper, which a server would not read: take them over with: zlockd "+
			"import --from %s --data-dir NEW, "+
			"then start with --data-dir NEW; or start empty beside them with --ignore-zookeeper-data", s.DataDir,
			s.DataDir)
	}
	s.checkCluster()
	s.checkTimes()
	s.checkBackups(given)
	if s.MaxFrame < 128 || s.MaxFrame > entries.MaxFrame {
		s.Fault("--max-frame %d is not between 128 and %d bytes", s.MaxFrame, entries.MaxFrame)
	}
	if most := int64(math.MaxInt64 >> 20); s.DataMiB > most || s.ReserveMiB > most {
		s.Fault("--max-data and --disk-reserve must be at most %d MiB", most)
	}
	if s.SnapshotEntries == 0 {
		s.Fault("--snapshot-entries 0 is too low: want at least 1")
	}
	oneOf := func(flag, value string, known ...string) {
		if !slices.Contains(known, value) {
			s.Fault("--%s %q is unknown: want %s", flag, value, strings.Join(known, " or "))
		}
	}
	oneOf("log-level", s.LogLevel, "debug", "info", "warn", "error")
	oneOf("log-format", s.LogFormat, "text", "json")
	if _, err := admin.New(admin.Options{Whitelist: s.FourLetterWords}); err != nil {
		s.Fault("--4lw-whitelist: %w", err)
	}
	if s.Profiling && s.AdminAddr == Off {
		s.Fault("--pprof needs --admin-addr: profiles are served there")
	}
	if s.SkipACL {
		s.Note("", "ACCESS RIGHTS ARE NOT CHECKED: every client may read, change and delete every node; leave out "+
			"--skip-acl (skipACL in a zoo.cfg) to check them")
	}
	s.checkSASL()
	if s.SuperDigest != "" && !isDigest(s.SuperDigest) {
		// Do not show the value: it may be a password.
		s.Fault("--super-digest: want USER:HASH, where HASH is base64(sha1(USER:PASSWORD)); " +
			"make it with: printf 'super:PASSWORD' | openssl dgst -binary -sha1 | openssl base64")
	}
	s.checkSecrets()
	s.checkTLS()
	s.checkFiles(time.Now())
}

func (s *Settings) checkAddresses() {
	var ports []address
	for _, a := range s.addresses() {
		mayBeOff := a.flag == "admin-addr" || a.flag == "ticket-addr" ||
			a.flag == "client-addr" && s.SecureAddr != ""
		switch {
		case (a.flag == "secure-client-addr" || a.flag == "metrics-addr" || a.flag == "ticket-addr") &&
			a.addr == "":
			continue
		case a.addr == Off && mayBeOff:
			continue
		case a.addr == Off && a.flag == "client-addr":
			s.Fault("--client-addr off needs --secure-client-addr: otherwise no client could connect")
			continue
		}
		if err := checkAddr(a.addr); err != nil {
			s.Fault("--%s %q: %w", a.flag, a.addr, err)
			continue
		}
		if a.flag == "peer-addr" && len(s.Peers) == 0 {
			continue // without peers, the server does not listen at this address
		}
		if strings.HasSuffix(a.addr, ":0") {
			continue
		}
		for _, o := range ports {
			if sameAddr(o.addr, a.addr) {
				s.Fault("--%s and --%s are the same address %s: each needs its own", o.flag, a.flag, a.addr)
			}
		}
		ports = append(ports, a)
	}
}

// sameAddr reports whether two listeners cannot both have their addresses.
func sameAddr(a, b string) bool {
	ha, pa, _ := net.SplitHostPort(a)
	hb, pb, _ := net.SplitHostPort(b)
	every := func(h string) bool { return h == "" || h == "0.0.0.0" || h == "::" }
	return pa == pb && (ha == hb || every(ha) || every(hb))
}

func (s *Settings) checkCluster() {
	for _, id := range ids(s.Peers) {
		if _, port, _ := net.SplitHostPort(s.Peers[id]); port == "0" && id != s.ID {
			s.Fault("--peers: server %d has port 0, at which the others cannot reach it", id)
		}
	}
	switch own := s.Peers[s.ID]; {
	case s.ID < 1 || s.ID > maxID && own == "":
		s.Fault("--id %d is not a number from 1 to %d", s.ID, maxID)
	case len(s.Peers) == 0 && s.ID != 1 && !s.Dev:
		s.Fault("--id %d needs --peers: list all servers of the cluster, such as --peers "+
			"1=lock1:2888,2=lock2:2888,3=lock3:2888", s.ID)
	case len(s.Peers) > 0 && own == "":
		s.Fault("--id %d is not among the --peers %s: list this server too, or correct --id", s.ID,
			s.peersFlag().String())
	default:
		err := raftfsm.Options{ID: s.ID, Peers: s.Peers, Observers: s.Observers, LogStore: s.LogStore,
			PeerListen: s.PeerListen, PeerInsecure: s.PeerInsecure || s.peerFiles.Cert != "",
			HeartbeatTimeout: s.HeartbeatTimeout, MinSessionTimeout: s.MinSessionTimeout}.Check()
		if err != nil {
			s.Faults = append(s.Faults, err)
		}
	}
}

func (s *Settings) checkBackups(given func(string) bool) {
	switch {
	case s.BackupDir == "" && (given("backup-interval") || given("backup-keep")):
		s.Fault("--backup-interval and --backup-keep need --backup-dir: name a directory, best on another disk")
	case s.BackupInterval > 0 && s.BackupInterval < time.Second:
		s.Fault("--backup-interval %v is too short: want at least 1s", s.BackupInterval)
	case s.BackupKeep == 0:
		s.Fault("--backup-keep 0 is too low: want at least 1")
	}
}

func (s *Settings) checkTimes() {
	tick, least, most := s.TickTime, s.MinSessionTimeout, s.MaxSessionTimeout
	switch {
	case tick < time.Millisecond:
		s.Fault("--tick-time %v is too short: want at least 1ms", tick)
	case least < time.Millisecond:
		s.Fault("--min-session-timeout %v is too short: want at least 1ms", least)
	case most < least:
		s.Fault("--max-session-timeout %v is shorter than --min-session-timeout %v", most, least)
	case most > 1<<31*time.Millisecond-time.Millisecond:
		s.Fault("--max-session-timeout %v is longer than the protocol allows: want at most 24 days", most)
	}
	if s.HeartbeatTimeout > 0 && s.HeartbeatTimeout < 5*time.Millisecond {
		s.Fault("--heartbeat-timeout %v is too short: want at least 5ms", s.HeartbeatTimeout)
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// isDigest reports whether s is user:base64(sha1).
func isDigest(s string) bool {
	user, hash, ok := strings.Cut(s, ":")
	sum, err := base64.StdEncoding.DecodeString(hash)
	return ok && user != "" && err == nil && len(sum) == 20
}

func (s *Settings) checkTLS() {
	if s.SecureAddr == "" {
		if s.clientFiles.Cert != "" || s.clientFiles.Key != "" || s.clientFiles.CA != "" {
			s.Fault("--tls-cert, --tls-key and --tls-ca need --secure-client-addr: give the address to " +
				"serve " +
				"TLS on")
		}
	} else if s.clientFiles.Cert == "" || s.clientFiles.Key == "" {
		s.Fault("--secure-client-addr needs --tls-cert and --tls-key")
	}
	if s.TLSClientAuth == "need" && s.clientFiles.CA == "" && s.SecureAddr != "" {
		s.Fault("clients must show certificates (ssl.clientAuth): give --tls-ca")
	}
	if n := count(s.peerFiles.Cert, s.peerFiles.Key, s.peerFiles.CA); n > 0 && n < 3 {
		s.Fault("--peer-tls-cert, --peer-tls-key and --peer-tls-ca belong together: give all three")
	}
	for _, t := range []*TLSFlags{&s.AdminFiles, &s.metricsFiles, &s.ticketFiles} {
		if n := count(t.Cert, t.Key); n == 1 || n == 0 && t.CA != "" {
			s.Fault("--%s-cert and --%[1]s-key belong together, and --%[1]s-ca needs both: give both",
				t.Flag)
		}
	}
	if s.metricsFiles.Cert != "" && s.MetricsAddr == "" {
		s.Fault("--metrics-tls-cert needs --metrics-addr: give an address, such as 0.0.0.0:7000; for " +
			"the admin port, use --admin-tls-cert")
	}
	if s.ticketFiles.Cert+s.TokensFile != "" && s.TicketAddr == "" && !s.Dev {
		s.Fault("--ticket-tls-cert and --ticket-tokens need --ticket-addr: give the address to serve " +
			"tickets on")
	}
	// This checks only addresses without a host name. If there is a name, the server looks it up and checks the
	// address then.
	host, _, _ := net.SplitHostPort(s.TicketAddr)
	if ip := net.ParseIP(host); s.TicketAddr != "" && s.TicketAddr != Off && s.ticketFiles.Cert == "" &&
		(host == "" || ip != nil && !ip.IsLoopback()) {
		s.Fault("--ticket-addr %s can be reached by others and has no TLS: give --ticket-tls-cert and "+
			"--ticket-tls-key, or an address of loopback", s.TicketAddr)
	}
	if s.MaxTicket < tickets.MinTTL || s.MaxTicket > maxTicket {
		s.Fault("--max-ticket %v: want %v to %v", s.MaxTicket, tickets.MinTTL, maxTicket)
	}
	if s.PeerInsecure && s.peerFiles.Cert != "" {
		s.Fault("--peer-insecure and --peer-tls-cert contradict each other: leave one out")
	}
	if s.tlsCRL != "" &&
		s.clientFiles.CA+s.peerFiles.CA+s.AdminFiles.CA+s.metricsFiles.CA+s.ticketFiles.CA == "" {
		s.Fault("--tls-crl needs an authority, whose certificates it revokes: --tls-ca, --peer-tls-ca, " +
			"--admin-tls-ca, --metrics-tls-ca or --ticket-tls-ca")
	}
	if s.X509Super != "" && !s.asksCertificates() {
		s.Fault("--x509-super needs --tls-ca and does not work with ssl.clientAuth=none: otherwise no " +
			"client could show a certificate")
	}
}

func count(values ...string) (n int) {
	for _, v := range values {
		if v != "" {
			n++
		}
	}
	return n
}

// maxTicket is the longest --max-ticket. A longer one would not fit in the 31 bits of a session's timeout in
// ms.
const maxTicket = 24 * 24 * time.Hour

// Read returns the settings of the command line and of the zoo.cfg it names.
func Read(args []string, kerberos Kerberos) (*Settings, error) {
	s, flags, err := parseFlags(args, os.LookupEnv)
	if err != nil || s.ShowHelp || s.ShowVersion {
		return s, err
	}
	s.Flags, s.Kerberos = flags, kerberos
	if s.Config != "" {
		if err := applyConfig(s, flags); err != nil {
			s.Faults = append(s.Faults, err)
		}
		s.noteOrigin(flags, s.Config)
	}
	s.unknownVariables(os.Environ())
	s.complete(flags.Changed)
	if !s.CheckReady { // with --check-ready a server runs already, and nothing starts
		s.check()
	}
	return s, errors.Join(s.Faults...)
}
