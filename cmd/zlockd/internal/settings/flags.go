package settings

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/zlockd/zlockd/cmd/internal/cli"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/server/clients/options"
	"github.com/zlockd/zlockd/server/tickets"
)

// Off is the address of a listener that is switched off.
const Off = "off"

// Groups declares every flag, under the heading where --help shows it.
func Groups(s *Settings) []cli.Group {
	var groups []cli.Group
	begin := func(title string) *pflag.FlagSet {
		f := pflag.NewFlagSet(title, pflag.ContinueOnError)
		f.SortFlags = false
		groups = append(groups, cli.Group{Title: title, Flags: f})
		return f
	}

	f := begin("Start")
	f.BoolVar(&s.Dev, "dev", false,
		"a server for development: one process, everything in memory, nothing left behind")
	f.StringVar(&s.Config, "config", "", "read `FILE`, a ZooKeeper's zoo.cfg; flags take precedence over it")
	f.StringVar(&s.DataDir, "data-dir", "./zlockd-data",
		"keep log, snapshots and identity in `DIR`, which is made if missing")
	f.BoolVar(&s.ignoreZooData, "ignore-zookeeper-data", false,
		"start empty beside the data of a ZooKeeper (version-2) in the data directory, instead of refusing; "+
			"zlockd import takes them over")

	f = begin("Addresses (any port may be 0: a free one is taken and shown)")
	f.StringVar(&s.ClientAddr, "client-addr", "127.0.0.1:2181",
		"serve clients on `HOST:PORT`; \"off\" with --secure-client-addr")
	f.StringVar(&s.AdminAddr, "admin-addr", "127.0.0.1:8181",
		"serve metrics, health and commands over HTTP on `HOST:PORT`; \"off\" turns it off")
	f.StringVar(&s.AdminNames, "admin-hosts", "",
		"more `NAMES` by which callers may address the admin port, * = any")
	f.StringVar(&s.MetricsAddr, "metrics-addr", "", "serve /metrics, and nothing else, on `HOST:PORT` too")
	f.StringVar(&s.TicketAddr, "ticket-addr", "",
		"serve tickets, locks for callers without a process, over HTTP on `HOST:PORT`; beyond loopback only "+
			"with --ticket-tls-cert; the default of --dev is 127.0.0.1:8183 or a free port")
	f.StringVar(&s.PeerListen, "peer-addr", "127.0.0.1:2888",
		"listen for the other servers on `HOST:PORT`; with --peers the default is this server's entry there")

	f = begin("Cluster")
	f.Uint32Var(&s.ID, "id", 1, "id of this server among --peers, `N` from 1 to 254")
	f.Var(s.peersFlag(), "peers",
		"all servers of the cluster, this one included; leave out for a single server; append :observer "+
			"to a server without a vote")
	f.Var(withUnit(&s.HeartbeatTimeout), "heartbeat-timeout",
		"follow a silent leader no longer than this, then elect another (default 1s; 30ms in a single server)")
	s.peerFiles.declare(f, "peer-tls", "this server's certificate for its peers, with the DNS name zlockd-ID",
		"the authority that signed the peers' certificates")
	f.BoolVar(&s.Reconfig, "reconfig", false,
		"let clients that may write /zookeeper/config change the members (zkCli's reconfig)")
	f.BoolVar(&s.PeerInsecure, "peer-insecure", false,
		"let servers use clear text beyond loopback: any host that reaches the peer port can change all data")

	f = begin("Sessions and limits (bare numbers of the first three are milliseconds)")
	s.TickTime = 2 * time.Second
	f.Var(millis(&s.TickTime), "tick-time", "unit of the session timeouts below")
	f.Var(millis(&s.MinSessionTimeout), "min-session-timeout",
		"shortest session timeout a client gets (default 2 ticks)")
	f.Var(millis(&s.MaxSessionTimeout), "max-session-timeout",
		"longest session timeout a client gets (default 20 ticks)")
	f.IntVar(&s.MaxConnsPerAddr, "max-client-cnxns", options.DefaultMaxConnsPerAddr,
		"at most `N` connections from one address, 0 = no limit")
	f.IntVar(&s.MaxConns, "max-cnxns", 0,
		"at most `N` connections in all, 0 = as many as descriptors and memory allow")
	f.IntVar(&s.MaxSessions, "max-sessions", 0,
		"refuse new sessions beyond `N` in the cluster, 0 = as many as memory allows, -1 = no limit")
	f.IntVar(&s.MaxAddrSessions, "max-address-sessions", 0,
		"refuse new sessions beyond `N` from one address, 0 = half of --max-sessions, -1 = no limit")
	s.MaxTicket = tickets.DefaultMax
	f.Var(withUnit(&s.MaxTicket), "max-ticket", "the longest time a ticket gets between two requests")
	f.IntVar(&s.MaxFrame, "max-frame", options.DefaultMaxFrame, "longest request in `BYTES`")
	f.BoolVar(&s.ReadOnlyMode, "read-only-mode", false,
		"while no leader is known, let clients read this server's data, if they allow read-only mode")
	f.BoolVar(&s.LinearizableReads, "linearizable-reads", false,
		"confirm with a majority before every read, so that no read is ever stale")
	f.IntVar(&s.MaxNodes, "max-nodes", 0, "refuse new nodes beyond `N`, 0 = no limit")
	f.Int64Var(&s.DataMiB, "max-data", 0,
		"refuse more data beyond this many `MIB` of paths, data and ACLs, 0 = no limit")
	f.BoolVar(&s.EnforceQuota, "enforce-quota", false,
		"refuse writes beyond the hard limits of zkCli's setquota -N and -B; otherwise such writes are "+
			"only logged, as in ZooKeeper")
	f.BoolVar(&s.NoTTL, "no-ttl", false,
		"refuse nodes with a time to live, as ZooKeeper does by default")
	f.BoolVar(&s.OneLayout, "one-layout", false,
		"refuse a contender of a lock if living contenders do not see it, as with Curator and kazoo")
	s.SweepInterval = raftfsm.DefaultSweep
	f.Var(millis(&s.SweepInterval), "container-check-interval",
		"remove empty containers and overdue TTL nodes this often")

	f = begin("Storage")
	f.StringVar(&s.LogStore, "log-store", "wal",
		"how the log is stored, `wal|bolt`: segmented files, or one bolt database")
	f.Int64Var(&s.SnapshotEntries, "snapshot-entries", raftfsm.DefaultSnapshotEntries,
		"take a snapshot every `N` requests")
	f.Var(withUnit(&s.SnapshotInterval), "snapshot-interval",
		"take a snapshot this often too, if something changed (default never)")
	f.Int64Var(&s.ReserveMiB, "disk-reserve", raftfsm.DefaultDiskReserve>>20,
		"refuse requests that need more room while fewer than this many `MIB` of the disk are free, "+
			"0 = never")
	f.StringVar(&s.BackupDir, "backup-dir", "", "take backups into `DIR`, one server of a cluster after another")
	f.Var(withUnit(&s.BackupInterval), "backup-interval",
		"time between the backups of a server (default 1h)")
	f.IntVar(&s.BackupKeep, "backup-keep", backup.DefaultKeep, "keep the newest `N` backups of this server")

	f = begin("Security of clients")
	f.StringVar(&s.SecureAddr, "secure-client-addr", "", "serve clients over TLS on `HOST:PORT`")
	s.clientFiles.declare(f, "tls", "certificate for clients",
		"ask clients for a certificate signed by this authority")
	s.AdminFiles.declare(f, "admin-tls", "serve the admin port over TLS with this certificate",
		"admit to the admin port only certificates signed by this authority")
	s.metricsFiles.declare(f, "metrics-tls", "serve --metrics-addr over TLS with this certificate",
		"admit to --metrics-addr only certificates signed by this authority")
	s.ticketFiles.declare(f, "ticket-tls", "serve --ticket-addr over TLS with this certificate",
		"at --ticket-addr, identify callers by certificates signed by this authority")
	f.StringVar(&s.TokensFile, "ticket-tokens", "",
		"at --ticket-addr, identify callers by the bearer tokens of `FILE`, lines NAME SHA256 PATHS, "+
			"read again at SIGHUP")
	f.StringVar(&s.tlsCRL, "tls-crl", "",
		"refuse certificates that the lists in `FILE` (PEM, read again when it changes) revoke: those of "+
			"clients, peers and callers of the other ports")
	f.StringVar(&s.X509Super, "x509-super", "",
		"who may do everything: the `SUBJECT` of a client's certificate, as CN=admin,O=example")
	f.BoolVar(&s.expiredCerts, "allow-expired-certs", false,
		"start with a certificate of this server that has expired or is not valid yet")
	f.StringVar(&s.SuperDigest, "super-digest", "",
		"who may do everything, also change state over HTTP: `USER:HASH`, the hash being "+
			"base64(sha1(USER:PASSWORD))")
	f.StringVar(&s.SASLUsers, "sasl-users", "",
		"who may authenticate by SASL DIGEST-MD5: `FILE` of lines user:password, or a JAAS file with a section "+
			"Server, also for Kerberos")
	f.StringVar(&s.SASLSuper, "sasl-super", "",
		"the `USER` of --sasl-users or of Kerberos who may do everything")
	f.StringVar(&s.Keytab, "kerberos-keytab", "",
		"let clients authenticate by SASL GSSAPI (Kerberos) with this server's keys of `FILE`, read again when "+
			"it changes")
	f.StringVar(&s.Principal, "kerberos-principal", "",
		"this server's `PRINCIPAL`, as zookeeper/host.example.org@EXAMPLE.ORG; without it the only one of the "+
			"keytab")
	f.StringVar(&s.AuthToLocal, "kerberos-rules", "DEFAULT",
		"`RULES` that turn a principal into a short name, as in auth_to_local")
	f.BoolVar(&s.RemoveHost, "kerberos-remove-host", false,
		"leave the host of a principal out of its identity in ACLs")
	f.BoolVar(&s.RemoveRealm, "kerberos-remove-realm", false,
		"leave the realm of a principal out of its identity in ACLs")
	f.StringVar(&s.Ensemble, "ensemble-names", "",
		"close clients that use the scheme ensemble with a name other than these `NAMES`")
	f.StringVar(&s.AuthSchemes, "require-auth", "",
		"close clients that ask for anything before they have authenticated by one of these `SCHEMES`: digest, "+
			"sasl, x509")
	f.BoolVar(&s.SkipACL, "skip-acl", false, "check no access rights at all")

	f = begin("Operation")
	f.StringVar(&s.FourLetterWords, "4lw-whitelist", admin.DefaultWhitelist,
		"answer these four-letter `WORDS`, * = all; srvr is always answered")
	f.BoolVar(&s.JVMMetrics, "jvm-metrics", true,
		"show memory, threads and collections also under the names of a Java process, for ZooKeeper's "+
			"dashboards")
	f.BoolVar(&s.Profiling, "pprof", false, "serve profiles of the process at /debug/pprof of the admin address")
	f.StringVar(&s.AuditLog, "audit-log", "",
		"write a line for each requested change to `FILE|stderr|syslog`, in the form of ZooKeeper's audit "+
			"log")
	f.Int64Var(&s.AuditMiB, "audit-log-size", 100,
		"begin a new file of the audit log after this many `MIB`, 0 = never")
	f.IntVar(&s.AuditKeep, "audit-log-keep", 10, "keep the newest `N` old files of the audit log")
	f.Var(withUnit(&s.SlowRequest), "slow-request",
		"log requests that take longer than this (default never)")
	f.StringVar(&s.LogLevel, "log-level", "info", "lowest level to log, `debug|info|warn|error`")
	f.StringVar(&s.LogFormat, "log-format", "text", "form of the log, `text|json`")
	f.BoolVar(&s.CheckReady, "check-ready", false,
		"ask the admin port of the server with these settings whether it serves clients, and exit: 0 yes, 1 no")
	f.BoolVar(&s.ShowVersion, "version", false, "print the version and exit")
	f.BoolVarP(&s.ShowHelp, "help", "h", false, "print this help and exit")
	return groups
}

