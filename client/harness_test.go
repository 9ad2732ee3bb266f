package client

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/leak"
	"github.com/zlockd/zlockd/test/must"
)

// server is the ensemble that most tests share. Each test uses a directory of its own. The ensemble has three
// servers in long runs (see rounds()), and otherwise one.
var server = cluster.Shared{Options: func() cluster.Options { return launchOptions(rounds(3, 1)) }}

// kind() returns the kind of server that the tests run against: zlockd, unless ZLOCKD_CLIENT_TARGET names
// another.
func kind() cluster.Kind {
	if k := os.Getenv("ZLOCKD_CLIENT_TARGET"); k != "" {
		return cluster.Kind(k)
	}
	return cluster.Zlockd
}

func TestMain(m *testing.M) {
	if os.Getenv("ZLOCKD_CLIENT_CHILD") != "" {
		child()
		return
	}
	flag.Parse()
	flag.Set("test.parallel", "8") // the tests mostly wait
	code := m.Run()
	server.Close()
	// Allowed to remain: the goroutine that removes the nodes of a stub. It never ends without a connection.
	os.Exit(leak.AtEnd(code, "zlockd/zlockd/client", "/session.(*Epoch).reapOnce+"))
}

// launchOptions returns the options of an ensemble with a short tick, so that session timeouts of a second
// and more are granted.
func launchOptions(nodes int) cluster.Options { return cluster.ShortSessions(kind(), nodes) }

// addr is the shared server's address.
func addr(t testing.TB) string {
	t.Helper()
	return server.Addr(t)
}

// several() returns the addresses of all servers of the shared ensemble.
func several(t testing.TB) string {
	t.Helper()
	return server.Ensemble(t).Addrs()
}

// dir returns a path that no other test uses.
func dir(t testing.TB) string { return server.Dir(t) }

// leakCheck fails the test if goroutines are left when everything was cleaned up.
// It is called before anything that registers a cleanup.
func leakCheck(t testing.TB) {
	// Ignore the goroutines of a server that the test started: that server ends after this check.
	leak.Check(t, "/test/cluster.(*Server).Spawn.func1", "/server/clients/rest.(*Rest).run")
}

// patience bounds how long a test waits; it is long because machines are busy.
const patience = 30 * time.Second

