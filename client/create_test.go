package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// contenderCreate matches the creation of a contender's node.
func contenderCreate(f faultproxy.Frame) bool {
	return f.Op == faultproxy.OpCreate2 && strings.Contains(f.Path, "lock-")
}

// madeBy returns the session of the only node in d.
func madeBy(t testing.TB, o *zk.Conn, d string) int64 {
	t.Helper()
	n := names(t, o, d)
	must.Equal(t, len(n), 1, "nodes %v", n)
	_, st := must.Get2(o.Get(d + "/" + n[0]))(t)
	return st.EphemeralOwner
}

func TestE07CreateReplyLost(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]faultproxy.Action{"reply dropped": faultproxy.Drop,
		"connection cut": faultproxy.CutBefore} {
		t.Run(name, func(t *testing.T) {
			addr(t)
			leakCheck(t)
			o, d := observer(t), dir(t)
			c, p := proxied(t)
			session := c.Session().ID
			p.Record()
			r := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Match: func(f faultproxy.Frame) bool {
				return contenderCreate(f) && f.Err == 0
			}, Nth: 1, Do: do})
			l := lock(t, c.Mutex(d).Lock)
			soon(t, "the reply was lost", r.Acted())
			must.Equal(t, madeBy(t, o, d), session, "the session that made the node")
			must.Equal(t, c.Session().ID, session, "the session now")
			made := p.Count(func(f faultproxy.Frame) bool {
				return f.Kind == faultproxy.Request && contenderCreate(f) && f.Under(d)
			})
			expect.Equal(t, c.keeper.Recovered(), 1, "recovered")
			expect.That(t, made <= 2, "%d creates, want 2 at most: one for the missing directory", made)
			unlock(t, l)
			queued(t, o, d, 0)
		})
	}
}

func TestE08CreateCommitsAfterTheReattach(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	unlock(t, lock(t, c.Mutex(d).Lock))
	// The old server accepted the create request. When the client attaches to the new server, that server has
	// not applied the request yet. When it answers a sync, it has applied the request.
	stash := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Match: contenderCreate, Nth: 1,
		Do: faultproxy.Stash})
	late := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpSync, Under: d, Nth: 1,
		Do: faultproxy.Unstash})
	l := lock(t, c.Mutex(d).Lock)
	soon(t, "stash", stash.Acted())
	soon(t, "late commit", late.Acted())
	if madeBy(t, o, d); c.keeper.Recovered() != 1 {
		t.Fatalf("recovered %d", c.keeper.Recovered())
	}
	unlock(t, l)
	queued(t, o, d, 0)
}

func TestE09CreateReplyLostAndSessionExpired(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	session := c.Session().ID
	unlock(t, lock(t, c.Mutex(d).Lock))
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Match: contenderCreate, Nth: 1, Do: faultproxy.CutBefore,
		Then: func() { p.Refuse(true) }})
	g := start(testCtx(t), c.Mutex(d).Lock)
	soon(t, "the reply was lost", r.Acted())
	old := names(t, o, d)
	must.Equal(t, len(old), 1, "nodes %v", old)
	expire(t, p)
	p.Refuse(false)
	l := g.wait(t)
	s := madeBy(t, o, d)
	must.That(t, s != session, "the node is of the session 0x%x, which has expired", s)
	must.That(t, recipe.Base(l.Node()) != old[0], "the node is %s, of the session that has expired", l.Node())
	unlock(t, l)
	queued(t, o, d, 0)
}

func TestE11QueuedCreateSlipsIntoTheNextSession(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	session := c.Session().ID
	unlock(t, lock(t, c.Mutex(d).Lock))
	p.Refuse(true)
	p.Cut()
	eventually(t, "the connection to be gone", func() bool { return c.State() == StateSuspended })
	calls := make([]granting, 20) // their create requests wait for a connection
	for i := range calls {
		calls[i] = start(testCtx(t), c.Mutex(d, WithOwnPlace()).Lock)
	}
	eventually(t, "the creates to be under way", func() bool {
		// Act as if the client had not heard yet that the connection is lost.
		c.keeper.PretendAttached()
		return c.keeper.Conn().Pending() >= len(calls)
	})
	expire(t, p)
	p.Refuse(false)
	for range calls {
		var l *Lease
		eventually(t, "one to be granted", func() bool {
			for _, g := range calls {
				select {
				case l = <-g.lease:
					return true
				default:
				}
			}
			return false
		})
		if id, _ := findID(l.Node()); true {
			s, ours := sessionOf(id)
			must.That(t, ours, "holds by %s, which is not its own", l.Node())
			must.That(t, s != session, "holds by the session 0x%x, which has expired", s)
		}
		unlock(t, l)
	}
	queued(t, o, d, 0)
}

