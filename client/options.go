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

// Option sets something of a Client.
type Option func(*options)

type options struct {
	timeout    time.Duration
	margin     time.Duration // 0: max(T/5, 1s)
	drift      float64
	safety     time.Duration // between two looks at what is waited for; 0: none; negative: a part of the session timeout
	tls        *tls.Config
	auth       []zk.Auth
	clock      clocks
	log        *slog.Logger
	hooks      Hooks
	dial       func(ctx context.Context, network, addr string) (net.Conn, error)
	dialLimit  time.Duration
	name       string
	persistent bool
}

// Defaults of the options.
const (
	DefaultSessionTimeout = 20 * time.Second
	defaultDrift          = 0.005
	minMargin             = time.Second
)

func defaultOptions() options {
	return options{timeout: DefaultSessionTimeout, drift: defaultDrift, safety: -1}
}

// WithSessionTimeout asks for a session timeout (20 s by default). The server
// may grant another one; [Client.Session] tells which.
func WithSessionTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithMargin sets how long before the server may end the session its leases are
// given up here: a fifth of the session timeout and at least a second by
// default. It must cover what has to happen between the loss and the next
// holder's first action, and on stock ZooKeeper the time a server may be cut off
// from its leader without noticing.
func WithMargin(d time.Duration) Option { return func(o *options) { o.margin = d } }

// WithClockDrift sets by which part of a second per second the clocks of client
// and server may differ in speed: 0.005 by default.
func WithClockDrift(part float64) Option { return func(o *options) { o.drift = part } }

// WithTLS makes every connection use TLS. Where the configuration names no
// server, each server's certificate must bear the host name it was dialled by.
func WithTLS(cfg *tls.Config) Option { return func(o *options) { o.tls = cfg.Clone() } }

// WithAuth adds an identity, such as ("digest", "user:password").
func WithAuth(scheme, secret string) Option {
	return func(o *options) { o.auth = append(o.auth, zk.Auth{Scheme: scheme, Secret: []byte(secret)}) }
}

// WithLogger sets where the client reports what an operator would want to know. By
// default warnings go to slog.Default(), such as why there is no connection.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithClientHooks sets functions that are told of events of every lock of the client.
func WithClientHooks(h Hooks) Option { return func(o *options) { o.hooks = h } }

// WithDialer replaces the function that opens connections. Its context ends with
// the time allowed for one attempt.
func WithDialer(f func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return func(o *options) { o.dial = f }
}

// WithDialTimeout sets how long one attempt to connect may take, the handshake
// included: a quarter of the session timeout by default, and 5 s at most.
func WithDialTimeout(d time.Duration) Option { return func(o *options) { o.dialLimit = d } }

// WithClientName sets the command name that other clients see as the owner's;
// by default it is the name of the program.
func WithClientName(name string) Option { return func(o *options) { o.name = name } }

// WithPersistentParents makes the directories of locks persistent. By default
// they are containers, which the server removes once they are empty.
func WithPersistentParents() Option { return func(o *options) { o.persistent = true } }

func (o *options) withDefaults() error {
	if o.timeout <= 0 || o.margin < 0 {
		return fmt.Errorf("%w: session timeout and margin must not be negative", ErrInvalid)
	}
	if o.drift < 0 || o.drift >= 0.5 {
		return fmt.Errorf("%w: clock drift %v", ErrInvalid, o.drift)
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
	return time.Duration(float64(t)*(1-o.drift)) - o.marginFor(t)
}

// heartbeat is the time between two heartbeats of a session of timeout t.
func heartbeat(t time.Duration) time.Duration { return t / 5 }

// checkTimeout refuses a session timeout that leaves no room for two heartbeats
// before the deadline: leases would flicker.
func (o *options) checkTimeout(t time.Duration) error {
	if need := 2 * heartbeat(t); o.usable(t) < need {
		return fmt.Errorf("%w: session timeout %v is too short for a margin of %v: leases would last %v after a heartbeat, %v are needed",
			ErrInvalid, t, o.marginFor(t), o.usable(t), need)
	}
	return nil
}
