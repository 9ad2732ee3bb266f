package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	czk "github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

func TestE31Chroot(t *testing.T) {
	t.Parallel()
	shared(t)
	o, root := observer(t), dir(t)
	// When the first client connects, its chroot does not exist; when the second connects, it does.
	a := dialTo(t, addr(t)+root+"/deep", steady()...)
	n := names(t, o, root)
	must.That(t, n == nil, "made too early: %v", n)
	l := lock(t, a.Mutex("/m").Lock)
	must.Equal(t, l.Path(), "/m")
	must.That(t, exists(t, o, root+"/deep"+l.Node()), "no node %s", root+"/deep"+l.Node())
	b := dialTo(t, addr(t)+root+"/deep/", steady()...)
	g := start(testCtx(t), b.Mutex("/m").Lock)
	queued(t, o, root+"/deep/m", 2)
	q := must.Get(b.Inspector().Inspect(testCtx(t), "/m"))(t)
	must.Equal(t, len(q.Holders), 1, "holders")
	must.Equal(t, len(q.Waiters), 1, "waiters")
	must.Equal(t, q.Holders[0].Token, int64(l.Token()))
	must.OK(t, b.CheckSequencer(testCtx(t), l.Sequencer()))
	must.OK(t, expect.Err(l.Txn(testCtx(t), czk.Check{Path: "/m", Version: -1})), "transaction")
	unlock(t, l)
	unlock(t, g.wait(t)) // the waiter got its event, whose path is without the chroot
	set := must.Get(a.All(testCtx(t), a.Mutex("/x").Request(), a.Mutex("/y").Request()))(t)
	unlock(t, set)
	var found int
	must.OK(t, a.Inspector().Walk(testCtx(t), "/", -1, func(*recipe.Queue) error { found++; return nil }))
	removeDir(t, o, root+"/deep/m") // the client is idle, so this must not matter
	unlock(t, lock(t, a.Mutex("/m").Lock))
}

// ensemble() starts servers that no other test uses.
func ensemble(t *testing.T, n int) *cluster.Ensemble {
	t.Helper()
	e := must.Get(cluster.Start(launchOptions(n)))(t)
	t.Cleanup(e.Close)
	return e
}

func TestE32NoQuorum(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three servers")
	}
	e := ensemble(t, 3)
	leakCheck(t)
	c := dialTo(t, e.Servers[0].Client, WithSessionTimeout(20*time.Second))
	l := lock(t, c.Mutex("/held").Lock)
	e.Servers[1].Kill()
	e.Servers[2].Kill()
	eventually(t, "the client to be suspended", func() bool { return c.State() == StateSuspended })
	for _, f := range []taker{c.Mutex("/m").Lock, c.Mutex("/m").TryLock} {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		if l, err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v %v", l, err)
		}
		cancel()
	}
	g := start(testCtx(t), c.Mutex("/m").Lock)
	must.That(t, g.pending(), "granted without a quorum")
	must.OK(t, e.StartAll())
	unlock(t, g.wait(t))
	l.Unlock(testCtx(t)) // the lease may be lost, because the servers take time to start
}

func TestE33LeaderChange(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts three servers")
	}
	e := ensemble(t, 3)
	leakCheck(t)
	lost := make(chan Event, 1)
	c := dialTo(t, e.Addrs(), WithSessionTimeout(30*time.Second),
		on(EventLost, func(e Event) { lost <- e }))
	l := lock(t, c.Mutex("/m").Lock)
	token := l.Token()
	for range rounds(20, 2) {
		var leader *cluster.Server
		eventually(t, "a leader", func() bool { leader = e.Leader(); return leader != nil })
		leader.Kill()
		must.OK(t, l.Check(testCtx(t)))
		must.OK(t, e.StartAll())
		must.OK(t, l.Err(), "the lease")
		must.Equal(t, l.Token(), token)
		must.OK(t, l.Context().Err(), "context of the lease")
	}
	select {
	case ev := <-lost:
		t.Fatalf("lost: %v", ev.Err)
	default:
	}
	unlock(t, l)
}

func TestE34NoReplyWhileTheConnectionIsOpen(t *testing.T) {
	t.Parallel()
	shared(t)
	for range 5 {
		if noReply(t) {
			return
		}
	}
	t.Fatal("the machine is too busy to hold a lock")
}

