// Package options says on which terms a server takes clients: its bounds, timeouts and rules, each with a
// default.
package options

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/server/clients/identity"
	"github.com/zlockd/zlockd/server/clients/inbox"
	"github.com/zlockd/zlockd/server/machine"
	"github.com/zlockd/zlockd/server/observe"
	"github.com/zlockd/zlockd/server/sasl"
	"github.com/zlockd/zlockd/tree"
)

// What clients may send and open by default.
const (
	DefaultMaxFrame        = 0xfffff
	DefaultMaxConnsPerAddr = 60
)

// Defaults for sessions.
const (
	sessionBytes    = 2 << 10 // estimated memory of one session
	maxAddrSessions = 50_000
)

// Options say how a server treats its clients. In each field, the zero value means the default.
type Options struct {
	// These fields are the same as in server.Options.
	ID                                  uint32
	MinSessionTimeout                   time.Duration
	MaxSessionTimeout                   time.Duration
	MaxFrame, MaxConnsPerAddr, MaxConns int
	MaxSessions, MaxAddrSessions        int
	Super                               identity.Super
	SASL                                *sasl.Mechanisms
	EnsembleNames, RequireAuth          []string
	SkipACL, LinearizableReads          bool
	TLSConfig                           *tls.Config // for ServeTLS
	Logger                              *slog.Logger
	Rand                                io.Reader
	Now                                 func() time.Time // also gives the times for Kerberos' tickets

	// MaxPending bounds the unanswered requests of a connection; default 1000. At the bound the server stops
	// reading the connection's socket.
	MaxPending int
	// MaxOutboxBytes and MaxOutboxFrames bound what waits to be written to one client; defaults 16 MiB and
	// 50,000. At the bound the server closes the client's connection.
	MaxOutboxBytes  int
	MaxOutboxFrames int
	// MaxWatchesPerConn and MaxWatches bound the number of watches; defaults 500,000 and 10 million. At a bound
	// the server closes the connection that sets another watch.
	MaxWatchesPerConn int
	MaxWatches        int
	// MaxWatchBytesPerConn and MaxWatchBytes bound the memory of watches: of one connection (default 48 MiB) and
	// of all (default a quarter of the memory that the process may use, at least 128 MiB). While MaxConnsPerAddr
	// is a limit, all connections from one address together may have twice as much as a single connection. A
	// connection that would exceed a bound is closed, except that a connection with few watches may exceed
	// MaxWatchBytes.
	MaxWatchBytesPerConn int
	MaxWatchBytes        int

	// MaxBuffers bounds the memory of all connections for large incoming frames and for waiting output. The
	// default is a quarter of what the process may use, at most 72 MiB and at least twice MaxFrame. At the bound
	// connections wait until others have freed memory, and the server closes those without progress.
	MaxBuffers int

	// HandshakeTimeout is how long a connection may take to get a session;
	// default 10 s.
	HandshakeTimeout time.Duration

	// Reconfigure carries out the operation reconfig; nil: the server answers RECONFIGDISABLED.
	Reconfigure Reconfigure

	// Follow, if set, is called with each request and its outcome; see observe.Clients.Followed.
	Follow func(*observe.Request)
	// Ended, if set, gets the end of every session, with the events of the nodes that the end removed. It must
	// not block.
	Ended func(session int64, events []tree.Event)
}

