package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state/config"
	"github.com/zlockd/zlockd/raftfsm/tlsfiles"
	"github.com/zlockd/zlockd/server/audit"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/server/tickets"
)

// Options configure a server. The zero value is a single server with all data in memory and no port. The zero
// value of a field means its default.
type Options struct {
	// ID is this server's id in the cluster, 1 to 254; default 1.
	ID uint32

	// ClientAddr, SecureAddr and AdminAddr are the addresses at which the server listens for clients, for
	// clients with TLS, and for HTTP. At MetricsAddr it serves only /metrics. Empty: the server does not
	// listen. Any port may be 0.
	ClientAddr, SecureAddr, AdminAddr, MetricsAddr string
	// TicketAddr is the address at which the server listens for requests about tickets, over HTTP; empty: it
	// does not listen. TicketTLS makes this port speak TLS; without TLS the address must be on loopback.
	// TicketTokens are the tokens that identify callers. MaxTicket is the longest time for which a caller may
	// ask; default 24 h. If TicketAddr is in use and TicketAnyPort is set, the server listens on another port
	// of the same host.
	TicketAddr    string
	TicketAnyPort bool
	TicketTLS     *tls.Config
	TicketTokens  *tickets.Tokens
	MaxTicket     time.Duration
	// Listen opens the listeners for all ports except the peer port; default net.Listen for TCP.
	Listen func(addr string) (net.Listener, error)
	// ClientTLS is for SecureAddr. AdminTLS makes the admin port speak TLS, and MetricsTLS the port at
	// MetricsAddr. With AdminClear the admin port also speaks clear text.
	ClientTLS, AdminTLS, MetricsTLS *tls.Config
	AdminClear                      bool
	// Each of TLSProblems returns why the TLS files of a port cannot be used. It returns "" if they can be used.
	TLSProblems []func() string
	// TLSAuthorities has a function for each port whose callers need a certificate: clients, admin, metrics or
	// tickets. The function returns when the authority that signs these certificates expires.
	TLSAuthorities map[string]func() time.Time

	// DataDir is the directory of all durable data. Empty: the server keeps its data in memory.
	DataDir string
	// LogStore is "wal" (default) or "bolt".
	LogStore string
	// The server takes the next snapshot when the log has got SnapshotEntries requests (default 100,000) or
	// SnapshotBytes bytes (default 32 MiB; 4 MiB for a server in memory without peers), or when
	// SnapshotInterval has passed (default: no bound).
	SnapshotEntries, SnapshotBytes int64
	SnapshotInterval               time.Duration
	// SnapshotRetain is how many snapshots the server keeps; default 2.
	SnapshotRetain int
	// DiskReserve is how much free disk space a leader keeps, at least twice the size of a snapshot. While
	// there is less, the cluster refuses requests that need more room. Default 512 MiB; negative: no reserve.
	DiskReserve int64
	// The server writes a backup to BackupDir every BackupInterval (default 1 h), and keeps the newest
	// BackupKeep backups (default 24). Without BackupDir it takes no backups by itself.
	BackupDir      string
	BackupInterval time.Duration
	BackupKeep     int

	// Peers are the peer addresses of all servers of the cluster, this one
	// included. Empty: a cluster of one without a peer port.
	Peers map[uint32]string
	// Observers are the servers in Peers that have no vote when the cluster forms. The cluster does
	// not wait for them.
	Observers []uint32
	// PeerWords are the server lines of a zoo.cfg, for /zookeeper/config.
	PeerWords map[uint32]config.Server
	// PeerListen is the address to listen on for peers; default Peers[ID].
	PeerListen string
	// PeerTLS names the files that secure the peer port: certificate, key, authority and revocation lists.
	// Without these files the port must be on loopback, unless PeerInsecure says that only the cluster's
	// servers reach its network.
	PeerTLS      tlsfiles.Names
	PeerInsecure bool
	// HeartbeatTimeout is how long a follower waits for its leader before it stands for election; default 1
	// s, or 30 ms without Peers. It must be at most MinSessionTimeout minus 2 s.
	HeartbeatTimeout time.Duration
	// ReadOnlyMode lets clients that ask for a read-only session read this server's state while the server
	// knows no leader.
	ReadOnlyMode bool
	// Reconfig lets clients that may write /zookeeper/config change the membership by the operation reconfig.
	// If it is false, the server answers RECONFIGDISABLED.
	Reconfig bool
	// LoneVoter lets reconfig reduce the voters to one, as a ZooKeeper does
	// with standaloneEnabled=false.
	LoneVoter bool

	// MinSessionTimeout and MaxSessionTimeout bound the timeouts for which clients may ask; default 4 s and
	// 40 s. TickTime has no effect; the command `conf` shows it. Its default is half of MinSessionTimeout.
	MinSessionTimeout, MaxSessionTimeout, TickTime time.Duration
	// MaxFrame is the longest frame that the server accepts, without its prefix; default 1,048,575. A
	// setWatches may be longer, up to 64 MiB, because some clients do not split it.
	MaxFrame int
	// MaxConnsPerAddr bounds the connections from one address; default 60. Negative: no limit.
	MaxConnsPerAddr int
	// MaxConns bounds all connections. The default is also the maximum. It is the smaller of two numbers: 80
	// % of the file descriptors that this process may have; and as many connections as fit, at 64 KiB each,
	// into half of the memory that it may use. Negative: no limit.
	MaxConns int
	// MaxSessions bounds the sessions of the cluster; the default is as many as fit, at 2 KiB each, into a
	// quarter of the memory that the process may use. MaxAddrSessions bounds the sessions from one address,
	// if MaxConnsPerAddr is a limit; the default is half of MaxSessions, at most 50,000. At a bound this
	// server refuses new sessions. Negative: no limit.
	MaxSessions, MaxAddrSessions int
	// MaxNodes and MaxBytes bound the tree: when it reaches them, requests that need more room are refused.
	// Default no bound.
	MaxNodes int
	MaxBytes int64
	// SweepInterval is how often the leader looks for expired containers and TTL nodes; default 60 s.
	SweepInterval time.Duration
	// EnforceQuota makes hard quotas refuse requests. Without EnforceQuota a quota refuses no request, as in
	// ZooKeeper by default. NoTTL refuses TTL nodes.
	EnforceQuota, NoTTL bool
	// OneLayout refuses a contender for a lock if the present contenders use another layout and would not see
	// the new one.
	OneLayout bool
	// LinearizableReads makes every read wait for a round through the log, so that no read is ever
	// stale.
	LinearizableReads bool

	// SuperDigest is the digest identity "user:base64(sha1(user:password))" that may do everything, also over
	// HTTP. Empty: there is no such identity.
	SuperDigest string
	// X509Super is the subject of the client certificate that may do everything. Empty: there is none.
	X509Super string
	// SASL has the mechanisms for authentication by SASL; nil: the server answers like a ZooKeeper without
	// SASL. SASLSuper is the SASL user that may do everything. Empty: there is none.
	SASL      *sasl.Mechanisms
	SASLSuper string
	// EnsembleNames are the names of this cluster. If a client authenticates by the scheme "ensemble" with
	// another name, the server refuses it, because the client looks for another cluster. The server admits a
	// client that gives no name. If EnsembleNames is empty, it admits every client.
	EnsembleNames []string
	// RequireAuth lists schemes (digest, sasl, x509). A client must prove an identity of one of these schemes
	// before any other request. Empty: no identity is required.
	RequireAuth []string
	// SkipACL lets every client do everything.
	SkipACL bool

	// FourLetterWords lists the four-letter words that the server answers, separated by commas; "*" means all
	// of them, and empty means admin.DefaultWhitelist. It always answers srvr.
	FourLetterWords string
	// AdminHosts are host names that requests to the admin port may use, besides addresses, localhost, and
	// the names of this machine and of the members; "*" allows any name.
	AdminHosts []string
	// Profiling serves /debug/pprof. NoJVM omits the jvm_* metrics, which describe this process under the
	// names of a Java virtual machine.
	Profiling, NoJVM bool
	// Audit receives a line for each requested change; nil: there is no audit log. The caller closes it.
	Audit *audit.Log
	// SlowRequest is how long a request may take before the Logger receives a line about it; 0: any time.
	SlowRequest time.Duration
	// Version and Built describe the program. ConfigText is the configuration file without its secrets, for
	// the command `conf`.
	Version    string
	Built      time.Time
	ConfigText string

	// Logger receives messages for operators; default slog.Default. Its handler must not block for
	// long: raft waits for it.
	Logger *slog.Logger
	// LogLost returns how many lines the Logger has lost, for the metrics; nil: unknown.
	LogLost func() int64
	// Rand is the source of session passwords; default crypto/rand.
	Rand io.Reader
	// Now is the wall clock for times that people see; default time.Now.
	Now func() time.Time

	// Test, if set, changes the options of this server's part in the cluster, so that a test can give it
	// another disk or network.
	Test func(*raftfsm.Options)
}

// withDefaults fills in the defaults of the options that several parts of the server need. Each other option
// gets its default in the package that uses it.
func (o Options) withDefaults() Options {
	o.ID, o.Logger = cmp.Or(o.ID, 1), cmp.Or(o.Logger, slog.Default())
	o.MaxTicket = cmp.Or(o.MaxTicket, tickets.DefaultMax)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Listen == nil {
		// no keep-alive: a session times out before TCP would notice that its client is gone
		lc := net.ListenConfig{KeepAlive: -1}
		o.Listen = func(addr string) (net.Listener, error) { return lc.Listen(context.Background(), "tcp", addr) }
	}
	return o
}
