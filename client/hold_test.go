package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	czk "github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

func TestE40TwoGoroutinesOneMutex(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	m := c.Mutex(d)
	h := lock(t, m.Lock)
	const n = 5
	order := make(chan int, n)
	for i := range n {
		g := start(testCtx(t), m.Lock)
		eventually(t, "its place in the local queue", func() bool {
			return c.take.WaitHere(LayoutCurator, d) == i+1
		})
		go func() {
			l := <-g.lease
			order <- i
			l.Unlock(context.Background())
		}()
	}
	must.Equal(t, len(names(t, o, d)), 1, "nodes for one client")
	must.That(t, h.Valid(), "holder disturbed")
	unlock(t, h)
	for i := range n {
		must.Equal(t, soon(t, "the next", order), i, "before")
	}
	queued(t, o, d, 0)
}

func TestE41SameLineageLocksTwice(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	o, d := observer(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	p.Record()
	wantErr(t, errOf(c.Mutex(d).Lock(l.Context())), ErrSelfDeadlock)
	n := p.Count(func(f faultproxy.Frame) bool { return f.Kind == faultproxy.Request && contenderCreate(f) })
	must.Equal(t, n, 0, "places in the queue behind itself")
	err := expect.Err(c.Mutex(d).TryLock(l.Context()))
	must.Is(t, err, ErrSelfDeadlock)
	must.Is(t, err, ErrNotAcquired)
	again := c.Mutex(d, WithReentrant())
	l2, l3 := must.Get(again.Lock(l.Context()))(t), must.Get(again.TryLock(l.Context()))(t)
	must.Equal(t, l2.Token(), l.Token(), "token of a nested lease")
	must.Equal(t, l2.Node(), l.Node(), "node of a nested lease")
	must.Equal(t, len(names(t, o, d)), 1, "nodes")
	unlock(t, l)
	must.OK(t, l2.Err(), "the last lease")
	must.Equal(t, len(names(t, o, d)), 1, "nodes before the last lease ends")
	unlock(t, l3)
	unlock(t, l2)
	queued(t, o, d, 0)
	err = expect.Err(c.Mutex(d).Lock(l.Context()))
	must.Fails(t, err, "a lock by the context that ended with its lease")
	must.That(t, !errors.Is(err, ErrSelfDeadlock), "the context ended with its lease, and yet: %v", err)

	// A read lease can be nested in a write lease. An unlock of the write lease downgrades the hold.
	rw := c.RWMutex(d+"/rw", WithReentrant())
	w := lock(t, rw.Lock)
	r := must.Get(rw.RLock(w.Context()))(t)
	unlock(t, w)
	other := lock(t, dial(t).RWMutex(d+"/rw").RLock) // another reader gets the lock, too
	must.OK(t, r.Err(), "the reader's lease")
	must.Equal(t, r.Mode(), fence.Shared)
	must.Is(t, expect.Err(rw.Lock(r.Context())), ErrSelfDeadlock, "read then write")
	unlock(t, other)
	unlock(t, r)
	queued(t, o, d+"/rw", 0)
}

func TestE56CloseWhileHoldingWaitingAndCreating(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	h := lock(t, c.Mutex(d+"/h").Lock)
	rival := lock(t, dial(t).Mutex(d+"/w").Lock)
	waiting := start(testCtx(t), c.Mutex(d+"/w").Lock)
	queued(t, o, d+"/w", 2)
	local := start(testCtx(t), c.Mutex(d+"/w").Lock)
	sem := start(testCtx(t), func(ctx context.Context, o ...Option) (*Lease, error) {
		return c.Semaphore(d+"/s", 1).Acquire(ctx, 1, o...)
	})
	held := sem.wait(t)
	sem = start(testCtx(t), func(ctx context.Context, o ...Option) (*Lease, error) {
		return c.Semaphore(d+"/s", 1).Acquire(ctx, 1, o...)
	})
	queued(t, o, d+"/s/locks", 1)
	obs := c.Election(d + "/e").Observe(context.Background())
	soon(t, "an observation", obs)
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Match: func(f faultproxy.Frame) bool {
		return contenderCreate(f) && f.Under(d+"/c")
	}, Do: faultproxy.Hold})
	creating := start(testCtx(t), c.Mutex(d+"/c").Lock)
	soon(t, "the create", r.Acted())
	closed := make(chan error, 1)
	go func() { closed <- c.Close(testCtx(t)) }()
	for _, g := range []granting{waiting, local, sem, creating} {
		wantErr(t, g.fails(t), ErrClosed)
	}
	for _, l := range []*Lease{h, held} {
		soon(t, "the loss", l.Lost())
		lostFor(t, l.Unlock(testCtx(t)), Closed)
	}
	r.Release()
	must.OK(t, soon(t, "Close", closed))
	for range obs {
	}
	_, err := c.Mutex(d).Lock(testCtx(t))
	must.Is(t, err, ErrClosed)
	must.Equal(t, c.State(), StateClosed)
	for path, n := range map[string]int{"/h": 0, "/w": 1, "/c": 0, "/s/leases": 0, "/s/locks": 0} {
		queued(t, o, d+path, n)
	}
	must.OK(t, c.Close(testCtx(t)))
	unlock(t, rival)
}