// parseFlags reads the command line. Flags that it does not give come from the environment. The returned set
// knows which flags were given.
func parseFlags(args []string, env func(string) (string, bool)) (*Settings, *pflag.FlagSet, error) {
	s := new(Settings)
	all := pflag.NewFlagSet("zlockd", pflag.ContinueOnError)
	all.SetOutput(io.Discard)
	all.Usage = func() {}
	for _, g := range Groups(s) {
		all.AddFlagSet(g.Flags)
	}
	if err := all.Parse(args); err != nil {
		return nil, nil, cli.FlagError(all, err, OtherNames)
	}
	if n := all.NArg(); n > 0 && !s.ShowHelp && !s.ShowVersion {
		return nil, nil, fmt.Errorf("unexpected argument %q: all settings are flags, such as --client-addr",
			all.Arg(0))
	}
	s.origin = map[string]string{}
	s.noteOrigin(all, "command line")
	err := setFromEnv(all, env)
	s.noteOrigin(all, "environment")
	return s, all, err
}

// noteOrigin records `from` as the origin of all flags that are set by now and have no origin yet.
func (s *Settings) noteOrigin(all *pflag.FlagSet, from string) {
	all.Visit(func(f *pflag.Flag) {
		if s.origin[f.Name] == "" {
			s.origin[f.Name] = from
		}
	})
}

