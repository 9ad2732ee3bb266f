package raftfsm

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/disk"
	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/serving"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/config"
)

// Options say how a Node runs. The zero value of each field but ID means its
// default.
type Options struct {
	// ID names this server in its cluster, 1 to 254.
	ID uint32
	// DataDir is the directory of all durable data. Empty: this server keeps its data in memory only.
	DataDir string
	// Peers are the peer addresses of all servers of the cluster, this one
	// included. Empty: a cluster of one without a peer port.
	Peers map[uint32]string
	// Words are the operator's descriptions of the servers in Peers, beyond their addresses; see
	// config.Server.Describe.
	Words map[uint32]config.Server
	// Observers are the servers in Peers that have no vote when the cluster forms. The cluster does
	// not wait for them.
	Observers []uint32
	// PeerListen is the address to listen on for peers; default Peers[ID].
	PeerListen string
	// PeerTLS secures the peer port. Nil: loopback addresses only, unless
	// PeerInsecure says that the network is trusted.
	PeerTLS      *peer.TLS
	PeerInsecure bool
	// ClientAddr is where clients reach this server, published to them in
	// /zookeeper/config. Empty: not published.
	ClientAddr string

	// Release is the program's version, shown by other servers too; default "dev".
	Release string

	// HeartbeatTimeout is how long a follower waits for its leader before it stands for election. The default
	// is 1 s, or 30 ms without Peers. A server that is cut off from the leader continues to serve for
	// HeartbeatTimeout plus 2 s. So a timeout above the default must be at most MinSessionTimeout minus 2 s.
	HeartbeatTimeout time.Duration
	// LogStore is "wal" (default) or "bolt".
	LogStore string
	// SnapshotEntries, SnapshotBytes and SnapshotInterval bound how many requests and bytes the log has, and
	// how much time passes, before the next snapshot. The defaults are 100,000, 32 MiB and no bound. A server
	// without DataDir and Peers writes no snapshot, and keeps 4 MiB of log in memory.
	SnapshotEntries  int64
	SnapshotBytes    int64
	SnapshotInterval time.Duration
	// SnapshotRetain is how many snapshots are kept; default 2.
	SnapshotRetain int
	// TrailingLogs is the number of entries that stay in the log although a snapshot covers them. With these
	// entries a server that was away briefly does not need the snapshot. Default 10,240.
	TrailingLogs uint64
	// TrailingBytes bounds the bytes of the entries that stay although a snapshot covers them; default 64
	// MiB. A server keeps more of them for followers that lag a little, and fewer if the snapshot is small,
	// because a small snapshot can be sent quickly.
	TrailingBytes int64

	// DiskReserve is how much free disk space a leader keeps, at least twice the size of a snapshot. While
	// there is less, the leader refuses requests that need more room. Default 512 MiB; negative: no reserve.
	DiskReserve int64
	// MaxNodes and MaxBytes bound the tree: when it reaches them, requests that need more room are refused.
	// Default no bound.
	MaxNodes int
	MaxBytes int64

	// MinSessionTimeout is the shortest timeout a session can have; it sets how often servers tell the
	// leader which sessions they heard from. Default 4 s.
	MinSessionTimeout time.Duration
	// SweepInterval is the time between two searches for empty containers and expired TTL nodes. The default
	// is a minute.
	SweepInterval time.Duration
	// EnforceQuota makes hard quotas refuse requests. Without EnforceQuota a quota refuses no request, as in
	// ZooKeeper by default. NoTTL refuses TTL nodes.
	EnforceQuota, NoTTL bool
	// OneLayout refuses a contender for a lock if the present contenders use another layout and would not see
	// the new one. It takes effect once all servers understand it.
	OneLayout bool

	// Measures receive the values that this server measures.
	Measures Measures
	// ReadOnly allows read-only clients to read this server's state while the server knows no leader.
	ReadOnly bool
	// Observer is told of every change; see the interface Observer. It must not be nil.
	Observer Observer
	// Waiting is called with a text that says what this server waits for before it joins its cluster, and
	// again when the text changes. It must not block.
	Waiting func(what string)
	// Fatal is called once, with the reason, when this server cannot be sure
	// of its own state and must end. It must not return before clients and
	// peers are cut off; by default it exits the process with status 1.
	Fatal func(error)
	// Logger receives log lines for the operator; default slog.Default.
	Logger *slog.Logger

	// Tests replace the outside world here. Now is the wall clock, Listen and Dial are the network, Rand is
	// the source of randomness, and Stores is the disk.
	Now    func() time.Time
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	Rand   io.Reader
	Stores *disk.Stores
	Files  *disk.Files // the files of DataDir
	// FreeBytes returns how many bytes may still be written to the disk of a directory.
	FreeBytes func(dir string) (int64, error)
}

// Some of the defaults.
const (
	DefaultSnapshotEntries = 100_000
	DefaultDiskReserve     = 512 << 20
	DefaultSweep           = time.Minute
)

const (
	defaultHeartbeat = time.Second
	// servedAlone bounds how long a server that is cut off continues to serve after the heartbeat timeout;
	// see `grace` in package serving.
	servedAlone = 2 * time.Second
)

// Check returns all errors in the options that would keep a server from starting.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

