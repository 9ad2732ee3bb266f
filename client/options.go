package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/zlockd/zlockd/client/zk"
)

// Option sets an option of a client, of a lock or of one call. An option of locks counts for every
// lock of the client if given to [Dial], for all calls of a lock if given to the lock, and for one
// call if given to the call. An option that says "of the session" is for Dial alone; a lock with
// such an option answers ErrInvalid.
type Option func(*config)

// config is what options say.
type config struct {
	session options
	lock    lockConfig
	ofDial  bool // an option of the session was given
}

// ofSession makes an option of the session.
func ofSession(f func(*options)) Option {
	return func(c *config) {
		f(&c.session)
		c.ofDial = true
	}
}

// ofLock makes an option of locks.
func ofLock(f func(*lockConfig)) Option { return func(c *config) { f(&c.lock) } }

type options struct {
	timeout time.Duration
	margin  time.Duration // 0: max(T/5, 1s)
	safety  time.Duration // between two looks at what is waited for; 0: none; negative: by the session timeout
	tls     *tls.Config
	auth    []zk.Auth
	clock   clocks
	log     *slog.Logger
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	name    string
	hooks   Hooks      // of every lock
	lock    lockConfig // what locks begin with
}

const (
	clockDrift = 0.005 // by which part the clocks of client and server may differ in speed
	minMargin  = time.Second
)

// clientOptions combines the options of Dial.
func clientOptions(opts []Option) (options, error) {
	c := config{session: options{timeout: zk.DefaultTimeout, safety: -1}, lock: newLockConfig()}
	for _, f := range opts {
		f(&c)
	}
	o := c.session
	o.hooks, o.lock = c.lock.hooks, c.lock
	o.lock.hooks = Hooks{} // those of the client are called beside a lock's own
	return o, o.withDefaults()
}

// WithSessionTimeout, of the session, asks for a timeout (20 s by default). The server
// may grant another one; [Client.Session] tells which.
func WithSessionTimeout(d time.Duration) Option { return ofSession(func(o *options) { o.timeout = d }) }

// WithMargin, of the session, sets how long before the possible end of the session the client gives
// up its leases: by default a fifth of the session timeout and at least a second. The margin must
// cover what has to happen between the loss and the next holder's first action. On stock ZooKeeper
// it must also cover the time a server may be cut off from its leader without noticing.
func WithMargin(d time.Duration) Option { return ofSession(func(o *options) { o.margin = d }) }

// WithTLS, of the session, makes every connection use TLS. If cfg names no server, each server's
// certificate must bear the host name that the client dialled.
func WithTLS(cfg *tls.Config) Option { return ofSession(func(o *options) { o.tls = cfg.Clone() }) }

// WithAuth, of the session, adds an identity, such as ("digest", "user:password").
func WithAuth(scheme, secret string) Option {
	return ofSession(
		func(o *options) { o.auth = append(o.auth, zk.Auth{Scheme: scheme, Secret: []byte(secret)}) })
}

// WithLogger, of the session, sets the logger for messages to operators. By default warnings, such
// as why there is no connection, go to slog.Default().
func WithLogger(l *slog.Logger) Option { return ofSession(func(o *options) { o.log = l }) }

// WithDialer, of the session, replaces the function that opens connections. Its context ends with
// the time allowed for one attempt.
func WithDialer(f func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return ofSession(func(o *options) { o.dial = f })
}

// WithClientName, of the session, sets the name that other clients see as the owner's
// command; by default it is the name of the program.
func WithClientName(name string) Option { return ofSession(func(o *options) { o.name = name }) }

func (o *options) withDefaults() error {
	if o.timeout <= 0 || o.margin < 0 {
		return fmt.Errorf("%w: session timeout and margin must not be negative", ErrInvalid)
	}
	if o.clock == nil {
		o.clock = newSystemClock()
	}
	if o.log == nil {
		o.log = slog.New(warnings{})
	}
	return nil
}

// marginFor is the safety margin for a session of timeout t.
func (o *options) marginFor(t time.Duration) time.Duration {
	if o.margin > 0 {
		return o.margin
	}
	return max(t/5, minMargin)
}

// usable is how long after a confirmed heartbeat a session of timeout t counts as alive.
func (o *options) usable(t time.Duration) time.Duration {
	return time.Duration(float64(t)*(1-clockDrift)) - o.marginFor(t)
}

// heartbeat is the time between two heartbeats of a session of timeout t.
func heartbeat(t time.Duration) time.Duration { return t / 5 }

// checkTimeout refuses a session timeout that leaves no room for two heartbeats
// before the deadline: leases would flicker.
func (o *options) checkTimeout(granted time.Duration) error {
	need := 2 * heartbeat(granted)
	if o.usable(granted) >= need {
		return nil
	}
	least := time.Duration(float64(o.marginFor(granted))/(1-clockDrift-2.0/5)).Round(100*time.Millisecond) +
		100*time.Millisecond
	by := ""
	if granted != o.timeout {
		by = fmt.Sprintf(" (granted by the server instead of %v)", o.timeout)
	}
	return fmt.Errorf("%w: a session timeout of %v%s is too short: leases are given up %v before it ends, "+
		"and two heartbeats need %v; ask for %v or more, or for a smaller margin",
		ErrInvalid, granted, by, o.marginFor(granted), need, least)
}