func TestE57CallbackPanics(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	func() {
		defer func() {
			must.Equal(t, recover(), "oops", "recovered")
		}()
		c.Mutex(d).Do(testCtx(t), func(ctx context.Context, l *Lease) error { panic("oops") })
	}()
	queued(t, o, d, 0)
	oops := errors.New("oops")
	must.Equal(t, c.RWMutex(d).RDo(testCtx(t), func(context.Context, *Lease) error { return oops }), oops)
	err := c.RWMutex(d).Do(testCtx(t), func(ctx context.Context, l *Lease) error {
		remove(t, o, l.Node())
		<-ctx.Done()
		return nil
	})
	must.Is(t, err, ErrLost, "lost")
	must.OK(t, c.Semaphore(d+"/s", 1).Do(testCtx(t), 1, func(context.Context, *Lease) error { return nil }))
}

// A leader whose node may not be read is reported as an error, not as a leader without a name.
func TestLeaderThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	l := must.Get(dial(t).Election(d).Campaign(testCtx(t), []byte("first")))(t)
	_, err := observer(t).SetACL(l.Node(), zk.DigestACL(zk.PermAll, "some", "body"), -1)
	must.OK(t, err)
	leader, err := dial(t).Election(d).Leader(testCtx(t))
	expect.That(t, errors.Is(err, czk.ErrNoAuth), "%+v, %v", leader, err)
}

func TestE61LockDelay(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	a, pa := proxied(t)
	b := dial(t)
	const delay = 2 * time.Second
	opt, long := WithLockDelay(delay), WithLockDelay(time.Hour)
	// After a clean unlock, the next contender gets the lock at once.
	unlock(t, lock(t, a.Mutex(d, long).Lock))
	unlock(t, lock(t, b.Mutex(d, long).Lock))
	unlock(t, lock(t, b.RWMutex(d, long).RLock))
	// After an unclean end, the lock is granted only after the delay. After a clean end there is no delay.
	l := lock(t, a.Mutex(d, opt).Lock)
	g := start(testCtx(t), b.Mutex(d, opt).Lock)
	queued(t, o, d, 2)
	at := time.Now()
	expire(t, pa)
	l2 := g.wait(t)
	took := time.Since(at)
	must.That(t, took >= delay, "granted %v after the holder's end", took)
	soon(t, "the loss", l.Lost())
	l.Unlock(testCtx(t))
	unlock(t, l2)
	unlock(t, lock(t, b.Mutex(d, long).Lock))
}

