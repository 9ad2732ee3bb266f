package admin

import (
	"context"
	"time"

	"github.com/zlockd/zlockd/raftfsm/change"
	"github.com/zlockd/zlockd/raftfsm/status"
)

// Need says which costly parts of a Status the caller wants. The rest is always there.
type Need uint8

// Parts of a Status that cost time or memory to gather.
const (
	NeedConns      Need = 1 << iota // ConnList
	NeedSessions                    // SessionList
	NeedEphemerals                  // Ephemerals
	NeedWatches                     // WatchList
	NeedDirs                        // DataDirSize, LogDirSize
	NeedMetrics                     // Counters, Summaries, Keyed; Extra, which wants NeedDirs too
	NeedProcess                     // Environment, OpenFiles, MaxFiles
	NeedHidden                      // in Ephemerals and WatchList also nodes that ACLs hide
)

// Source is the server as this package sees it. Its methods may be called by
// several goroutines at once.
type Source interface {
	// Status returns a fresh value that the caller owns.
	Status(Need) *Status
	// ResetStats zeroes what `srst` zeroes: packets, latencies, sizes.
	ResetStats()
	// ResetConns zeroes the statistics of every client connection.
	ResetConns()
	// ChangeMember makes one change of the ensemble's members, and returns when it is done or
	// refused.
	ChangeMember(context.Context, change.Change) error
	// Members lists the members and how far each is. It asks other servers, so it may take some
	// seconds. With an error the list is what this server finds without a leader.
	Members(context.Context) (*status.Members, error)
	// Probe checks whether a server could be a member at an address, and how far it is.
	Probe(ctx context.Context, id uint32, addr string) (*status.Found, error)
}

// Mode is a server's part in the ensemble, as `srvr` names it.
type Mode string

// The modes.
const (
	Standalone Mode = "standalone"
	Leader     Mode = "leader"
	Follower   Mode = "follower"
	Observer   Mode = "observer"  // a member without a vote
	ReadOnly   Mode = "read-only" // no leader is known; clients that ask for it may read
)

// Status is a server at one moment: plain data, safe to keep and to change.
type Status struct {
	Version string    // as the version line gives it, without spaces: 3.9.3-zlockd-1.2.0
	Built   time.Time // when
	Now     time.Time
	Uptime  time.Duration

	status.Node // its part in the cluster

	Certificates []Certificate // that this server shows

	Faults  []string // what is wrong though clients may be served: disk nearly full, …
	Notices []string // what an operator should know and wants on a dashboard: insecure peers, …

	Mode        Mode
	LeaderAddr  string // peer address of the leader
	Synced      int    // voters that keep up, the leader not counted
	SyncedNon   int    // non-voters that keep up
	ConfigIndex int64  // version of the membership
	ConfigText  string // its lines as clients read them, if they can

	Digests        []Digest
	Nodes          int
	EphemeralCount int
	DataSize       int64 // approximate_data_size
	Sessions       int
	WatchConns     int // connections with data or child watches
	WatchPaths     int
	Watches        int // data watches, as wchs counts
	AllWatches     int // data and child watches

	Conns       int // open client connections, four-letter ones included
	Outstanding int
	Received    int64 // packets since the last reset
	Sent        int64
	Latency     Latency // of all requests since the last reset
	Responses   Sizes   // bytes
	Proposals   Sizes   // bytes, of the leader's log entries
	AuthFailed  int64
	OpenFiles   int64
	MaxFiles    int64

	Config      Config
	Environment []Pair

	// Lists, filled as Need says.
	ConnList    []Conn
	SessionList []Session
	Ephemerals  []SessionPaths
	WatchList   []SessionPaths // data and child watches by session
	// Truncated says which list is not whole.
	Truncated string
	listed    int // bytes that the lists take in an answer

	DataDirSize int64
	LogDirSize  int64
	DiskFree    int64 // below the data directory; 0: not known

	// Measured values under ZooKeeper's names; what is missing is shown as zero.
	Counters  map[string]int64
	Summaries map[string]Summary
	// Keyed holds families of summaries: by namespace, by peer.
	Keyed map[string]map[string]Summary
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

// Latency holds the times of requests in milliseconds.
type Latency struct {
	Min, Max int64
	Avg      float64
}

// Sizes are the last, smallest and largest of something; all -1 before the first.
type Sizes struct{ Last, Min, Max int64 }

// Summary is the distribution of a measured value, times in milliseconds.
type Summary struct {
	Count                    int64
	Sum, Min, Max            float64
	P50, P90, P95, P99, P999 float64
}

// Avg returns the mean, zero before the first value.
func (s *Summary) Avg() float64 {
	if s.Count == 0 {
		return 0
	}
	return s.Sum / float64(s.Count)
}

// Pair is a name and its value, in the order they must be shown.
type Pair struct{ Key, Value string }

// Sample is a metric of zlockd's own. A counter's name ends in _total.
type Sample struct {
	Name   string // without zlockd_
	Help   string
	Value  float64
	Labels []Pair // the same keys for all samples of one name

	Histogram *Histogram // in the place of Value, at /metrics alone
}

// Histogram is how values are spread: how many there are up to each bound.
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
	Secure   bool   // on the TLS port
	Interest int    // 1 readable, 5 writing, 0 paused or answering a four-letter word
	Queued   int64  // requests not yet answered
	Received int64
	Sent     int64
	BytesIn  int64
	BytesOut int64 // since the last reset

	Session     int64 // 0: none yet, and then the fields below mean nothing
	LastOp      string
	Established time.Time
	Timeout     time.Duration
	Expires     time.Time // when the connection is given up if nothing arrives
	LastCxid    int64     // -1: none
	LastZxid    int64
	LastReply   time.Duration // on the server's uptime clock
	LastLatency int64         // ms, as those that follow
	Latency     Latency
}

// Session is one session of the ensemble.
type Session struct {
	ID      int64
	Timeout time.Duration
	Expires time.Time // zero on a server that does not keep the deadlines
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
	ListenBacklog     int // -1: the system's
	PeerPort          int
	File              string // text of --config with its secrets removed; empty: none
}

// member returns the entry of the server itself.
func (s *Status) member() (status.Member, bool) {
	for _, m := range s.Members {
		if m.ID == s.ID {
			return m, true
		}
	}
	return status.Member{}, false
}

// answers reports whether the server answers requests about its service.
func (s *Status) answers() bool { return s.Serving || s.Mode == ReadOnly }

// ensemble reports whether this server is one of several.
func (s *Status) ensemble() bool { return s.Mode != Standalone && len(s.Members) > 0 }

// versionLine is the text that clients parse for version and build date. The
// date has the form that ZooKeeper had before 3.8, the only one that
// go-zookeeper understands.
func (s *Status) versionLine() string {
	return s.Version + ", built on " + s.Built.UTC().Format("01/02/2006 15:04") + " GMT"
}
