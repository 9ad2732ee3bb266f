// Package report defines what a server says about itself: a [Status]. The server fills it in; pages,
// four-letter words and metrics show it. A Status is plain data: the package takes no lock, and does not know
// who shows it.
package report

import (
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/server/metrics"
)

// Need says which of the costly parts of a Status must be filled in.
type Need uint8

// The parts of a Status that cost time or memory.
const (
	NeedConns      Need = 1 << iota // ConnList
	NeedSessions                    // SessionList
	NeedEphemerals                  // Ephemerals
	NeedWatches                     // WatchList
	NeedDirs                        // DataDirSize, LogDirSize
	NeedMetrics                     // Counters, Summaries, Keyed, and Extra, which needs NeedDirs, too
	NeedProcess                     // Environment, OpenFiles, MaxFiles
	NeedHidden                      // list also nodes that not every client may list
)

// Mode is a server's part in the ensemble, as `srvr` names it.
type Mode string

// The modes.
const (
	Standalone Mode = "standalone"
	Leader     Mode = "leader"
	Follower   Mode = "follower"
	Observer   Mode = "observer"  // a member without a vote
	ReadOnly   Mode = "read-only" // no leader is known; clients with read-only sessions may read
)

// Status is how a server is at one moment. It is plain data, which its owner may keep and change.
type Status struct {
	Version string    // without spaces: ZooKeeper's version and zlockd's, as in 3.9.3-zlockd-1.2.0
	Built   time.Time // when the program was built
	Now     time.Time
	Uptime  time.Duration

	status.Node // the server's part in the cluster

	Certificates []Certificate // the certificates that this server shows

	Faults  []string // problems that an operator must solve, although clients may still be served
	Notices []string // facts that an operator should know, for example that peers need no certificate

	Mode        Mode
	LeaderAddr  string // peer address of the leader
	Synced      int    // how many voters keep up with the leader
	SyncedNon   int    // the number of non-voters that keep up
	ConfigIndex int64  // the version of the list of members
	ConfigText  string // the list of members as clients read it; empty: clients may not read it

	Digests        []Digest
	Nodes          int
	EphemeralCount int
	DataSize       int64 // shown as approximate_data_size
	Sessions       int
	WatchConns     int // how many connections have data or child watches
	WatchPaths     int
	Watches        int // how many data watches there are; wchs shows this number
	AllWatches     int // data and child watches

	Conns       int // open connections of clients, with those that only ask a four-letter word
	Outstanding int
	Received    int64 // packets since the last reset
	Sent        int64
	Latency     metrics.Latency // latencies of all requests since the last reset
	Responses   metrics.Sizes   // sizes of replies, in bytes
	Proposals   metrics.Sizes   // sizes of the leader's log entries, in bytes
	AuthFailed  int64
	OpenFiles   int64
	MaxFiles    int64

	Config      Config
	Environment []Pair

	// Each list is filled in only if Need asks for it.
	ConnList    []Conn
	SessionList []Session
	Ephemerals  []SessionPaths
	WatchList   []SessionPaths // data and child watches by session
	// Truncated says which lists are not whole; empty: all are.
	Truncated string
	listed    int // bytes that the lists take in an answer; see Fits

	DataDirSize int64
	LogDirSize  int64
	DiskFree    int64 // bytes free on the disk of the data directory; 0: not known

	// Measured values by their names in ZooKeeper. A value that is missing here is shown as zero.
	Counters  map[string]int64
	Summaries map[string]metrics.Summary
	// Keyed has summaries by family and key, such as by namespace or by peer.
	Keyed map[string]map[string]metrics.Summary
	Extra []Sample
}

// Certificate is a certificate that a server shows to its clients, its peers or its operators.
type Certificate struct {
	Use     string // clients, peers, admin, metrics or tickets
	Expires time.Time
}

// Digest is the digest of the whole tree at a zxid.
type Digest struct {
	Zxid    int64
	Digest  uint64
	Version int
}

// Pair is a name and its value. Lists of pairs are in the order of the answer.
type Pair struct{ Key, Value string }

// Sample is a value of one of zlockd's own metrics. A counter's name ends in _total.
type Sample struct {
	Name   string // name of the metric without the prefix zlockd_
	Help   string
	Value  float64
	Labels []Pair // all samples of one name have the same keys

	Histogram *Histogram // if set, in place of Value; only /metrics shows it
}

// Histogram counts how many values lie at or below each bound.
type Histogram struct {
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64
}

// Measure adds a metric of zlockd's own.
func (s *Status) Measure(name, help string, v float64, labels ...Pair) {
	s.Extra = append(s.Extra, Sample{Name: name, Help: help, Value: v, Labels: labels})
}

// Conn is one client connection.
type Conn struct {
	Addr     string // host:port
	Secure   bool   // the connection came to the TLS port
	Interest int    // as a ZooKeeper shows it: 1 if the server reads, 5 if it also writes, 0 if it does not read
	Queued   int64  // requests not yet answered
	Received int64
	Sent     int64
	BytesIn  int64
	BytesOut int64 // bytes sent since the last reset

	Session     int64 // 0: no session yet; then the fields below are empty
	LastOp      string
	Established time.Time
	Timeout     time.Duration
	Expires     time.Time // when the connection will be closed if its client stays silent
	LastCxid    int64     // -1: none
	LastZxid    int64
	LastReply   time.Duration // when the last reply was sent, since the start of the server
	LastLatency int64         // this and the latencies below are in ms
	Latency     metrics.Latency
}

// Session is one session of the ensemble.
type Session struct {
	ID      int64
	Timeout time.Duration
	Expires time.Time // zero: this server does not know it
}

// SessionPaths lists paths that belong to a session.
type SessionPaths struct {
	Session int64
	Paths   []string
}

// Config is what `conf` shows. It holds no secrets.
type Config struct {
	ClientPort        int
	SecurePort        int // -1: none
	DataDir, LogDir   string
	TickTime          time.Duration
	MaxClientCnxns    int
	MinSessionTimeout time.Duration
	MaxSessionTimeout time.Duration
	ListenBacklog     int // -1: the system's default
	PeerPort          int
	File              string // text of the --config file without its secrets; empty: no file
}

// Self returns the entry of the server itself.
func (s *Status) Self() (status.Member, bool) {
	for _, m := range s.Members {
		if m.ID == s.ID {
			return m, true
		}
	}
	return status.Member{}, false
}

// Answers reports whether the server answers questions about what it serves.
func (s *Status) Answers() bool { return s.Serving || s.Mode == ReadOnly }

// Ensemble reports whether this server is one of several.
func (s *Status) Ensemble() bool { return s.Mode != Standalone && len(s.Members) > 0 }

// VersionLine is the line from which clients read the version and the date of the build. The date has the
// form that ZooKeeper had before 3.8, because go-zookeeper understands no other.
func (s *Status) VersionLine() string {
	return s.Version + ", built on " + s.Built.UTC().Format("01/02/2006 15:04") + " GMT"
}

// Leading reports whether the server is a leader that serves clients.
func (s *Status) Leading() bool { return s.Serving && s.Mode == Leader }