// OtherNames maps names that other programs use for a flag to zlockd's flag.
var OtherNames = map[string]string{
	"p": "client-addr", "port": "client-addr", "client-port": "client-addr", "clientPort": "client-addr",
	"host": "client-addr", "listen": "client-addr", "addr": "client-addr", "address": "client-addr",
	"bind": "client-addr", "d": "data-dir", "dir": "data-dir", "c": "config", "conf": "config",
	"cfg": "config", "v": "version", "servers": "peers", "cluster": "peers", "myid": "id",
	"debug": "log-level", "verbose": "log-level", "memory": "dev",
}

// Details has texts about some flags that only the manual shows.
var Details = map[string]string{
	"admin-hosts": "All other names get 421 except at /health and /ready, so that no web page can read the " +
		"port by DNS rebinding; addresses, localhost, and the names of this machine and of the members are " +
		"always allowed",
	"peers":            "The servers that form a new cluster; later the members change by zlock member",
	"max-client-cnxns": "0 also lifts the other limits for one address, see docs/limits.md",
	"max-cnxns": "The default uses four fifths of the file descriptors, or half of the memory at 64 KiB " +
		"each, whichever is less",
	"max-sessions": "The server then closes new clients as with --max-cnxns; existing sessions go on. By " +
		"default as many as fit into a quarter of the memory at 2 KiB each",
	"max-address-sessions": "At most 50,000 by default; no limit while --max-client-cnxns is 0",
	"read-only-mode": "Read-only mode begins 2.5 s after the leader is lost. Writes get NOTREADONLY; " +
		"sessions last as " +
		"long as the connection, or go on elsewhere",
	"max-nodes":     "Creates then get THROTTLEDOP; deletes and sessions go on",
	"max-data":      "Larger data and long ACLs then get THROTTLEDOP; deletes, smaller data and sessions go on",
	"enforce-quota": "The leader's setting applies",
	"no-ttl":        "The leader's setting applies",
	"one-layout": "A refused contender gets NOAUTH. The leader's setting applies, once every server has said " +
		"that it runs a release after 0.1.0, see docs/locks.md",
	"disk-reserve": "The leader then answers THROTTLEDOP. It also does so if less than twice the size of " +
		"a snapshot is free",
	"super-digest": "Make the hash by: printf 'super:secret' | openssl dgst -binary -sha1 | openssl base64",
	"sasl-users": "Read at the start; refused if it has passwords and every user can read it. A JAAS file " +
		"may also have keyTab and principal of a Krb5LoginModule",
	"ensemble-names": "Such clients get AUTHFAILED",
	"require-auth":   "Such clients get SESSIONCLOSEDREQUIRESASLAUTH",
}