// noReply returns false if the lease was lost before the replies stopped.
func noReply(t *testing.T) bool {
	o, d := observer(t), dir(t)
	// The lease ends long before the session does, because a busy machine may report the end of the lease late.
	const timeout = 20 * time.Second
	c, p := proxied(t, WithSessionTimeout(timeout), WithMargin(11800*time.Millisecond))
	next := dial(t, WithSessionTimeout(timeout))
	l := lock(t, c.Mutex(d).Lock)
	place := make(chan Event, 8)
	var granted atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	hooks := on(EventQueued, func(ev Event) { place <- ev })
	wg.Go(func() {
		if l2, err := next.Mutex(d, hooks).Lock(testCtx(t)); err == nil {
			granted.Store(time.Now().UnixNano())
			l2.Unlock(testCtx(t))
		}
	})
	soon(t, "a place behind it", place)
	// The last confirmation of the session comes from a heartbeat that was sent before this moment.
	stopped := time.Now()
	p.Blackhole(true)
	defer p.Blackhole(false)
	if len(names(t, o, d)) < 2 {
		return false
	}
	soon(t, "the context to end", l.Context().Done())
	ended := time.Now()
	var le *LostError
	err := context.Cause(l.Context())
	must.That(t, errors.As(err, &le), "%v is no loss", err)
	must.Equal(t, le.Reason, Deadline)
	took := ended.Sub(stopped)
	must.That(t, took < timeout, "ended after %v, want less than %v", took, timeout)
	must.That(t, !l.Valid(), "valid after its end")
	g := granted.Load()
	must.That(t, g == 0 || g >= ended.UnixNano(), "granted to another before the holder was told")
	expire(t, p) // ends the session before the server itself would end it
	wg.Wait()
	must.That(t, granted.Load() != 0, "the lock was never given on")
	p.Blackhole(false)
	wantErr(t, l.Unlock(testCtx(t)), ErrLost)
	return true
}

// testClock is the machine's clock, whose times a test can move.
type testClock struct {
	real session.Clock
	mu   sync.Mutex
	boot time.Duration
	wall time.Duration
}

func newTestClock() *testClock { return &testClock{real: session.SystemClock()} }

func (c *testClock) Now() session.Reading {
	r := c.real.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Boot += c.boot
	// Remove the monotonic part of the wall time, so that only the wall time counts.
	r.Wall = r.Wall.Round(0).Add(c.wall)
	return r
}

func (c *testClock) move(boot, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot += boot
	c.wall += wall
}

func TestE36MachineSuspend(t *testing.T) {
	t.Parallel()
	shared(t)
	clock := newTestClock()
	c, d := dial(t, withClock(clock)), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	clock.move(time.Hour, 0)
	must.That(t, !l.Valid(), "valid after suspended time")
	must.That(t, !l.Until().After(clock.Now().Wall), "until %v, want no time to come", l.Until())
	soon(t, "the context to end", l.Context().Done())
	wantErr(t, l.Unlock(testCtx(t)), ErrLost)
	// The session lives on the server, so there can be a new hold as soon as the session is confirmed.
	unlock(t, lock(t, c.Mutex(d).Lock))
}

func TestE37WallClockIsSet(t *testing.T) {
	t.Parallel()
	shared(t)
	clock := newTestClock()
	c, d := dial(t, withClock(clock), WithSessionTimeout(8*time.Second)), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	clock.move(0, -24*time.Hour)
	must.That(t, l.Valid(), "a clock set back ended a lease")
	beats := c.keeper.Heartbeats()
	eventually(t, "two heartbeats", func() bool { return c.keeper.Heartbeats() >= beats+2 })
	must.That(t, l.Valid(), "a clock set back ended a lease")
	must.OK(t, l.Err())
	clock.move(0, time.Hour)
	if l.Valid() {
		t.Fatal("time set forward does not count") // it must count: an hour may really have passed
	}
	wantErr(t, l.Unlock(testCtx(t)), ErrLost)
}

func TestE38SameSessionReturnsAfterALocalLoss(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	clock := newTestClock()
	c, p := proxied(t, withClock(clock), WithSessionTimeout(40*time.Second))
	session := c.Session().ID
	l := lock(t, c.Mutex(d).Lock)
	waiting := start(testCtx(t), c.Mutex(d, WithOwnPlace()).Lock)
	queued(t, o, d, 2)
	p.Refuse(true)
	p.Cut()
	clock.move(35*time.Second, 0)
	soon(t, "the local loss", l.Lost())
	must.That(t, c.State() == StateLost || c.State() == StateSuspended, "state %v", c.State())
	queued(t, o, d, 2) // the server does not know that the lease is lost, so the node stays
	p.Refuse(false)
	next := waiting.wait(t)
	must.Equal(t, c.Session().ID, session, "the session ended")
	must.That(t, !l.Valid(), "a lost lease came back")
	must.That(t, l.Err() != nil, "a lost lease has no error")
	queued(t, o, d, 1)
	wantErr(t, l.Unlock(testCtx(t)), ErrLost)
	must.OK(t, next.Check(testCtx(t)))
	unlock(t, next)
}

func TestE39HeartbeatReplyDelayed(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t, quick()...)
	var mu sync.Mutex
	var sent time.Time
	p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpSync, Match: func(faultproxy.Frame) bool {
		mu.Lock()
		defer mu.Unlock()
		sent = time.Now()
		return false
	}})
	delay := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSync, Do: faultproxy.Delay,
		For: 500 * time.Millisecond})
	for checked := 0; checked < 3; {
		seen, beats, attached := delay.Seen(), c.keeper.Heartbeats(), c.keeper.Connections()
		eventually(t, "a delayed heartbeat", func() bool {
			return delay.Seen() > seen &&
				c.keeper.Heartbeats() > beats
		})
		until := c.Session().ValidUntil // read this before `sent`, because a later heartbeat may change both
		mu.Lock()
		at := sent
		mu.Unlock()
		if c.keeper.Connections() != attached {
			continue // the machine stalled, and the session continues on another connection
		}
		checked++
		// The validity counts from the moment when the client sent the heartbeat, which is before the proxy saw it.
		if latest := at.Add(usable(c.Session())); until.After(
			latest.Add(5 * time.Millisecond)) {
			t.Fatalf("valid until %v, heartbeat of %v allows %v", until, at, latest)
		}
	}
}

