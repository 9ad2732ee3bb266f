package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/raftfsm/state"
)

// settings holds what the flags and a zoo.cfg say, before anything starts.
type settings struct {
	logLost func() int64 // lines that did not reach stderr; no flag

	// Start and storage.
	config, dataDir, logStore, backupDir          string
	dev, ignoreZooData, version, checkReady, help bool
	snapshotEntries, diskReserve                  int64 // disk in MiB
	snapshotInterval, backupInterval              time.Duration
	backupKeep                                    int

	// Addresses: "off" opens no port; of those for clients the one with TLS then remains.
	clientAddr, secureClientAddr, peerAddr, adminAddr, metricsAddr, adminHosts string

	// The cluster.
	id                     uint32
	peers                  peerList
	observers              []uint32
	words                  map[uint32]state.Server // the server lines of a zoo.cfg
	heartbeat              time.Duration
	peerTLS                tlsFlags
	peerInsecure, reconfig bool
	loneVoter              bool // standaloneEnabled=false in a zoo.cfg

	// Sessions and limits.
	tickTime, minSessionTimeout, maxSessionTimeout, containerCheck millisValue
	maxClientCnxns                                                 int // 0: no limit
	maxCnxns                                                       int // 0: what descriptors and memory allow
	maxFrame, maxNodes                                             int
	maxData                                                        int64 // MiB
	readOnly, linearizable, enforceQuota, noTTL                    bool

	// Security of clients.
	clientTLS, adminTLS                                         tlsFlags
	tlsCRL                                                      string
	superDigest, x509Super, ensembleNames, saslUsers, saslSuper string
	keytab, principal, authToLocal                              string // Kerberos
	requireAuth                                                 string // schemes, by commas
	expiredCerts, removeHost, removeRealm, skipACL              bool

	// Operation.
	whitelist, logLevel, logFormat, auditLog string
	jvmMetrics, pprof                        bool
	slowRequest                              time.Duration

	flags *pflag.FlagSet // the set they were read from
	// origin is the origin of each setting that differs from its default, by its flag.
	origin map[string]string

	// Only a zoo.cfg sets these.
	more zooSettings
}

// zooSettings are the few settings that a zoo.cfg has and no flag has.
type zooSettings struct {
	text           string // of the file, without its secrets
	dataLogDir     string
	snapshotRetain int
	snapshotBytes  int64
	tlsClientAuth  string // none, want, need; empty: need with --tls-ca
	tls13          bool   // nothing older
	adminBoth      bool   // the admin port speaks clear text beside TLS
	notes          []note // lines without effect, for the log
}

// note says why a line of a zoo.cfg has no effect.
type note struct{ key, why string }

// millisValue is a duration whose bare numbers are milliseconds, as in the ZooKeeper key that
// the flag replaces.
type millisValue time.Duration

// String implements pflag.Value.
func (m *millisValue) String() string {
	if *m == 0 {
		return ""
	}
	return time.Duration(*m).String()
}

// Type implements pflag.Value.
func (m *millisValue) Type() string { return "DURATION" }

// Set implements pflag.Value.
func (m *millisValue) Set(s string) error {
	if n, err := strconv.ParseInt(s, 10, 32); err == nil {
		*m = millisValue(time.Duration(n) * time.Millisecond)
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a duration such as 2s or 500ms, or a number of milliseconds")
	}
	*m = millisValue(d)
	return nil
}

// durationValue is a duration that needs its unit.
type durationValue time.Duration

// String implements pflag.Value.
func (v *durationValue) String() string {
	if *v == 0 {
		return ""
	}
	return time.Duration(*v).String()
}

// Type implements pflag.Value.
func (v *durationValue) Type() string { return "DURATION" }

// Set implements pflag.Value.
func (v *durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, number := strconv.ParseFloat(s, 64); number == nil {
			return errors.New("the unit is missing: write " + s + "ms or " + s + "s")
		}
		return errors.New("want a duration such as 500ms, 2s or 1h")
	}
	*v = durationValue(d)
	return nil
}