// forgets() reports whether the log will never be read again: it does not outlive the process, and no other
// server needs it.
func (o *Options) forgets() bool { return o.DataDir == "" && o.Stores == nil && len(o.Peers) == 0 }

// withDefaults returns o with every default filled in, or says what is wrong.
func (o Options) withDefaults() (Options, error) {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.ID == 0 {
		o.ID = 1
	}
	if !config.IsID(o.ID) {
		return o, errServerID(o.ID)
	}
	if len(o.Peers) > 0 && o.Peers[o.ID] == "" {
		fail("server id %d is not among the peers; --id must be one of the ids listed in --peers", o.ID)
	}
	o.Observers = slices.Compact(slices.Sorted(slices.Values(o.Observers)))
	if len(o.Peers) > 0 && o.list().FirstVoter() == form.NoVoter {
		fail("all peers are observers: at least one must vote")
	}
	o.Release = cmp.Or(o.Release, "dev")
	o.MinSessionTimeout = cmp.Or(o.MinSessionTimeout, 4*time.Second)
	if most := max(defaultHeartbeat, o.MinSessionTimeout-servedAlone); o.HeartbeatTimeout > most {
		fail("a heartbeat timeout of %v is too long for a session timeout of %v: a server that is cut off "+
			"serves "+
			"clients for the heartbeat timeout plus %v. Give --heartbeat-timeout %v or less, or "+
			"--min-session-timeout %v or more",
			o.HeartbeatTimeout, o.MinSessionTimeout, servedAlone, most, o.HeartbeatTimeout+servedAlone)
	}
	o.HeartbeatTimeout = cmp.Or(o.HeartbeatTimeout, defaultHeartbeat)
	// A cluster of one server needs no time to find out whether a leader is alive.
	if len(o.Peers) == 0 && o.HeartbeatTimeout == defaultHeartbeat {
		o.HeartbeatTimeout = 30 * time.Millisecond
	}
	o.LogStore = cmp.Or(o.LogStore, "wal")
	if o.LogStore != "wal" && o.LogStore != "bolt" {
		fail("--log-store %q is unknown: want wal or bolt", o.LogStore)
	}
	o.SnapshotEntries = cmp.Or(o.SnapshotEntries, DefaultSnapshotEntries)
	snapshotBytes := int64(32 << 20)
	if o.forgets() {
		snapshotBytes = 4 << 20
	}
	o.SnapshotBytes = cmp.Or(o.SnapshotBytes, snapshotBytes)
	o.DiskReserve = cmp.Or(o.DiskReserve, DefaultDiskReserve)
	o.SnapshotRetain = cmp.Or(o.SnapshotRetain, 2)
	o.TrailingLogs = cmp.Or(o.TrailingLogs, 10_240)
	o.TrailingBytes = cmp.Or(o.TrailingBytes, 64<<20)
	o.SweepInterval = cmp.Or(o.SweepInterval, DefaultSweep)
	o.PeerListen = cmp.Or(o.PeerListen, o.Peers[o.ID])
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Rand = cmp.Or(o.Rand, rand.Reader)
	if o.Fatal == nil {
		o.Fatal = func(error) { os.Exit(1) }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FreeBytes == nil {
		o.FreeBytes = disk.FreeBytes
	}
	if o.Listen == nil {
		o.Listen = peer.Listen
	}
	if o.Dial == nil {
		o.Dial = peer.Dial
	}
	return o, errors.Join(append(errs, o.checkPeerSecurity())...)
}

// list() returns the operator's list of the servers.
func (o *Options) list() *form.List {
	return &form.List{ID: o.ID, Peers: o.Peers, Observers: o.Observers}
}

// checkPeerSecurity refuses a peer port that strangers could reach: any process that speaks raft to
// a server can rewrite its log.
func (o *Options) checkPeerSecurity() error {
	if len(o.Peers) == 0 || o.PeerTLS != nil || o.PeerInsecure {
		return nil
	}
	host, _, err := net.SplitHostPort(o.PeerListen)
	if err != nil {
		return fmt.Errorf("peer address %q: %w", o.PeerListen, err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--peer-addr %s can be reached by others and has no TLS: give --peer-tls-cert, "+
		"--peer-tls-key and --peer-tls-ca, or --peer-insecure on a network that only the servers can reach",
		o.PeerListen)
}

// Observer is the part of a server that receives the changes of the state, and reports which sessions it has
// heard from.
type Observer interface {
	apply.Observer
	serving.Clients
	// Heard appends the sessions from which this server has heard since the last call of Heard. If `all` is
	// true, it appends every session with a connection to this server, because a broken link may have lost
	// earlier reports.
	Heard(list []state.Touch, all bool) []state.Touch
}

// touchEvery returns how often a server collects and reports the sessions that it has heard from.
func (o *Options) touchEvery() time.Duration {
	return min(max(o.MinSessionTimeout/16, 10*time.Millisecond), 250*time.Millisecond)
}

// The kinds of values that a server measures about its part in the cluster.
type (
	Measure  = signal.Measure
	Measures = signal.Set
)

func errServerID(id uint32) error {
	return fmt.Errorf("server id %d is not a number from 1 to %d", id, config.MaxID)
}