// The delay counts from the loss. A TryLock, or a wait that ends, does not restart the delay. After the delay
// a TryLock gets the lock.
func TestLockDelayCountsFromTheLoss(t *testing.T) {
	t.Parallel()
	shared(t)
	const delay = time.Second
	for name, x := range map[string]struct {
		opts []Option
		take func(*RWMutex) taker
	}{
		"try to write":        {nil, func(m *RWMutex) taker { return m.TryLock }},
		"try to read":         {nil, func(m *RWMutex) taker { return m.TryRLock }},
		"short waits":         {[]Option{WithWait(delay / 4)}, func(m *RWMutex) taker { return m.Lock }},
		"short waits to read": {[]Option{WithWait(delay / 4)}, func(m *RWMutex) taker { return m.RLock }},
		"policy, try to write": {[]Option{WithPolicy(PolicyFair)},
			func(m *RWMutex) taker { return m.TryLock }},
		"policy, try to read": {[]Option{WithPolicy(PolicyFair)},
			func(m *RWMutex) taker { return m.TryRLock }},
		"policy, readers first": {[]Option{WithPolicy(PolicyReader)},
			func(m *RWMutex) taker { return m.TryRLock }},
		"policy, short waits": {[]Option{WithPolicy(PolicyFair), WithWait(delay / 4)},
			func(m *RWMutex) taker { return m.Lock }},
		"policy, short for reads": {[]Option{WithPolicy(PolicyFair), WithWait(delay / 4)},
			func(m *RWMutex) taker { return m.RLock }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, opts := dir(t), append(x.opts, WithLockDelay(delay))
			dying, p := proxied(t)
			l := lock(t, dying.RWMutex(d, opts...).Lock)
			died := time.Now()
			expire(t, p)
			soon(t, "the loss", l.Lost())
			f, tries := x.take(dial(t).RWMutex(d, opts...)), 0
			granted := func(opts ...Option) (got *Lease) {
				eventually(t, "a grant", func() bool {
					tries++
					l, err := f(testCtx(t), opts...)
					if err != nil {
						must.Is(t, err, ErrNotAcquired)
					}
					got = l
					return err == nil
				})
				return got
			}
			got := granted()
			expect.That(t, time.Since(died) >= delay, "granted %v after the loss", time.Since(died))
			expect.That(t, tries > 1, "%d tries", tries)
			unlock(t, got)
			unlock(t, granted(WithLockDelay(time.Hour))) // no delay: the dead holder's mark is gone
		})
	}
}

// A reader that may not write the lock's directory cannot mark the dead holder, so its client remembers when it
// found the loss. Tries and short waits get the lock after the delay all the same.
func TestLockDelayOfReadersWithoutTheRightToWrite(t *testing.T) {
	t.Parallel()
	shared(t)
	const delay = time.Second
	for name, take := range map[string]func(m *RWMutex) taker{
		"try":         func(m *RWMutex) taker { return m.TryRLock },
		"short waits": func(m *RWMutex) taker { return m.RLock },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, o := "/"+strings.ReplaceAll(dir(t)[1:], "/", "-"), observer(t) // o makes no parents
			acl := append(zk.DigestACL(zk.PermAll, "own", "er"),
				zk.ACL{Perms: zk.PermRead | zk.PermCreate | zk.PermDelete, Scheme: "world", ID: "anyone"})
			must.Get(o.Create(d, nil, 0, acl))(t)
			dying, p := proxied(t, WithAuth("digest", "own:er"))
			l := lock(t, dying.RWMutex(d, WithLockDelay(delay)).Lock)
			died := time.Now()
			expire(t, p)
			soon(t, "the loss", l.Lost())
			f, tries := take(dial(t).RWMutex(d, WithLockDelay(delay))), 0
			eventually(t, "a grant", func() bool {
				tries++
				got, err := f(testCtx(t), WithWait(delay/4))
				if err != nil {
					must.Is(t, err, ErrNotAcquired)
					return false
				}
				expect.That(t, time.Since(died) >= delay, "granted %v after the loss", time.Since(died))
				unlock(t, got)
				return true
			})
			expect.That(t, tries > 1, "%d tries", tries)
		})
	}
}

// After a writer has died, only the first reader waits for the lock delay. Later readers need not wait.
func TestLockDelayIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	a, pa := proxied(t)
	b := dial(t)
	l := lock(t, a.RWMutex(d, WithLockDelay(time.Millisecond)).Lock)
	expire(t, pa)
	soon(t, "the loss", l.Lost())
	first := lock(t, b.RWMutex(d, WithLockDelay(time.Millisecond)).RLock)
	unlock(t, lock(t, b.RWMutex(d, WithLockDelay(time.Hour)).RLock))
	unlock(t, first)
	unlock(t, lock(t, b.RWMutex(d, WithLockDelay(time.Hour)).Lock))
	queued(t, o, d, 0)
}

