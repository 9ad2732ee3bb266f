package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/internal/take"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
)

// Option sets an option of a client, of a lock or of one call. An option of locks counts for every lock of
// the client if given to [Dial], for all calls of a lock if given to the lock, and for one call if given to
// the call. An option that says "of the session" is only for Dial; the calls of a lock with such an option
// return ErrInvalid.
type Option func(*options)

type options struct {
	session.Options
	take.Terms
	name      string
	events    func(Event)
	ofSession bool // an option of the session was given
}

// ofSession makes an option of the session.
func ofSession(f func(*options)) Option {
	return func(o *options) {
		f(o)
		o.ofSession = true
	}
}

// clientOptions combines the options of Dial.
func clientOptions(opts []Option) (options, error) {
	none := options{
		Terms: take.Terms{ACL: zk.WorldACL(zk.PermAll), MaxWriterWait: recipe.DefaultMaxWriterWait},
		Options: session.Options{Timeout: zk.DefaultTimeout, Safety: -1, Clock: session.SystemClock(),
			Log: slog.New(warnings{})},
	}
	o := *none.with(opts)
	o.ofSession = false
	if o.Timeout <= 0 || o.Margin < 0 {
		return o, fmt.Errorf("%w: session timeout and margin must not be negative", ErrInvalid)
	}
	return o, nil
}

// with returns the options changed by more options.
func (o *options) with(opts []Option) *options {
	if len(opts) == 0 {
		return o
	}
	all := *o
	for _, set := range opts {
		set(&all)
	}
	return &all
}

// WithSessionTimeout, of the session, asks for a timeout (20 s by default). The server
// may grant another one; [Client.Session] tells which.
func WithSessionTimeout(d time.Duration) Option { return ofSession(func(o *options) { o.Timeout = d }) }

// WithMargin, of the session, sets how long before the possible end of the session the client gives
// up its leases: by default a fifth of the session timeout and at least a second. The margin must
// cover what has to happen between the loss and the next holder's first action. On stock ZooKeeper
// it must also cover the time a server may be cut off from its leader without noticing.
func WithMargin(d time.Duration) Option { return ofSession(func(o *options) { o.Margin = d }) }

// WithTLS, of the session, makes every connection use TLS. If cfg names no server, each server's certificate
// must contain the host name that the client dialled.
func WithTLS(cfg *tls.Config) Option { return ofSession(func(o *options) { o.TLS = cfg.Clone() }) }

// WithAuth, of the session, adds an identity, such as ("digest", "user:password").
func WithAuth(scheme, secret string) Option {
	return ofSession(
		func(o *options) { o.Auth = append(o.Auth, zk.Auth{Scheme: scheme, Secret: []byte(secret)}) })
}

// WithLogger, of the session, sets the logger for messages to operators. By default warnings, such
// as why there is no connection, go to slog.Default().
func WithLogger(l *slog.Logger) Option { return ofSession(func(o *options) { o.Log = l }) }

// WithDialer, of the session, replaces the function that opens connections. Its context ends with
// the time allowed for one attempt.
func WithDialer(f func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return ofSession(func(o *options) { o.Dial = f })
}

// WithName, of the session, sets the name that other clients see as the owner's command; by default it
// is the name of the program.
func WithName(name string) Option { return ofSession(func(o *options) { o.name = name }) }

// WithMaxHold ends a lease that lasts longer than d; 0 means no limit. The time counts from the grant, for a
// set from the grant of its last lock. The nodes stay for another grace, so that the holder can finish its
// work. A grace of 0 means one second; a negative grace means none.
func WithMaxHold(d, grace time.Duration) Option {
	return func(o *options) { o.MaxHold, o.Grace = d, grace }
}

// WithLinger keeps the nodes of a lease that was lost for the reasons Deadline, MaxHold and Revoked until
// Unlock, as far as the client can. It is for programs that need time to stop. They must call Unlock in every
// case. Without WithLinger the lock is free for others as soon as the lease is lost, or after the grace of
// [WithMaxHold].
func WithLinger() Option { return func(o *options) { o.Linger = true } }

// WithReason tells other clients what the lock is held for.
func WithReason(text string) Option { return func(o *options) { o.Reason = text } }

// WithACL sets the access control list of the nodes that the lock makes.
func WithACL(acl ...zk.ACL) Option { return func(o *options) { o.ACL = slices.Clone(acl) } }

// WithLayout says how nodes are named; see [Layout].
func WithLayout(l Layout) Option { return func(o *options) { o.Layout = l } }

// WithPolicy makes a read-write lock follow a policy, and allows [Lease.Upgrade]. Every program
// that uses the path must use this package and name the same policy.
func WithPolicy(p recipe.Policy) Option {
	return func(o *options) { o.Policy, o.PolicySet, o.Layout = p, true, recipe.LayoutPolicy }
}

// WithMaxWriterWait bounds how long readers may overtake a writer under
// [PolicyReader]; 10 s by default.
func WithMaxWriterWait(d time.Duration) Option { return func(o *options) { o.MaxWriterWait = d } }