// TestE12 ends the context at every moment of an attempt.
func TestE12ContextEnds(t *testing.T) {
	t.Parallel()
	shared(t)
	n := rounds(1000, 50)
	o := observer(t)
	prompt := func(t *testing.T, g granting, cancel func()) *Lease {
		t.Helper()
		at := time.Now()
		cancel()
		var l *Lease
		select {
		case err := <-g.err:
			must.Is(t, err, context.Canceled)
		case l = <-g.lease:
		case <-time.After(patience):
			t.Fatal("the call did not end")
		}
		took := time.Since(at) // within the 10 s below, only cancel() can end the call
		must.That(t, took <= 10*time.Second, "returned after %v", took)
		return l
	}
	t.Run("before create", func(t *testing.T) {
		d := dir(t)
		c, p := proxied(t)
		p.Refuse(true)
		p.Cut()
		eventually(t, "the connection to be gone", func() bool { return c.State() != StateReady })
		for range n {
			ctx, cancel := context.WithCancel(context.Background())
			if l := prompt(t, start(ctx, c.Mutex(d).Lock), cancel); l != nil {
				t.Fatal("granted")
			}
		}
		p.Refuse(false)
		eventually(t, "the connection to be back", func() bool { return c.State() == StateReady })
		queued(t, o, d, 0)
	})
	t.Run("in flight", func(t *testing.T) {
		d := dir(t)
		c, p := proxied(t, WithSessionTimeout(40*time.Second))
		unlock(t, lock(t, c.Mutex(d).Lock))
		for range n {
			r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Match: contenderCreate, Nth: 1, Do: faultproxy.Hold})
			ctx, cancel := context.WithCancel(context.Background())
			g := start(ctx, c.Mutex(d).Lock)
			soon(t, "the create", r.Acted())
			if l := prompt(t, g, cancel); l != nil {
				t.Fatal("granted")
			}
			r.Remove()
		}
		queued(t, o, d, 0)
	})
	t.Run("while waiting", func(t *testing.T) {
		d := dir(t)
		c := dial(t)
		h := lock(t, dial(t).Mutex(d).Lock)
		for range n {
			ctx, cancel := context.WithCancel(context.Background())
			in := make(chan struct{}, 1)
			g := start(ctx, c.Mutex(d, on(EventQueued, func(Event) { in <- struct{}{} })).Lock)
			soon(t, "the place in the queue", in)
			if l := prompt(t, g, cancel); l != nil {
				t.Fatal("granted")
			}
		}
		queued(t, o, d, 1)
		unlock(t, h)
	})
	t.Run("at the instant of grant", func(t *testing.T) {
		d := dir(t)
		a, b := dial(t), dial(t)
		for range n {
			h := lock(t, a.Mutex(d).Lock)
			ctx, cancel := context.WithCancel(context.Background())
			in := make(chan struct{}, 1)
			g := start(ctx, b.Mutex(d, on(EventQueued, func(Event) { in <- struct{}{} })).Lock)
			soon(t, "the place in the queue", in)
			go h.Unlock(context.Background())
			if l := prompt(t, g, cancel); l != nil {
				l.Unlock(testCtx(t))
			}
		}
		queued(t, o, d, 0)
	})
}