// If a directory has data of another program, the client does not write the mark of a lock delay over them.
func TestLockDelayLeavesDataOfOthersAlone(t *testing.T) {
	t.Parallel()
	shared(t)
	ctx, o := testCtx(t), observer(t)
	c, p := proxied(t)
	data := func(d string) string {
		t.Helper()
		b, _, err := o.Get(d)
		must.OK(t, err)
		return string(b)
	}
	write := func(d string) { must.Get(o.Set(d, []byte("other"), -1))(t) }
	// Another program writes the data of the directory before the client writes its mark.
	d := dir(t)
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpSetData, Under: d, Nth: 1,
		Then: func() { write(d) }})
	_, err := c.Mutex(d, WithLockDelay(time.Nanosecond)).Lock(ctx)
	wantErr(t, err, ErrUnsupported)
	r.Remove()
	expect.Equal(t, data(d), "other", "data")
	queued(t, o, d, 0)
	// Another program writes the data of the directory while the lock is held. The client can still unlock and
	// downgrade.
	d = dir(t)
	l := lock(t, c.Mutex(d, WithLockDelay(time.Nanosecond)).Lock)
	write(d)
	unlock(t, l)
	expect.Equal(t, data(d), "other", "data")
	queued(t, o, d, 0)
	d = dir(t)
	l = lock(t, c.RWMutex(d, WithLockDelay(time.Nanosecond)).Lock)
	write(d)
	must.OK(t, l.Downgrade(ctx))
	expect.Equal(t, data(d), "other", "data")
	unlock(t, l)
	queued(t, o, d, 0)
}

func TestTxnHappensOnlyWhileTheLeaseIsHeld(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	l := lock(t, c.RWMutex(d).Lock)
	write := czk.SetData{Path: d, Data: []byte("x"), Version: -1}
	res, err := l.Txn(ctx, write, czk.Create{Path: d + "/made"}, czk.Delete{Path: d + "/made", Version: -1})
	must.OK(t, err)
	must.Equal(t, len(res), 3, "results")
	must.Equal(t, res[0].Stat.Version, 1, "version of what was written")
	must.Equal(t, res[1].Path, d+"/made")
	var refused *czk.MultiError
	_, err = l.Txn(ctx, write, czk.Delete{Path: d + "/none", Version: -1})
	must.Is(t, err, czk.ErrNoNode)
	must.That(t, errors.As(err, &refused), "%v does not say which operation", err)
	must.Equal(t, refused.Index, 1, "the operation")
	must.OK(t, l.Err(), "the lease")
	must.OK(t, l.Downgrade(ctx))
	must.OK(t, errOf(l.Txn(ctx, write)))
	version := func() int32 {
		_, st := must.Get2(o.Get(d))(t)
		return st.Version
	}
	must.Equal(t, version(), 2, "version")
	unlock(t, l)
	wantErr(t, errOf(l.Txn(ctx, write)), ErrNotHeld)
	// The node is gone, and the client does not know it yet. The server refuses the transaction.
	p, proxy := proxied(t)
	l = lock(t, p.Mutex(d).Lock)
	proxy.Add(faultproxy.Rule{Kind: faultproxy.Event, Under: d, Do: faultproxy.Drop})
	remove(t, o, l.Node())
	wantErr(t, errOf(l.Txn(ctx, write)), ErrLost)
	must.Equal(t, version(), 2, "version")
	l.Unlock(ctx)
}

func TestEventsTellTheLifeOfALock(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	var mu sync.Mutex
	var told []string
	c := dial(t, WithEvents(func(ev Event) {
		if ev.Path == d {
			mu.Lock()
			told = append(told, ev.Kind.String())
			mu.Unlock()
		}
	}))
	unlock(t, lock(t, c.Mutex(d).Lock))
	eventually(t, "the events", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(told, []string{"queued", "granted", "released"})
	})
}