// WithLockDelay makes the next holder wait d if the last holder went away without unlocking, for
// resources that cannot check tokens. Every program that uses the path must set it. It costs one
// more write for each grant. Semaphores have no lock delay.
func WithLockDelay(d time.Duration) Option { return func(o *options) { o.LockDelay = d } }

// WithWait limits the wait for the lock. After d the call ends with an error that is both
// ErrNotAcquired and context.DeadlineExceeded. With 0 it does not wait for other holders at all,
// like the Try calls. Unlike a timeout of the context given to Do, WithWait does not limit the
// work.
func WithWait(d time.Duration) Option { return func(o *options) { o.Wait, o.WaitSet = d, true } }

// WithReentrant lets a context that holds the lock take it again. The new lease shares node and
// token with the first and causes no traffic.
func WithReentrant() Option { return func(o *options) { o.Reentrant = true } }

// WithOwnPlace gives each contender of this process its own node, so that others see it wait. Without it
// the contenders of a process queue in the process first.
func WithOwnPlace() Option { return func(o *options) { o.OwnPlace = true } }

// WithRevocable ends a lease when another client has asked for the lock and grace has passed since. Without
// it the holder only gets the request, by [Lease.Asked].
func WithRevocable(grace time.Duration) Option {
	return func(o *options) { o.Revocable, o.RevokeGrace = true, grace }
}

// WithoutRequeue makes a waiter that lost its place fail instead of queueing again.
func WithoutRequeue() Option { return func(o *options) { o.NoRequeue = true } }

// WithEvents sets a function that the client calls for each [Event]: given to Dial, for those of the session
// and all locks; otherwise for those of the lock. One goroutine of the client makes the calls one after
// another, so a slow function delays other events but never a lock. When more than 4096 events wait, the
// client drops new ones and counts them ([Event.Dropped]).
func WithEvents(f func(Event)) Option { return func(o *options) { o.events = f } }

// check refuses combinations that cannot work.
func (o *options) check(path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	switch {
	case o.Layout >= recipe.LayoutZooKeeper:
		return fmt.Errorf("%w: %v", ErrInvalid, o.Layout)
	case o.Layout == recipe.LayoutPolicy && !o.PolicySet:
		return fmt.Errorf("%w: this layout is chosen by WithPolicy", ErrInvalid)
	case o.Wait < 0 || o.MaxHold < 0 || o.LockDelay < 0 || o.RevokeGrace < 0 || o.MaxWriterWait < 0:
		return fmt.Errorf("%w: a duration or number is negative", ErrInvalid)
	case o.ofSession:
		return fmt.Errorf("%w: an option of the session is given to Dial, not to a lock", ErrInvalid)
	}
	return nil
}

// Task names the work that a context belongs to, so that [Inspector.WaitGraph] can tell which locks
// the same work holds and waits for. The context of a lease has the lease's task; a context without
// a task gets a random one with its first lock.
//
// A task is one line of work, which does not wait for itself. If a task asks for a lock that it
// holds, the client refuses with ErrSelfDeadlock, even where the lease's context is not passed on.
// Without a name the client does not notice such a wait, and the wait never ends.
func Task(ctx context.Context, name string) context.Context { return hold.Task(ctx, name) }

// Layout says how contenders are named in a lock's directory, and so which other programs can share
// the lock.
type Layout = recipe.Layout

const (
	// LayoutCurator is shared with Apache Curator and with go-zookeeper's Lock.
	LayoutCurator = recipe.LayoutCurator
	// LayoutKazoo is shared with kazoo, the Python client.
	LayoutKazoo = recipe.LayoutKazoo
	// LayoutHost is shared with programs whose nodes are host-R-0000000001 and
	// host-W-0000000002.
	LayoutHost = recipe.LayoutHost
	// LayoutLatch is for elections shared with Curator's LeaderLatch.
	LayoutLatch = recipe.LayoutLatch
)

// The policies of a read-write lock decide the order of readers and writers.
const (
	// PolicyFair serves contenders in the order of arrival.
	PolicyFair = recipe.PolicyFair
	// PolicyReader lets readers overtake waiting writers, for a bounded time.
	PolicyReader = recipe.PolicyReader
	// PolicyWriter lets no reader in while a writer waits.
	PolicyWriter = recipe.PolicyWriter
)

// warnings passes on the warnings of a client without a logger.
type warnings struct{ slog.Handler }

func (warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle gives the record to the current default logger.
func (warnings) Handle(ctx context.Context, r slog.Record) error {
	h := slog.Default().Handler()
	if !h.Enabled(ctx, r.Level) {
		return nil
	}
	r.Message = fmt.Sprint("zlockd client: ", r.Message)
	return h.Handle(ctx, r)
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w warnings) WithGroup(string) slog.Handler      { return w }

// checkPath refuses text that cannot be the path of a lock.
func checkPath(p string) error {
	why := ""
	switch {
	case !strings.HasPrefix(p, "/"):
		why = "is not absolute"
	case p == "/":
		why = "is the root"
	case path.Clean(p) != p:
		why = "is not canonical"
	case strings.ContainsRune(p, 0):
		why = "has a zero byte"
	default:
		return nil
	}
	return fmt.Errorf("%w: path %q %s", ErrInvalid, p, why)
}