func TestE13ContextEndedBeforeTheCall(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	c, p := proxied(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.Record()
	for _, f := range []taker{
		c.Mutex(d).Lock, c.Mutex(d).TryLock, c.RWMutex(d).Lock, c.RWMutex(d).RLock,
		c.RWMutex(d, WithPolicy(PolicyFair)).Lock, c.RWMutex(d, WithPolicy(PolicyReader)).RLock,
		func(ctx context.Context, o ...Option) (*Lease, error) {
			return c.Semaphore(d, 2).Acquire(ctx, 1, o...)
		},
		func(ctx context.Context, o ...Option) (*Lease, error) {
			return c.All(ctx, c.Mutex(d).Request(o...))
		},
	} {
		l, err := f(ctx)
		must.That(t, l == nil, "a call that was cancelled returns the lease %v", l)
		must.Is(t, err, context.Canceled)
	}
	if n := p.Count(func(f faultproxy.Frame) bool {
		return f.Kind == faultproxy.Request &&
			!f.Background()
	}); n != 0 {
		t.Fatalf("%d requests", n)
	}
}

func TestE14DeleteReplyLostOnUnlock(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	for _, do := range []faultproxy.Action{faultproxy.Drop, faultproxy.CutBefore} {
		// Only a missed heartbeat shows the client that the reply is lost, so the timeout is short.
		c, p := proxied(t, WithSessionTimeout(8*time.Second))
		l := lock(t, c.Mutex(d).Lock)
		next := start(testCtx(t), dial(t).Mutex(d).Lock)
		queued(t, o, d, 2)
		p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpDelete, Nth: 1, Do: do})
		must.OK(t, l.Unlock(testCtx(t)))
		unlock(t, next.wait(t))
	}
	// The delete request does not reach the server, and Unlock does not wait for an answer.
	c, p := proxied(t)
	l := lock(t, c.Mutex(d).Lock)
	p.Refuse(true)
	p.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := l.Unlock(ctx)
	must.Is(t, err, ErrReleasePending)
	must.Is(t, err, context.DeadlineExceeded)
	must.Equal(t, len(names(t, o, d)), 1, "nodes")
	p.Refuse(false)
	queued(t, o, d, 0)
}

func TestE15LateDeleteDoesNotHitANewerAttempt(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	m := c.Mutex(d)
	for range 10 {
		l := lock(t, m.Lock)
		// The proxy passes the first delete on and then closes the connection, so the reaper deletes the node
		// again.
		r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpDelete,
			Match: func(f faultproxy.Frame) bool { return f.Path == l.Node() }, Nth: 1, Do: faultproxy.CutAfter})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err := l.Unlock(ctx)
		must.That(t, err == nil || errors.Is(err, ErrReleasePending), "%v", err)
		l2 := lock(t, m.Lock)
		must.That(t, l2.Node() != l.Node(), "the node was used again")
		eventually(t, "the reaper to be done", func() bool { return c.keeper.Pending() == 0 })
		must.OK(t, l2.Check(testCtx(t)))
		r.Remove()
		unlock(t, l2)
	}
	queued(t, o, d, 0)
}

func TestE28DirectoryNotCreatable(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	unlock(t, lock(t, c.Mutex(d+"/x").Lock))
	closed := d + "/closed"
	must.OK(t, errOf(o.Create(closed, nil, 0, zk.WorldACL(zk.PermRead))))
	p.Record()
	wantErr(t, errOf(c.Mutex(closed+"/a/b").Lock(testCtx(t))), ErrNoAuth)
	wantErr(t, errOf(c.Mutex(closed).Lock(testCtx(t))), ErrNoAuth)
	n := under(p, closed, 0)
	must.That(t, n <= 8, "%d requests: a loop", n)
}

func TestE30DeleteOfTheOwnNodeRefused(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c := dial(t)
	unlock(t, lock(t, c.Mutex(d+"/x").Lock))
	sticky := d + "/sticky"
	must.OK(t, errOf(o.Create(sticky, nil, 0, zk.WorldACL(zk.PermAll&^zk.PermDelete))))
	l := lock(t, c.Mutex(sticky).Lock)
	wantErr(t, l.Unlock(testCtx(t)), ErrNoAuth)
	must.That(t, !l.Valid(), "the lease is valid")
	must.Is(t, l.Err(), ErrNotHeld, "the lease")
	eventually(t, "the reaper to give up", func() bool { return c.keeper.Pending() == 0 })
	must.Equal(t, len(names(t, o, sticky)), 1, "nodes")
	must.OK(t, c.Close(testCtx(t)))
	queued(t, o, sticky, 0)
}
