package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/admin"
)

// complete fills in defaults that depend on other settings.
func (s *settings) complete(given func(flag string) bool) {
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

// check returns every mistake that it can see before anything starts, and says what to do
// about each.
func (s *settings) check(flags *pflag.FlagSet) error {
	given := flags.Changed
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	flags.VisitAll(func(f *pflag.Flag) {
		if _, usage := pflag.UnquoteUsage(f); strings.HasPrefix(f.Value.Type(), "int") && f.Value.String()[0] == '-' {
			fail("--%s %s is negative: %s", f.Name, f.Value, usage)
		}
	})
	s.checkAddresses(fail)
	if s.dev {
		switch {
		case given("data-dir"):
			fail("--dev keeps everything in memory: leave out --data-dir, or --dev")
		case len(s.Peers) > 0:
			fail("--dev is a single server: leave out --peers, or --dev")
		}
	} else if s.DataDir == "" {
		fail("--data-dir is empty: name a directory, or use --dev to keep everything in memory")
	} else if logs := s.more.dataLogDir; !s.ignoreZooData && logs != "" &&
		isDir(filepath.Join(logs, "version-2")) && !disk.IsDataDir(s.DataDir) {
		fail("dataLogDir %s holds the logs of a ZooKeeper, which a server would not read: take them over with: "+
			"zlockd import --from %s --log-dir %s "+
			"--data-dir NEW, then start with --data-dir NEW; or start empty with --ignore-zookeeper-data", logs,
			s.DataDir, logs)
	} else if !s.ignoreZooData && isDir(filepath.Join(s.DataDir, "version-2")) && !disk.IsDataDir(s.DataDir) {
		fail("%s holds the data of a ZooKeeper, which a server would not read: take them over with: zlockd "+
			"import --from %s --data-dir NEW, "+
			"then start with --data-dir NEW; or start empty beside them with --ignore-zookeeper-data", s.DataDir,
			s.DataDir)
	}
	errs = append(errs, s.checkCluster(fail))
	s.checkTimes(fail)
	s.checkBackups(given, fail)
	if s.MaxFrame < 128 || s.MaxFrame > state.MaxFrame {
		fail("--max-frame %d is not between 128 and %d bytes", s.MaxFrame, state.MaxFrame)
	}
	if s.SnapshotEntries == 0 {
		fail("--snapshot-entries 0: at least 1")
	}
	oneOf := func(flag, value string, known ...string) {
		if !slices.Contains(known, value) {
			fail("--%s %q is unknown: want %s", flag, value, strings.Join(known, " or "))
		}
	}
	oneOf("log-level", s.logLevel, "debug", "info", "warn", "error")
	oneOf("log-format", s.logFormat, "text", "json")
	if _, err := admin.New(admin.Options{Whitelist: s.FourLetterWords}); err != nil {
		fail("--4lw-whitelist: %w", err)
	}
	if s.Profiling && s.AdminAddr == off {
		fail("--pprof needs --admin-addr: profiles are served there")
	}
	s.checkSASL(fail)
	if s.SuperDigest != "" && !isDigest(s.SuperDigest) {
		// The value is not repeated: it may be a password.
		fail("--super-digest: want USER:HASH, where HASH is base64(sha1(USER:PASSWORD)); " +
			"make it with: printf 'super:PASSWORD' | openssl dgst -binary -sha1 | openssl base64")
	}
	s.checkTLS(fail)
	s.checkFiles(fail, time.Now())
	return errors.Join(errs...)
}

func (s *settings) checkAddresses(fail func(string, ...any)) {
	var ports []address
	for _, a := range s.addresses() {
		mayBeOff := a.flag == "admin-addr" || a.flag == "client-addr" && s.SecureAddr != ""
		switch {
		case (a.flag == "secure-client-addr" || a.flag == "metrics-addr") && a.addr == "":
			continue
		case a.addr == off && mayBeOff:
			continue
		case a.addr == off && a.flag == "client-addr":
			fail("--client-addr off: then clients need --secure-client-addr")
			continue
		}
		if err := checkAddr(a.addr); err != nil {
			fail("--%s %q: %w", a.flag, a.addr, err)
			continue
		}
		if a.flag == "peer-addr" && len(s.Peers) == 0 {
			continue // not used
		}
		if strings.HasSuffix(a.addr, ":0") {
			continue
		}
		for _, o := range ports {
			if sameAddr(o.addr, a.addr) {
				fail("--%s and --%s are the same address %s: each needs its own", o.flag, a.flag, a.addr)
			}
		}
		ports = append(ports, a)
	}
}

// sameAddr reports whether two listeners would conflict.
func sameAddr(a, b string) bool {
	ha, pa, _ := net.SplitHostPort(a)
	hb, pb, _ := net.SplitHostPort(b)
	every := func(h string) bool { return h == "" || h == "0.0.0.0" || h == "::" }
	return pa == pb && (ha == hb || every(ha) || every(hb))
}

func (s *settings) checkCluster(fail func(string, ...any)) error {
	for _, id := range ids(s.Peers) {
		if _, port, _ := net.SplitHostPort(s.Peers[id]); port == "0" && id != s.ID {
			fail("--peers: server %d has port 0, at which nobody can reach it", id)
		}
	}
	switch own := s.Peers[s.ID]; {
	case s.ID < 1 || s.ID > maxID && own == "":
		fail("--id %d is not a number from 1 to %d", s.ID, maxID)
	case len(s.Peers) == 0 && s.ID != 1 && !s.dev:
		fail("--id %d without --peers: list all servers of the cluster, such as --peers "+
			"1=lock1:2888,2=lock2:2888,3=lock3:2888", s.ID)
	case len(s.Peers) > 0 && own == "":
		fail("--id %d is not among the --peers %s: list this server too, or correct --id", s.ID,
			s.peersFlag().String())
	default:
		return raftfsm.Options{ID: s.ID, Peers: s.Peers, Observers: s.Observers, LogStore: s.LogStore,
			PeerListen: s.PeerListen, PeerInsecure: s.PeerInsecure || s.peerTLS.Cert != "",
			HeartbeatTimeout: s.HeartbeatTimeout, MinSessionTimeout: s.MinSessionTimeout}.Check()
	}
	return nil
}

func (s *settings) checkBackups(given func(string) bool, fail func(string, ...any)) {
	switch {
	case s.BackupDir == "" && (given("backup-interval") || given("backup-keep")):
		fail("--backup-interval and --backup-keep need --backup-dir: name a directory, best on another disk")
	case s.BackupInterval > 0 && s.BackupInterval < time.Second:
		fail("--backup-interval %v is too short: at least 1s", s.BackupInterval)
	case s.BackupKeep == 0:
		fail("--backup-keep 0: at least 1")
	}
}

func (s *settings) checkTimes(fail func(string, ...any)) {
	tick, least, most := s.TickTime, s.MinSessionTimeout, s.MaxSessionTimeout
	switch {
	case tick < time.Millisecond:
		fail("--tick-time %v is too short: at least 1ms", tick)
	case least < time.Millisecond:
		fail("--min-session-timeout %v is too short: at least 1ms", least)
	case most < least:
		fail("--max-session-timeout %v is shorter than --min-session-timeout %v", most, least)
	case most > 1<<31*time.Millisecond-time.Millisecond:
		fail("--max-session-timeout %v is longer than the protocol can say, 24 days", most)
	}
	if s.HeartbeatTimeout > 0 && s.HeartbeatTimeout < 5*time.Millisecond {
		fail("--heartbeat-timeout %v is too short: at least 5ms", s.HeartbeatTimeout)
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

func (s *settings) checkTLS(fail func(string, ...any)) {
	if s.SecureAddr == "" {
		if s.clientTLS.Cert != "" || s.clientTLS.Key != "" || s.clientTLS.CA != "" {
			fail("--tls-cert, --tls-key and --tls-ca are for --secure-client-addr: give the address to serve TLS on")
		}
	} else if s.clientTLS.Cert == "" || s.clientTLS.Key == "" {
		fail("--secure-client-addr needs --tls-cert and --tls-key")
	}
	if s.more.tlsClientAuth == "need" && s.clientTLS.CA == "" && s.SecureAddr != "" {
		fail("clients must show certificates (ssl.clientAuth): give --tls-ca")
	}
	if n := count(s.peerTLS.Cert, s.peerTLS.Key, s.peerTLS.CA); n > 0 && n < 3 {
		fail("--peer-tls-cert, --peer-tls-key and --peer-tls-ca belong together: give all three")
	}
	if n := count(s.adminTLS.Cert, s.adminTLS.Key); n == 1 || n == 0 && s.adminTLS.CA != "" {
		fail("--admin-tls-cert and --admin-tls-key belong together, and --admin-tls-ca needs both: give them too")
	}
	if s.PeerInsecure && s.peerTLS.Cert != "" {
		fail("--peer-insecure and --peer-tls-cert contradict each other: leave one out")
	}
	if s.tlsCRL != "" && s.clientTLS.CA == "" && s.peerTLS.CA == "" && s.adminTLS.CA == "" {
		fail(
			"--tls-crl needs an authority, whose certificates it revokes: --tls-ca, --peer-tls-ca or --admin-tls-ca")
	}
	if s.X509Super != "" && s.clientTLS.CA == "" {
		fail("--x509-super needs --tls-ca: nobody could show a certificate")
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
