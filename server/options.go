package server

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/server/admin"
)

// Options say how a Server treats its clients, and for Start, what a whole
// server is made of. The zero value of each field means its default.
type Options struct {
	// ID is this server's id in the cluster; default 1.
	ID uint32

	// ClientAddr, SecureAddr and AdminAddr are where Start listens for clients,
	// clients with TLS, and HTTP. Empty: not at all. Any port may be 0.
	ClientAddr, SecureAddr, AdminAddr string
	// Raft is this server's part in the cluster, for Start. Its ID, Observer
	// and MinSessionTimeout are set by Start; its Logger, Now and Rand default
	// to those below, its ClientAddr to the bound ClientAddr if that names a
	// host. Its Fatal is called once clients are cut off; by default nothing is
	// done but what Instance.Failed tells.
	Raft raftfsm.Options
	// Admin says what is shown to whom, for Start, which sets its Source.
	Admin admin.Options
	// Version and Built name the program, Config is what conf shows; for Start.
	Version string
	Built   time.Time
	Config  admin.Config
	// Listen opens the listeners of Start; default net.Listen for TCP.
	Listen func(addr string) (net.Listener, error)

	// MinSessionTimeout and MaxSessionTimeout bound what clients may ask for;
	// default 4 s and 40 s, two and twenty ticks.
	MinSessionTimeout time.Duration
	MaxSessionTimeout time.Duration

	// MaxFrame is the longest frame accepted, its prefix not counted; default
	// 1,048,575. setWatches may be longer, up to 64 MiB: there are clients
	// that do not split it.
	MaxFrame int
	// MaxConnsPerAddr bounds the connections from one address; default 60,
	// negative is no limit.
	MaxConnsPerAddr int
	// MaxConns bounds all connections; default 10,000, and never more than
	// 80 % of the descriptors this process may have. Negative is no limit.
	MaxConns int
	// MaxNewSessions bounds new sessions per second; default none.
	MaxNewSessions int
	// MaxPending bounds the unanswered requests of a connection; default 1000.
	// At the bound its socket is not read.
	MaxPending int
	// MaxOutboxBytes and MaxOutboxFrames bound what waits to be written to one
	// client; defaults 16 MiB and 50,000. At the bound it is closed.
	MaxOutboxBytes  int
	MaxOutboxFrames int
	// MaxWatchesPerConn and MaxWatches bound watches; defaults 500,000 and
	// 10 million. At the bound the connection that wants more is closed.
	MaxWatchesPerConn int
	MaxWatches        int

	// HandshakeTimeout is how long a connection may take to get a session;
	// default 10 s.
	HandshakeTimeout time.Duration
	// StallTimeout is how long a frame may stand unfinished, or a client take
	// no byte of what it is sent; default 30 s.
	StallTimeout time.Duration
	// FrameTimeout is how long a frame may take in all; default 120 s.
	FrameTimeout time.Duration

	// SuperDigest is the digest identity "user:base64(sha1(user:password))"
	// that may do everything. Empty: nobody may.
	SuperDigest string
	// SkipACL lets everybody do everything.
	SkipACL bool
	// LinearizableReads lets every read wait for a round through the log, so
	// that no read is ever stale.
	LinearizableReads bool
	// TLSConfig is for ServeTLS.
	TLSConfig *tls.Config

	// Reconfig lets clients that may write /zookeeper/config change the
	// membership by the operation reconfig, for Start. Off, it is answered
	// RECONFIGDISABLED.
	Reconfig bool
	// Reconfigure is what carries reconfig out; Start sets it if Reconfig is on.
	Reconfigure Reconfigure

	// Logger gets what an operator would want to know; default slog.Default.
	Logger *slog.Logger
	// Rand is the source of session passwords; default crypto/rand.
	Rand io.Reader
	// Now is the wall clock, for what people are shown; default time.Now.
	Now func() time.Time
}

// withDefaults returns o with every default filled in, or says what is wrong.
func (o Options) withDefaults() (Options, error) {
	setDefault(&o.ID, 1)
	setDefault(&o.MinSessionTimeout, 4*time.Second)
	setDefault(&o.MaxSessionTimeout, 40*time.Second)
	setDefault(&o.MaxFrame, 0xfffff)
	setDefault(&o.MaxConnsPerAddr, 60)
	setDefault(&o.MaxConns, 10_000)
	setDefault(&o.MaxPending, 1000)
	setDefault(&o.MaxOutboxBytes, 16<<20)
	setDefault(&o.MaxOutboxFrames, 50_000)
	setDefault(&o.MaxWatchesPerConn, 500_000)
	setDefault(&o.MaxWatches, 10_000_000)
	setDefault(&o.HandshakeTimeout, 10*time.Second)
	setDefault(&o.StallTimeout, 30*time.Second)
	setDefault(&o.FrameTimeout, 120*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Rand == nil {
		o.Rand = &buffered{r: bufio.NewReaderSize(rand.Reader, 1<<10)}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Listen == nil {
		// Sessions time out sooner than TCP would notice that a client is gone.
		lc := net.ListenConfig{KeepAlive: -1}
		o.Listen = func(addr string) (net.Listener, error) { return lc.Listen(context.Background(), "tcp", addr) }
	}
	if n := descriptors(); n > 0 && o.MaxConns > 0 {
		o.MaxConns = min(o.MaxConns, n/10*8)
	}
	return o, o.validate()
}

func (o *Options) validate() error {
	switch {
	case o.MinSessionTimeout < time.Millisecond:
		return fmt.Errorf("minimum session timeout %v is too short", o.MinSessionTimeout)
	case o.MaxSessionTimeout < o.MinSessionTimeout:
		return fmt.Errorf("maximum session timeout %v is shorter than the minimum %v", o.MaxSessionTimeout, o.MinSessionTimeout)
	case o.MaxSessionTimeout.Milliseconds() > 1<<31-1:
		return fmt.Errorf("maximum session timeout %v does not fit the protocol", o.MaxSessionTimeout)
	case o.MaxFrame < 128 || o.MaxFrame > maxWatchFrame:
		return fmt.Errorf("frame limit %d is not in 128..%d", o.MaxFrame, maxWatchFrame)
	case o.MaxPending < 0 || o.MaxOutboxBytes < 0 || o.MaxOutboxFrames < 0 || o.MaxWatches < 0 || o.MaxWatchesPerConn < 0:
		return errors.New("a limit is negative")
	}
	return nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// descriptors returns how many files this process may have open, 0 if that is
// unknown.
func descriptors() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int(min(r.Cur, 1<<30))
}

// buffered spares a system call for every few random bytes.
type buffered struct {
	mu sync.Mutex
	r  *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return io.ReadFull(b.r, p)
}

// negotiate clamps the session timeout a client asked for, in ms.
func (o *Options) negotiate(asked int32) int32 {
	return int32(min(max(int64(asked), o.MinSessionTimeout.Milliseconds()), o.MaxSessionTimeout.Milliseconds()))
}
