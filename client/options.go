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

// Option sets an option of a client, of a lock or of one call. An option of locks that is given to [Dial]
// counts for every lock of the client. Given to a lock, it counts for all calls of that lock; given to a
// call, for that call. An option that says "of the session" is only for Dial; if a lock has such an option,
// its calls return ErrInvalid.
type Option func(*options)

type options struct {
	session.Options
	take.Terms
	name      string
	events    func(Event)
	ofSession bool // an option of the session is among the options
}

// ofSession returns an option of the session.
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
		return o, fmt.Errorf("%w: the session timeout must be positive, and the margin must not be negative",
			ErrInvalid)
	}
	return o, nil
}

// with() returns a copy of the options, changed by more options.
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

// WithSessionTimeout, an option of the session, asks for a timeout (20 s by default). The server may grant
// another timeout, which [Client.Session] returns.
func WithSessionTimeout(d time.Duration) Option { return ofSession(func(o *options) { o.Timeout = d }) }

// WithMargin, an option of the session, sets how long before the possible end of the session the client gives
// up its leases: by default a fifth of the session timeout and at least a second. The margin must be long
// enough for everything that the program does between the loss and the next holder's first action. A server
// of a stock ZooKeeper may be cut off from its leader for some time before it notices; there, the margin must
// also be longer than that time.
func WithMargin(d time.Duration) Option { return ofSession(func(o *options) { o.Margin = d }) }

// WithTLS, an option of the session, makes every connection use TLS. If cfg names no server, each server's
// certificate must contain the host name that the client dials.
func WithTLS(cfg *tls.Config) Option { return ofSession(func(o *options) { o.TLS = cfg.Clone() }) }

// WithAuth, an option of the session, adds an identity, such as ("digest", "user:password").
func WithAuth(scheme, secret string) Option {
	return ofSession(
		func(o *options) { o.Auth = append(o.Auth, zk.Auth{Scheme: scheme, Secret: []byte(secret)}) })
}

// WithLogger, an option of the session, sets the logger for messages to operators. By default warnings, such
// as why there is no connection, go to slog.Default().
func WithLogger(l *slog.Logger) Option { return ofSession(func(o *options) { o.Log = l }) }

// WithDialer, an option of the session, replaces the function that opens connections. The context of the
// function ends when the time allowed for one attempt is over.
func WithDialer(f func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return ofSession(func(o *options) { o.Dial = f })
}

// WithName, an option of the session, sets the name that other clients see as the owner's command; by default
// it is the name of the program.
func WithName(name string) Option { return ofSession(func(o *options) { o.name = name }) }

// WithMaxHold ends a lease that lasts longer than d; 0 means no limit. The time counts from the grant; the
// time of a set counts from the grant of the set's last lock. After the lease has ended, its nodes stay for
// the time `grace`, so that the holder can finish its work. A grace of 0 means one second; a negative grace
// means none.
func WithMaxHold(d, grace time.Duration) Option {
	return func(o *options) { o.MaxHold, o.Grace = d, grace }
}

// If a lease is lost for the reason Deadline, MaxHold or Revoked, WithLinger keeps its nodes until Unlock, as
// far as the client can. It is for programs that need time to stop. They must call Unlock in every case.
// Without WithLinger the lock is free for others as soon as the lease is lost, or after the grace of
// [WithMaxHold].
func WithLinger() Option { return func(o *options) { o.Linger = true } }

// WithReason tells other clients why the lock is held.
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

// WithLockDelay makes the next holder wait d if the last holder went away without unlocking, for resources
// that cannot check tokens. Every program that uses the path must set this option. Each grant costs one more
// write. Semaphores have no lock delay.
func WithLockDelay(d time.Duration) Option { return func(o *options) { o.LockDelay = d } }

// WithWait limits the wait for the lock. After d the call ends with an error that is both ErrNotAcquired and
// context.DeadlineExceeded. If d is 0, the call does not wait for other holders at all, like the Try calls.
// Unlike a timeout of the context given to Do, WithWait does not limit the work.
func WithWait(d time.Duration) Option { return func(o *options) { o.Wait, o.WaitSet = d, true } }

// WithReentrant lets a context that holds the lock take it again. The new lease has the node and the token of
// the first lease, and needs no request to the server.
func WithReentrant() Option { return func(o *options) { o.Reentrant = true } }

// WithOwnPlace gives each contender of this process a node of its own, so that other clients see it wait.
// Without it, the contenders of one process first wait for each other within the process.
func WithOwnPlace() Option { return func(o *options) { o.OwnPlace = true } }

// WithRevocable ends a lease when another client has asked for the lock and the time `grace` has passed since
// then. Without it the holder only gets the request, by [Lease.Asked].
func WithRevocable(grace time.Duration) Option {
	return func(o *options) { o.Revocable, o.RevokeGrace = true, grace }
}

// WithoutRequeue makes a waiter fail when it loses its place. Without this option, the waiter queues again.
func WithoutRequeue() Option { return func(o *options) { o.NoRequeue = true } }

// WithEvents sets a function that the client calls for each [Event]: if it is given to Dial, for the events
// of the session and of all locks; otherwise for the events of the lock. One goroutine of the client makes
// the calls one after another, so a slow function delays other events but never a lock. When more than 4096
// events wait, the client drops new ones and counts them ([Event.Dropped]).
func WithEvents(f func(Event)) Option { return func(o *options) { o.events = f } }

// check() refuses combinations of options that cannot work.
func (o *options) check(path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	switch {
	case o.Layout >= recipe.LayoutZooKeeper:
		return fmt.Errorf("%w: %v", ErrInvalid, o.Layout)
	case o.Layout == recipe.LayoutPolicy && !o.PolicySet:
		return fmt.Errorf("%w: use WithPolicy to choose this layout", ErrInvalid)
	case o.Wait < 0 || o.MaxHold < 0 || o.LockDelay < 0 || o.RevokeGrace < 0 || o.MaxWriterWait < 0:
		return fmt.Errorf("%w: a duration or number is negative", ErrInvalid)
	case o.ofSession:
		return fmt.Errorf("%w: this is a session option: pass it to Dial, not to a lock", ErrInvalid)
	}
	return nil
}

// Task names the work to which a context belongs, so that [Inspector.WaitGraph] can tell which locks the same
// work holds and waits for. The context of a lease has the lease's task; a context without a task gets a
// random one with its first lock.
//
// A task does one thing after another, so it cannot wait for itself. If a task asks for a lock that it
// already holds, the client refuses with ErrSelfDeadlock, even if the call does not have the lease's context.
// Without a task's name the client cannot notice such a wait, and the wait never ends.
func Task(ctx context.Context, name string) context.Context { return hold.Task(ctx, name) }

// Layout says how contenders are named in a lock's directory, and so which other programs can share
// the lock.
type Layout = recipe.Layout

const (
	// LayoutCurator is the layout of Apache Curator and of go-zookeeper's Lock.
	LayoutCurator = recipe.LayoutCurator
	// LayoutKazoo is the layout of kazoo, the Python client.
	LayoutKazoo = recipe.LayoutKazoo
	// LayoutHost is the layout of programs whose nodes are named host-R-0000000001 and host-W-0000000002.
	LayoutHost = recipe.LayoutHost
	// LayoutLatch is the layout of Curator's LeaderLatch, for elections.
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

// warnings is a handler of log records. It passes on only warnings and errors. A client uses it if its
// options name no logger.
type warnings struct{ slog.Handler }

func (warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle passes the record to the present default logger.
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
