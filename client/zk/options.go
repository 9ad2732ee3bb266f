package zk

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// Options are the settings of a Conn. The zero value suits most programs.
type Options struct {
	// Timeout is the session timeout to ask for; 20 s by default. The server may grant another timeout; see
	// [Conn.Session].
	Timeout time.Duration
	// TLS, if not nil, makes every connection use TLS. If it names no server, each server's certificate must
	// contain the host name that the Conn dials.
	TLS *tls.Config
	// Auth are identities that every connection presents before anything else.
	Auth []Auth
	// Dial replaces the function that opens connections. addr is the address as it stands in the list of
	// servers. If Dial is nil, the Conn looks up the names for each attempt, and tries their addresses in
	// random order.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Resume, if it has an ID, is a session that this Conn takes over from another Conn, perhaps of another
	// process. The Conn then does not begin a session of its own.
	Resume Session
	// AttemptLimit bounds one attempt to connect, and one handshake. The default is a quarter of the session
	// timeout, but at most 5 s.
	AttemptLimit time.Duration
	// MaxRequest bounds the length of a request, because a server closes the connection when it gets a longer
	// request. The default is 1 MiB minus one byte, like the default of a server's jute.maxbuffer.
	MaxRequest int
	// The Conn calls OnState for each change of state, one call after another. No state follows Expired or
	// Closed. OnState runs between two answers of the server, so it must not wait for an answer or call Close.
	OnState func(State)
	// OnTrouble is called with the reason why a server could not be used, perhaps by several
	// goroutines at once.
	OnTrouble func(server string, err error)
	// Counters, if not nil, count the traffic. Several Conns may share them.
	Counters *Counters
	// Logger gets messages for operators, at level debug; by default nothing is logged.
	Logger *slog.Logger
}

// Auth is an identity to present, such as {"digest", "user:password"}.
type Auth struct {
	Scheme string
	Secret []byte
}

// Counters count the traffic on connections.
type Counters struct {
	Requests, Events     atomic.Uint64
	BytesSent, BytesRead atomic.Uint64
	Connections          atomic.Uint64 // connections that carried a session
}

// DefaultTimeout is the session timeout to ask for if Options name none.
const DefaultTimeout = 20 * time.Second

const defaultMaxRequest = 1<<20 - 1

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Timeout < 0 || o.AttemptLimit < 0 || o.MaxRequest < 0:
		return o, fmt.Errorf("%w: a duration or size is negative", ErrInvalid)
	case o.Timeout == 0:
		o.Timeout = DefaultTimeout
	}
	if o.AttemptLimit == 0 {
		o.AttemptLimit = min(max(o.Timeout/4, 250*time.Millisecond), 5*time.Second)
	}
	if o.MaxRequest == 0 {
		o.MaxRequest = defaultMaxRequest
	}
	if o.Counters == nil {
		o.Counters = &Counters{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnState == nil {
		o.OnState = func(State) {}
	}
	if o.OnTrouble == nil {
		o.OnTrouble = func(string, error) {}
	}
	return o, nil
}

// ParseServers splits "h1:2181,h2/chroot" into addresses and the chroot. The default port is 2181.
func ParseServers(s string) (servers []string, chroot string, err error) {
	if scheme, _, isURL := strings.Cut(s, "://"); isURL {
		return nil, "", fmt.Errorf("%w: write the servers as host:port,host:port/chroot, without %s://",
			ErrInvalid,
			scheme)
	}
	list, root, found := strings.Cut(s, "/")
	if found {
		chroot = strings.TrimRight("/"+root, "/")
	}
	for _, h := range strings.Split(list, ",") {
		h = strings.TrimSpace(h)
		if h == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), "2181")
		}
		servers = append(servers, h)
	}
	if len(servers) == 0 {
		return nil, "", fmt.Errorf("%w: no server in %q", ErrInvalid, s)
	}
	for _, part := range strings.Split(chroot, "/")[min(1, len(chroot)):] {
		if part == "" && chroot != "" || part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return nil, "", fmt.Errorf("%w: the chroot %q is not a valid path", ErrInvalid, chroot)
		}
	}
	return servers, chroot, nil
}

// chroot is the path of the subtree that a Conn sees, "" for the whole tree.
type chroot string

// full() turns a path of the caller into a path from the server's root.
func (r chroot) full(path string) string {
	switch {
	case r != "" && (path == "/" || path == ""):
		return string(r)
	case !strings.HasPrefix(path, "/"):
		return path // the server refuses a path without a slash; appended to the chroot, it would name a sibling
	}
	return string(r) + path
}

// own() turns a path from the server's root into a path of the caller.
func (r chroot) own(path string) string {
	if r == "" || !r.has(path) {
		return path
	}
	if p := path[len(r):]; p != "" {
		return p
	}
	return "/"
}

// has() reports whether a path from the server's root is in the subtree.
func (r chroot) has(path string) bool {
	rest, begins := strings.CutPrefix(path, string(r))
	return begins && (rest == "" || rest[0] == '/')
}