// Dial does not wait for a heartbeat, because the leader has just made the session.
func TestDialWaitsForNoHeartbeat(t *testing.T) {
	t.Parallel()
	shared(t)
	p := newProxy(t, addr(t))
	beat := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpSync, Do: faultproxy.Hold})
	defer beat.Release()
	asked := time.Now().Add(-5 * time.Millisecond) // the clocks that a client compares may differ by up to this
	// The first heartbeat is due after a third of the session timeout.
	c := dialTo(t, p.Addr(), WithSessionTimeout(40*time.Second))
	s, seen := c.Session(), time.Now()
	expect.Equal(t, c.State(), StateReady)
	expect.Equal(t, beat.Seen(), 0, "heartbeats")
	// The validity counts from the moment when the client asked for the session.
	usable := usable(s)
	first, latest := asked.Add(usable), seen.Add(usable)
	expect.That(t, !s.ValidUntil.Before(first), "valid until %v, want %v at least", s.ValidUntil, first)
	expect.That(t, !s.ValidUntil.After(latest), "valid until %v, want %v at most", s.ValidUntil, latest)
}

func TestSessionTimeoutTooShortForTheMargin(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	wantErr(t, errOf(Dial(ctx, addr(t), WithSessionTimeout(time.Second))), ErrInvalid)
}

func TestE64AddressesChangeAndServersAreDown(t *testing.T) {
	t.Parallel()
	real := addr(t)
	leakCheck(t)
	_, port := must.Get2(net.SplitHostPort(real))(t)
	dead := newProxy(t, real) // refuses from the start
	dead.Refuse(true)
	p1, p2 := newProxy(t, real), newProxy(t, real)
	var target atomic.Pointer[faultproxy.Proxy]
	target.Store(p1)
	// The name of one server moves to another address later, one name cannot be resolved, and one server is
	// dead.
	dialer := func(ctx context.Context, network, a string) (net.Conn, error) {
		if a == "moving.example:"+port {
			a = target.Load().Addr()
		}
		return (&net.Dialer{}).DialContext(ctx, network, a)
	}
	servers := fmt.Sprintf("moving.example:%s,%s,unresolvable.invalid:2181", port, dead.Addr())
	c := dialTo(t, servers, steady(WithDialer(dialer))...)
	d := dir(t)
	l := lock(t, c.Mutex(d).Lock)
	target.Store(p2)
	p1.Refuse(true)
	p1.Cut()
	must.OK(t, l.Check(testCtx(t)))
	must.That(t, p2.Connections() != 0, "the new address was not tried")
	unlock(t, l)
}

// A lease that is not valid has an error. So a program may ask either Valid or Err.
func TestErrSaysWhyALeaseIsNotValid(t *testing.T) {
	t.Parallel()
	shared(t)
	for range rounds(20, 5) {
		clock := newTestClock()
		c, p := proxied(t, withClock(clock))
		l := lock(t, c.Mutex(dir(t)).Lock)
		done := make(chan error, 1)
		go func() {
			for {
				if !l.Valid() {
					done <- l.Err()
					return
				}
			}
		}()
		if rounds(1, 0) == 0 {
			expire(t, p)
		} else {
			clock.move(time.Hour, 0)
		}
		must.Is(t, soon(t, "the loss", done), ErrLost, "invalid, but Err")
		c.Close(testCtx(t))
	}
}

// Close ends without a server when the session is over by the client's clock.
func TestCloseWithoutServersEnds(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t, quick()...)
	lock(t, c.Mutex(dir(t)).Lock)
	p.Refuse(true)
	p.Cut()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(context.Background()) }()
	expect.OK(t, soon(t, "the end of Close", closed))
}

// With the ID and the password of a session, another process can end the session.
func TestSessionIsTakenOverByItsKey(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	expect.List(t, c.Servers(), []string{p.Addr()})
	expect.Equal(t, c.State(), StateReady)
	l := lock(t, c.Mutex(d).Lock)
	key := c.keeper.Conn().Session()
	expect.Equal(t, key.ID, c.Session().ID)
	p.Refuse(true) // otherwise the client would resume the session
	p.Cut()
	heir := must.Get(czk.Dial(testCtx(t), addr(t), czk.Options{Resume: key}))(t)
	must.OK(t, heir.Close(testCtx(t)))
	queued(t, o, d, 0)
	p.Refuse(false)
	soon(t, "the loss", l.Lost())
	for state, want := range map[State]string{StateReady: "ready", StateClosed: "closed", StateClosed + 1: "unknown"} {
		expect.Equal(t, state.String(), want)
	}
}
