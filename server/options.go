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

	// ClientAddr, SecureAddr and AdminAddr are the addresses of the ports for clients, for clients with TLS, and
	// for HTTP. The port at MetricsAddr has only /metrics. Without an address there is no such port. The port 0
	// stands for any free one.
	ClientAddr, SecureAddr, AdminAddr, MetricsAddr string
	// TicketAddr is the address of the port for tickets, which speaks HTTP; empty: there is no such port. If the
	// port is in use and TicketAnyPort is set, another one of the host is taken. TicketTLS makes it speak TLS;
	// otherwise the address must be on loopback. TicketTokens are the tokens that identify callers. MaxTicket is
	// the longest time that a caller may ask for; default 24 h.
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
	// TLSProblems are functions, one for each port with TLS: why its files cannot be used, or "" if they can.
	TLSProblems []func() string
	// TLSAuthorities are functions by port (clients, admin, metrics or tickets), for the ports whose callers
	// show certificates: when the authority for these certificates expires.
	TLSAuthorities map[string]func() time.Time

	// DataDir is the directory of all durable data. Empty: the server keeps its data in memory.
	DataDir string
	// LogStore is "wal" (default) or "bolt".
	LogStore string
	// A snapshot is due when the log has SnapshotEntries more requests (default 100,000) or SnapshotBytes more
	// bytes (default 32 MiB; 4 MiB for a server in memory without peers), or when SnapshotInterval has passed
	// (default: it does not matter).
	SnapshotEntries, SnapshotBytes int64
	SnapshotInterval               time.Duration
	// SnapshotRetain is how many snapshots the server keeps; default 2.
	SnapshotRetain int
	// DiskReserve is the free disk space that a leader keeps. It is at least twice the size of a snapshot. With
	// less free space the cluster refuses requests that need more room. Default 512 MiB; negative: no reserve.
	DiskReserve int64
	// BackupDir is a directory for backups. The server writes one in each BackupInterval (default 1 h), and
	// keeps the newest BackupKeep of them (default 24). Empty: it takes none by itself.
	BackupDir      string
	BackupInterval time.Duration
	BackupKeep     int

	// Peers are the peer addresses of all servers of the cluster, this one
	// included. Empty: a cluster of one without a peer port.
	Peers map[uint32]string
	// Observers are the servers in Peers that begin without a vote. A new cluster does not wait for them.
	Observers []uint32
	// PeerWords are the server lines of a zoo.cfg, for /zookeeper/config.
	PeerWords map[uint32]config.Server
	// PeerListen is the address to listen on for peers; default Peers[ID].
	PeerListen string
	// PeerTLS names the files for TLS between the servers: certificate, key, authority and revocation lists.
	// Without them the peer port must be on loopback, or PeerInsecure must say that only the cluster's servers
	// reach its network.
	PeerTLS      tlsfiles.Names
	PeerInsecure bool
	// HeartbeatTimeout is how long a follower that hears nothing from its leader waits before it wants to lead
	// itself; default 1 s, or 30 ms without Peers. It must be at most MinSessionTimeout minus 2 s.
	HeartbeatTimeout time.Duration
	// ReadOnlyMode lets clients that ask for a read-only session read this server's state while the server
	// knows no leader.
	ReadOnlyMode bool
	// Reconfig lets clients change the members by the operation reconfig, if they may write /zookeeper/config.
	// Without it the server answers RECONFIGDISABLED.
	Reconfig bool
	// LoneVoter lets reconfig reduce the voters to one, as a ZooKeeper does
	// with standaloneEnabled=false.
	LoneVoter bool

	// MinSessionTimeout and MaxSessionTimeout bound the session timeouts that clients get; default 4 s and 40 s.
	// TickTime is only shown by the command `conf`; default half of MinSessionTimeout.
	MinSessionTimeout, MaxSessionTimeout, TickTime time.Duration
	// MaxFrame is the longest frame that clients may send, without its prefix; default 1,048,575. Only a
	// setWatches may be longer, up to 64 MiB, because some clients do not split it.
	MaxFrame int
	// MaxConnsPerAddr bounds the connections from one address; default 60. Negative: no limit.
	MaxConnsPerAddr int
	// MaxConns bounds all connections. It can be at most its default, which is the smaller of two numbers: 80 %
	// of the file descriptors that the process may have, and as many connections as fit, at 64 KiB each, into
	// half of the memory that it may use. Negative: no limit.
	MaxConns int
	// MaxSessions bounds the sessions of the cluster. The default is as many as fit, at 2 KiB each, into a
	// quarter of the memory that the process may use. MaxAddrSessions bounds the sessions of one address while
	// MaxConnsPerAddr is a limit; default half of MaxSessions, at most 50,000. At a bound this server refuses
	// new sessions. Negative: no limit.
	MaxSessions, MaxAddrSessions int
	// MaxNodes and MaxBytes bound the tree. At a bound, requests that need more room are refused. Default: no
	// bound.
	MaxNodes int
	MaxBytes int64
	// SweepInterval is how often the leader looks for expired containers and TTL nodes; default 60 s.
	SweepInterval time.Duration
	// EnforceQuota refuses requests that exceed a hard quota. Without it no quota has this effect, as in a
	// ZooKeeper with its defaults. NoTTL refuses nodes with a time to live.
	EnforceQuota, NoTTL bool
	// OneLayout refuses a contender whose layout differs from that of a lock's present contenders, if these
	// would not see the new one.
	OneLayout bool
	// LinearizableReads makes each read wait until an empty log entry is applied, so that no read is stale.
	LinearizableReads bool

	// SuperDigest is the digest identity "user:base64(sha1(user:password))" that may do everything, also over
	// HTTP. Empty: there is no such identity.
	SuperDigest string
	// X509Super is the subject of the client certificate that may do everything. Empty: there is none.
	X509Super string
	// SASL has the mechanisms of SASL; nil: the server answers as a ZooKeeper without SASL. SASLSuper is the
	// SASL user that may do everything; empty: there is none.
	SASL      *sasl.Mechanisms
	SASLSuper string
	// EnsembleNames are the names of this cluster; empty: any name is right. A client may name the cluster that
	// it looks for, by the scheme "ensemble". If it gives a wrong name, the server refuses it.
	EnsembleNames []string
	// RequireAuth lists schemes (digest, sasl, x509). Before any other request, a client must prove an identity
	// of one of them. Empty: it need not.
	RequireAuth []string
	// SkipACL lets every client do everything.
	SkipACL bool

	// FourLetterWords lists the four-letter words that the server answers, separated by commas; "*" means all
	// of them, and empty means admin.DefaultWhitelist. It always answers srvr.
	FourLetterWords string
	// AdminHosts are further names by which requests may call the admin port; "*": any name. They may always use
	// IP addresses, localhost, and the names of this machine and of the members.
	AdminHosts []string
	// Profiling serves /debug/pprof. NoJVM omits the jvm_* metrics, which describe this process under the
	// names of a Java virtual machine.
	Profiling, NoJVM bool
	// Audit receives a line for each requested change; nil: there is no audit log. The caller closes it.
	Audit *audit.Log
	// SlowRequest is how long a request may take until a line about it is logged; 0: no request is logged.
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

	// Test, if set, may change the options of the part in the cluster, for example to give it another disk or
	// network.
	Test func(*raftfsm.Options)
}

// withDefaults sets defaults that several parts of the server need. The other options get theirs in the
// packages that use them.
func (o Options) withDefaults() Options {
	o.ID, o.Logger = cmp.Or(o.ID, 1), cmp.Or(o.Logger, slog.Default())
	o.MaxTicket = cmp.Or(o.MaxTicket, tickets.DefaultMax)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Listen == nil {
		// no keep-alive: long before TCP finds out that a client is gone, its session times out
		lc := net.ListenConfig{KeepAlive: -1}
		o.Listen = func(addr string) (net.Listener, error) { return lc.Listen(context.Background(), "tcp", addr) }
	}
	return o
}
