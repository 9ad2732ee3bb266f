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
	"github.com/zlockd/zlockd/server/admin"
	"github.com/zlockd/zlockd/server/audit"
	"github.com/zlockd/zlockd/server/backup"
	"github.com/zlockd/zlockd/server/clients"
)

// Options say what a server is made of. The zero value is a single server with everything in
// memory and no port. The zero value of a field means its default.
type Options struct {
	// ID is this server's id in the cluster; default 1.
	ID uint32

	// ClientAddr, SecureAddr and AdminAddr are where the server listens for
	// clients, clients with TLS, and HTTP; MetricsAddr for /metrics alone.
	// Empty: not at all. Any port may be 0.
	ClientAddr, SecureAddr, AdminAddr, MetricsAddr string
	// Listen opens these listeners; default net.Listen for TCP.
	Listen func(addr string) (net.Listener, error)

	// AdminTLS makes the admin port speak TLS; with AdminClear it speaks clear text too.
	AdminTLS   *tls.Config
	AdminClear bool

	// Clients says how clients are treated: their session timeouts, limits and
	// rights. Start sets its ID, Logger, Rand, Now and Reconfigure.
	Clients clients.Options
	// Reconfig lets clients that may write /zookeeper/config change the
	// membership by the operation reconfig. Off, it is answered RECONFIGDISABLED.
	Reconfig bool
	// LoneVoter lets reconfig leave a single server that votes, as a ZooKeeper
	// does with standaloneEnabled=false.
	LoneVoter bool

	// Raft is this server's part in the cluster. Start sets its ID, Observer and MinSessionTimeout;
	// its Logger, Now and Rand default to those below, its ClientAddr to the bound ClientAddr if
	// that names a host. The server calls its Fatal after it has cut off clients; without Fatal only
	// Instance.Failed reports the failure.
	Raft raftfsm.Options

	// Admin says what the admin port shows to whom. Start sets its Source, and adds the lock view to
	// its Pages.
	Admin admin.Options
	// AdminHosts are names under which clients may ask for the admin port, besides addresses,
	// localhost, this machine's name and those of the members; "*" is any.
	AdminHosts []string
	// Backup says whether the server backs up its state by itself.
	Backup backup.Schedule
	// TLSProblems say why the server cannot use the present files behind Clients.TLSConfig and
	// AdminTLS; empty: it can.
	TLSProblems []func() string
	// Audit is written a line for each change that is asked for; nil: none. The caller closes it.
	Audit *audit.Log
	// SlowRequest is how long a request may take before the Logger has a line about it; 0: as long as
	// it wants.
	SlowRequest time.Duration
	// Version and Built name the program, Config is what conf shows.
	Version string
	Built   time.Time
	Config  admin.Config

	// Logger receives messages for operators; default slog.Default. Its handler must not block for
	// long: raft waits for it.
	Logger *slog.Logger
	// LogLost returns how many lines the Logger has lost, for the metrics; nil: unknown.
	LogLost func() int64
	// Rand is the source of session passwords; default crypto/rand.
	Rand io.Reader
	// Now is the wall clock for times that people see; default time.Now.
	Now func() time.Time
}

// withDefaults fills in the defaults of o, except those that the packages of the embedded options
// fill in.
func (o Options) withDefaults() Options {
	o.ID, o.Logger = cmp.Or(o.ID, 1), cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Listen == nil {
		// Sessions time out sooner than TCP would notice that a client is gone.
		lc := net.ListenConfig{KeepAlive: -1}
		o.Listen = func(addr string) (net.Listener, error) { return lc.Listen(context.Background(), "tcp", addr) }
	}
	o.Clients.ID, o.Clients.Logger, o.Clients.Rand, o.Clients.Now = o.ID, o.Logger, o.Rand, o.Now
	return o
}