// WithDefaults returns o with all defaults, or an error.
func (o Options) WithDefaults() (Options, error) {
	o.ID = cmp.Or(o.ID, 1)
	o.MinSessionTimeout = cmp.Or(o.MinSessionTimeout, 4*time.Second)
	o.MaxSessionTimeout = cmp.Or(o.MaxSessionTimeout, 40*time.Second)
	o.MaxFrame = cmp.Or(o.MaxFrame, DefaultMaxFrame)
	o.MaxPending = cmp.Or(o.MaxPending, 1000)
	o.MaxOutboxBytes = cmp.Or(o.MaxOutboxBytes, 16<<20)
	o.MaxOutboxFrames = cmp.Or(o.MaxOutboxFrames, 50_000)
	o.MaxWatchesPerConn = cmp.Or(o.MaxWatchesPerConn, 500_000)
	o.MaxWatches = cmp.Or(o.MaxWatches, 10_000_000)
	o.MaxWatchBytesPerConn = cmp.Or(o.MaxWatchBytesPerConn, 48<<20)
	quarter := cmp.Or(int(machine.UsableMemory()/4), 1<<30)
	o.MaxWatchBytes = cmp.Or(o.MaxWatchBytes, max(128<<20, quarter))
	o.MaxBuffers = cmp.Or(o.MaxBuffers, max(2*o.MaxFrame, 16<<20, min(72<<20, quarter)))
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Rand = cmp.Or(o.Rand, rand.Reader)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.BoundConns()
	o.MaxSessions = cmp.Or(o.MaxSessions, max(1000, quarter/sessionBytes))
	if o.MaxAddrSessions == 0 {
		o.MaxAddrSessions = maxAddrSessions
		if o.MaxSessions > 0 {
			o.MaxAddrSessions = max(1, min(maxAddrSessions, o.MaxSessions/2))
		}
	}
	return o, o.validate()
}

// BoundConns fills in the bounds of connections.
func (o *Options) BoundConns() {
	o.MaxConnsPerAddr = cmp.Or(o.MaxConnsPerAddr, DefaultMaxConnsPerAddr)
	if o.MaxConns >= 0 {
		o.MaxConns = min(cmp.Or(o.MaxConns, 1<<30), roomForConns(machine.MaxOpenFiles(), machine.UsableMemory()))
	}
}

func (o *Options) validate() error {
	switch {
	case o.MinSessionTimeout < time.Millisecond:
		return fmt.Errorf("minimum session timeout %v is too short", o.MinSessionTimeout)
	case o.MaxSessionTimeout < o.MinSessionTimeout:
		return fmt.Errorf("maximum session timeout %v is shorter than the minimum %v", o.MaxSessionTimeout,
			o.MinSessionTimeout)
	case o.MaxSessionTimeout.Milliseconds() > 1<<31-1:
		return fmt.Errorf("maximum session timeout %v is too long for the protocol", o.MaxSessionTimeout)
	case o.MaxFrame < 128 || o.MaxFrame > inbox.MaxWatchFrame:
		return fmt.Errorf("frame limit %d is not in 128..%d", o.MaxFrame, inbox.MaxWatchFrame)
	}
	return nil
}

// roomForConns returns for how many connections the file descriptors and the memory are enough. A parameter
// that is 0 is not known and does not count.
func roomForConns(descriptors int64, memory uint64) int {
	n := 1 << 30
	if descriptors > 0 {
		n = int(min(descriptors/10*8, 1<<30))
	}
	if memory > 0 {
		n = min(n, int(memory/2>>16))
	}
	return n
}

// Negotiate returns the session timeout, in ms, for a client that asks for this timeout: the nearest one that
// the options allow.
func (o *Options) Negotiate(asked int32) int32 {
	return int32(min(max(int64(asked), o.MinSessionTimeout.Milliseconds()), o.MaxSessionTimeout.Milliseconds()))
}

// ReconfigRequest is a client's request to change the membership.
type ReconfigRequest struct {
	Joining, Leaving, Members string
	Version                   int64 // version of the configuration that the request changes; -1: any

	// May says whether the client may write /zookeeper/config. ZooKeeper checks the request before the
	// client's rights, so Reconfigure checks both.
	May bool
	// Patience is how long the client can wait for servers that join.
	Patience time.Duration
}

// Reconfigure carries out a change of membership and returns the code for the client. It may block. It
// returns known == false if this server does not know the result or has no code for it; the connection is
// then closed.
type Reconfigure func(ReconfigRequest) (code jute.ErrCode, known bool)