func testCtx(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// quick() returns options for a session with a short timeout.
func quick(extra ...Option) []Option {
	return append([]Option{WithSessionTimeout(4 * time.Second), WithMargin(time.Second)}, extra...)
}

// steady() returns options for a session that lasts while the machine is stopped for some seconds.
func steady(extra ...Option) []Option {
	return append([]Option{WithSessionTimeout(12 * time.Second), WithMargin(time.Second)}, extra...)
}

// Options of tests only.
func withClock(c session.Clock) Option       { return ofSession(func(o *options) { o.Clock = c }) }
func withSafetyCheck(d time.Duration) Option { return ofSession(func(o *options) { o.Safety = d }) }

// on() returns an option that sets a function. The client calls the function for each event of one kind.
func on(kind EventKind, f func(Event)) Option {
	return WithEvents(func(ev Event) {
		if ev.Kind == kind {
			f(ev)
		}
	})
}

// join() combines several options into one.
func join(opts ...Option) Option {
	return func(o *options) {
		for _, set := range opts {
			set(o)
		}
	}
}

func dialTo(t testing.TB, servers string, opts ...Option) *Client {
	t.Helper()
	if os.Getenv("ZLOCKD_CLIENT_LOG") != "" {
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		opts = append([]Option{WithLogger(log)}, opts...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := Dial(ctx, servers, opts...)
	must.OK(t, err, "dial %s", servers)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

// dial connects to the shared server.
func dial(t testing.TB, opts ...Option) *Client {
	t.Helper()
	return dialTo(t, addr(t), steady(opts...)...)
}

// proxied connects through a new proxy.
func proxied(t testing.TB, opts ...Option) (*Client, *faultproxy.Proxy) {
	t.Helper()
	p := newProxy(t, addr(t))
	return dialTo(t, p.Addr(), steady(opts...)...), p
}

func newProxy(t testing.TB, target string) *faultproxy.Proxy {
	t.Helper()
	p := must.Get(faultproxy.New(target))(t)
	t.Cleanup(p.Close)
	return p
}

// expire() ends the latest session that came through the proxy.
func expire(t testing.TB, p *faultproxy.Proxy) {
	t.Helper()
	// On a busy machine the client may be reconnecting at this moment. Then its handshake may keep the session
	// alive, so ask until the session has ended.
	eventually(t, "the session to end", func() bool {
		err := p.ExpireSession()
		if err != nil {
			t.Logf("expire: %v", err)
		}
		return err == nil
	})
}

// observer() returns a plain connection, through which a test looks at the nodes of the client.
func observer(t testing.TB) *zk.Conn { return observerTo(t, addr(t)) }

func observerTo(t testing.TB, servers string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(strings.Split(servers, ","), 30*time.Second, zk.WithLogger(quiet{}),
		zk.WithLogInfo(false))
	must.OK(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	// Until the observer has a session, its requests fail at once. It may try more than once to connect.
	for soon(t, "a session of the observer", events).State != zk.StateHasSession {
	}
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// names() lists a directory. A directory that does not exist counts as empty.
func names(t testing.TB, o *zk.Conn, dir string) []string {
	t.Helper()
	var l []string
	eventually(t, "a list of "+dir, func() bool {
		_, err := o.Sync(dir)
		if err == nil {
			l, _, err = o.Children(dir)
		}
		if errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrConnectionClosed) {
			return false // the observer connects again
		}
		must.That(t, err == nil || errors.Is(err, zk.ErrNoNode), "%v", err)
		return true
	})
	return l
}

// wantErr ends the test unless err is `want`.
func wantErr(t testing.TB, err, want error) {
	t.Helper()
	must.Is(t, err, want)
}

// errOf drops the result of a call and returns only its error.
func errOf[T any](_ T, err error) error { return err }

// lostFor ends the test unless err says that the lease was lost for this reason.
func lostFor(t testing.TB, err error, why LostReason) {
	t.Helper()
	var lost *LostError
	must.That(t, errors.As(err, &lost), "got the error %v, want the loss because of %v", err, why)
	must.Equal(t, lost.Reason, why, "the reason of the loss")
}

// shared() starts the shared server. When the test ends, it looks for goroutines that the test left.
func shared(t testing.TB) {
	t.Helper()
	addr(t)
	leakCheck(t)
}

// eventually() waits for a condition.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	must.Await(t, what, patience, f)
}

// soon() waits for a channel.
func soon[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

// not() ends the test if the channel delivers a value within the time d. The text `what` names the event that
// must not happen.
func not[T any](t testing.TB, what string, ch <-chan T, d time.Duration) {
	t.Helper()
	select {
	case <-ch:
		t.Fatalf("must not happen: %s", what)
	case <-time.After(d):
	}
}

// granting is a running call that asks for a lock.
type granting struct {
	lease chan *Lease
	err   chan error
}

// start() calls `lock` in a goroutine.
func start(ctx context.Context, lock taker, opts ...Option) granting {
	g := granting{make(chan *Lease, 1), make(chan error, 1)}
	go func() {
		l, err := lock(ctx, opts...)
		if err != nil {
			g.err <- err
			return
		}
		g.lease <- l
	}()
	return g
}

// wait() waits for the grant.
func (g granting) wait(t testing.TB) *Lease {
	t.Helper()
	select {
	case l := <-g.lease:
		return l
	case err := <-g.err:
		t.Fatalf("lock: %v", err)
	case <-time.After(patience):
		t.Fatal("lock not granted")
	}
	panic("unreachable")
}

// fails() waits for the error.
func (g granting) fails(t testing.TB) error {
	t.Helper()
	select {
	case <-g.lease:
		t.Fatal("lock granted, want an error")
	case err := <-g.err:
		return err
	case <-time.After(patience):
		t.Fatal("lock call did not end")
	}
	panic("unreachable")
}

// pending() reports whether the call is still waiting.
func (g granting) pending() bool { return len(g.lease) == 0 && len(g.err) == 0 }

// lock() takes a lock, and ends the test if the lock is not granted.
func lock(t testing.TB, f taker, opts ...Option) *Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return must.Get(f(ctx, opts...))(t)
}

// reason() returns why the lease was lost, or 0 if it was not lost.
func (l *Lease) reason() LostReason {
	if lost, ok := errors.AsType[*LostError](l.Err()); ok {
		return lost.Reason
	}
	return 0
}

// unlock() gives back a lock, and ends the test if the lock is not held.
func unlock(t testing.TB, l *Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must.OK(t, l.Unlock(ctx), "unlock")
}

// queued() waits until n contenders are in dir.
func queued(t testing.TB, o *zk.Conn, dir string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d nodes in %s", n, dir), func() bool { return len(names(t, o, dir)) == n })
}

func envSet(name string) bool { return os.Getenv(name) != "" }

// exists() reports whether there is a node at the path.
func exists(t testing.TB, o *zk.Conn, path string) bool {
	t.Helper()
	ok, _ := must.Get2(o.Exists(path))(t)
	return ok
}

// removeDir removes an empty directory, or finds it removed.
func removeDir(t testing.TB, o *zk.Conn, path string) {
	t.Helper()
	err := o.Delete(path, -1)
	must.That(t, err == nil || errors.Is(err, zk.ErrNoNode), "%v", err)
}

// newNodeID returns a fresh id of a session.
func newNodeID(sid int64) recipe.ID { return recipe.NewID(sid, rand.Uint64()) }

const ownWatch = hold.OwnWatch
