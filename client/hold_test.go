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
	"github.com/zlockd/zlockd/client/recipe"
	czk "github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

func TestE40TwoGoroutinesOneMutex(t *testing.T) {
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	m := c.Mutex(d)
	h := lock(t, m.Lock)
	const n = 5
	order := make(chan int, n)
	for i := range n {
		g := start(testCtx(t), m.Lock)
		key := localKey{LayoutCurator, d}
		eventually(t, "its place in the local queue", func() bool { return c.localQueues.waiting(key) == i+1 })
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
	shared(t)
	c, p := proxied(t)
	o, d := observer(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	p.Record()
	wantErr(t, errOf(c.Mutex(d).Lock(l.Context())), ErrSelfDeadlock)
	n := p.Count(func(f faultproxy.Frame) bool { return f.Kind == faultproxy.Request && contenderCreate(f) })
	must.Equal(t, n, 0, "places in the queue behind itself")
	if _, err := c.Mutex(d).TryLock(l.Context()); !errors.Is(err, ErrSelfDeadlock) ||
		!errors.Is(err, ErrNotAcquired) {
		t.Fatal(err)
	}
	again := c.Mutex(d, WithReentrant())
	l2, l3 := must.Get(again.Lock(l.Context()))(t), must.Get(again.TryLock(l.Context()))(t)
	must.That(t, l2.Token() == l.Token() && l2.Node() == l.Node() && len(names(t, o, d)) == 1,
		"a nested lease is of the same hold")
	unlock(t, l)
	must.That(t, l2.Valid() && len(names(t, o, d)) == 1, "the hold ended before the last lease")
	unlock(t, l3)
	unlock(t, l2)
	queued(t, o, d, 0)
	if _, err := c.Mutex(d).Lock(l.Context()); err == nil || errors.Is(err, ErrSelfDeadlock) {
		t.Fatalf("the context ended with its lease: %v", err)
	}

	// Read-write: write then read nests, and unlocking the write downgrades.
	rw := c.RWMutex(d+"/rw", WithReentrant())
	w := lock(t, rw.Lock)
	r := must.Get(rw.RLock(w.Context()))(t)
	unlock(t, w)
	other := lock(t, dial(t).RWMutex(d+"/rw").RLock) // readers may join
	must.That(t, r.Valid() && r.Mode() == fence.Shared, "not downgraded")
	must.Is(t, expect.Err(rw.Lock(r.Context())), ErrSelfDeadlock, "read then write")
	unlock(t, other)
	unlock(t, r)
	queued(t, o, d+"/rw", 0)
}

func TestE56CloseWhileHoldingWaitingAndCreating(t *testing.T) {
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
	must.That(t, errors.Is(err, ErrClosed) && c.State() == StateClosed, "%v", err)
	for path, n := range map[string]int{"/h": 0, "/w": 1, "/c": 0, "/s/leases": 0, "/s/locks": 0} {
		queued(t, o, d+path, n)
	}
	must.OK(t, c.Close(testCtx(t)))
	unlock(t, rival)
}

func TestE57CallbackPanics(t *testing.T) {
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

func TestE58Revocation(t *testing.T) {
	shared(t)
	c, op, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	wish := recipe.Revocation{By: "operator", Reason: "maintenance"}
	h := lock(t, c.Mutex(d).Lock)
	w := start(ctx, dial(t).Mutex(d).Lock)
	queued(t, o, d, 2)
	// A waiter leaves the queue.
	must.OK(t, op.Inspector().Revoke(ctx, d, nth(t, o, d, 1), wish))
	lostFor(t, w.fails(t), Revoked)
	queued(t, o, d, 1)
	// A holder is told once, and keeps the lock.
	for range 2 {
		must.OK(t, op.Inspector().Revoke(ctx, d, recipe.Base(h.Node()), wish))
	}
	r := soon(t, "the wish", h.Asked())
	must.That(t, r.By == "operator" && r.Reason == "maintenance", "%+v", r)
	if e := must.Get(op.Inspector().Inspect(ctx, d))(t).Holders[0]; e.Owner == nil {
		t.Fatalf("%+v", e)
	} else if r, asked := e.Asked(); !asked || r.By != "operator" {
		t.Fatalf("%+v", e)
	}
	// Curator's wish is understood, and not told a second time.
	must.OK(t, errOf(o.Set(h.Node(), []byte("__REVOKE__"), -1)))
	if err := h.Check(ctx); err != nil || len(h.Asked()) != 0 {
		t.Fatalf("%v, told %d times more", err, len(h.Asked()))
	}
	unlock(t, h)
	// A revocable holder loses the lock after the grace.
	h = lock(t, c.Mutex(d).Lock, WithRevocable(20*time.Millisecond))
	must.OK(t, errOf(o.Set(h.Node(), []byte("__REVOKE__"), -1)))
	soon(t, "the wish", h.Asked())
	soon(t, "the loss", h.Lost())
	lostFor(t, h.Unlock(ctx), Revoked)
	queued(t, o, d, 0)
	// What Curator would see of ours.
	peer, err := o.Create(d+"/_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-", []byte("10.0.0.1"),
		zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	must.OK(t, err)
	must.OK(t, op.Inspector().Revoke(ctx, d, recipe.Base(peer), wish))
	data, _, _ := o.Get(peer)
	must.Equal(t, string(data), "__REVOKE__", "data %q", data)
	wantErr(t, op.Inspector().Revoke(ctx, d, "gone", wish), ErrNotHeld)
}

func TestE60MaxHoldAndBreaking(t *testing.T) {
	shared(t)
	c, c2, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	// Held too long: the context ends, the node goes after the grace.
	l := lock(t, c.Mutex(d).Lock, WithMaxHold(30*time.Millisecond, 100*time.Millisecond))
	soon(t, "the end", l.Context().Done())
	expect.That(t, len(names(t, o, d)) == 1 || l.h.held() >= 100*time.Millisecond,
		"the grace was not observed")
	queued(t, o, d, 0)
	lostFor(t, l.Unlock(ctx), MaxHold)
	// Unlocking within the grace ends it.
	l = lock(t, c.Mutex(d).Lock, WithMaxHold(10*time.Millisecond, time.Hour))
	soon(t, "the end", l.Lost())
	l.Unlock(ctx)
	queued(t, o, d, 0)

	// By an operator: with the wrong token not at all, and by its limit only when it has noted its end.
	l = lock(t, c.Mutex(d).Lock, join(WithMaxHold(10*time.Millisecond, 0), WithLinger()))
	soon(t, "the end", l.Lost())
	node := recipe.Base(l.Node())
	wantErr(t, c2.Inspector().Break(ctx, d, node, l.Token()+1), fence.ErrStale)
	eventually(t, "the holder's note that its time is over", func() bool {
		err := c2.Inspector().BreakExpired(ctx, d, node, l.Token())
		if err != nil {
			must.Is(t, err, ErrNotAcquired)
		}
		return err == nil
	})
	queued(t, o, d, 0)
	next := lock(t, c2.Mutex(d).Lock)
	must.That(t, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
	wantErr(t, c.Inspector().BreakExpired(ctx, d, recipe.Base(next.Node()), next.Token()), ErrNotAcquired)
	must.OK(t, c.Inspector().Break(ctx, d, recipe.Base(next.Node()), next.Token()))
	soon(t, "the loss", next.Lost())
	lostFor(t, next.Unlock(ctx), Removed)
	lostFor(t, l.Unlock(ctx), MaxHold)
}

// Break removes the hold that its caller looked at, not one that begins between its look and its request:
// the node at the same path has the same version. Other nodes may come beside it, in any number.
func TestBreakSparesTheNextHolder(t *testing.T) {
	shared(t)
	c, p := proxied(t)
	o, next, d := observer(t), observer(t), dir(t)
	make := func(o *zk.Conn, path string, flags int32) {
		_, err := o.Create(path, nil, flags, zk.WorldACL(zk.PermAll))
		must.OK(t, err)
	}
	unlock(t, lock(t, c.Mutex(d).Lock)) // makes the directory
	for name, between := range map[string]func(lone string){
		"nothing": func(string) {},
		"another": func(string) { make(next, d+"/other-", zk.FlagEphemeralSequential) },
		"holder": func(lone string) {
			must.OK(t, o.Delete(lone, -1))
			make(next, lone, zk.FlagEphemeral)
		},
	} {
		lone := d + "/" + name
		make(o, lone, zk.FlagEphemeral)
		_, st, err := o.Get(lone)
		must.OK(t, err)
		first := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Match: func(f faultproxy.Frame) bool {
			return f.Op == faultproxy.OpMulti || f.Op == faultproxy.OpDelete
		}, Under: lone, Nth: 1, Then: func() { between(lone) }})
		err = c.Inspector().Break(testCtx(t), lone, "", fence.Token(st.Czxid))
		first.Remove()
		left, now, _ := o.Exists(lone)
		if name == "holder" {
			wantErr(t, err, fence.ErrStale)
			expect.That(t, left && now.EphemeralOwner == next.SessionID(), "the new hold was broken")
		} else {
			expect.That(t, err == nil && !left, "%s: %v, the node is there: %v", name, err, left)
		}
	}
	children, _, err := o.Children(d)
	must.That(t, err == nil && len(children) == 2, "%v: %v", children, err)
	// Where nodes may not be made, the version alone decides.
	_, st, err := o.Get(d + "/" + children[0])
	must.OK(t, err)
	_, err = o.SetACL(d, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
	must.OK(t, err)
	must.OK(t, c.Inspector().Break(testCtx(t), d+"/"+children[0], "", fence.Token(st.Czxid)))
}

// A node without a number may go, and a look at it may fail, before it is broken.
func TestBreakOfANodeThatGoes(t *testing.T) {
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	unlock(t, lock(t, c.Mutex(d).Lock)) // makes the directory
	for _, under := range []string{d, d + "/lone"} {
		_, err := o.Create(d+"/lone", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		must.OK(t, err)
		_, st, err := o.Get(d + "/lone")
		must.OK(t, err)
		look := faultproxy.Rule{Kind: faultproxy.Reply, Match: func(f faultproxy.Frame) bool {
			return f.Op == faultproxy.OpExists && f.Path == under
		}, Nth: 1, Do: faultproxy.Fail, Code: -102}
		r := p.Add(look)
		wantErr(t, c.Inspector().Break(testCtx(t), d+"/lone", "", fence.Token(st.Czxid)), czk.ErrNoAuth)
		r.Remove()
		must.That(t, exists(t, o, d+"/lone"), "it was broken without a look")
		look.Kind, look.Do = faultproxy.Request, faultproxy.Pass
		look.Then = func() { expect.OK(t, o.Delete(d+"/lone", -1)) }
		r = p.Add(look)
		wantErr(t, c.Inspector().Break(testCtx(t), d+"/lone", "", fence.Token(st.Czxid)), ErrNotHeld)
		r.Remove()
	}
	// The directory goes, too.
	_, err := o.Create(d+"/lone", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	must.OK(t, err)
	_, st, err := o.Get(d + "/lone")
	must.OK(t, err)
	p.Add(faultproxy.Rule{Kind: faultproxy.Request, Match: func(f faultproxy.Frame) bool {
		return f.Op == faultproxy.OpExists && f.Path == d
	}, Nth: 1, Then: func() {
		expect.OK(t, o.Delete(d+"/lone", -1))
		removeDir(t, o, d)
	}})
	wantErr(t, c.Inspector().Break(testCtx(t), d+"/lone", "", fence.Token(st.Czxid)), ErrNotHeld)
}

// A candidate whose node may not be read is no leader without a name.
func TestLeaderThatMayNotBeRead(t *testing.T) {
	shared(t)
	d := dir(t)
	l := must.Get(dial(t).Election(d).Campaign(testCtx(t), []byte("first")))(t)
	_, err := observer(t).SetACL(l.Node(), zk.DigestACL(zk.PermAll, "some", "body"), -1)
	must.OK(t, err)
	leader, err := dial(t).Election(d).Leader(testCtx(t))
	expect.That(t, errors.Is(err, czk.ErrNoAuth), "%+v, %v", leader, err)
}

func TestE61LockDelay(t *testing.T) {
	shared(t)
	o, d := observer(t), dir(t)
	a, pa := proxied(t)
	b := dial(t)
	const delay = 2 * time.Second
	opt, long := WithLockDelay(delay), WithLockDelay(time.Hour)
	// After a clean unlock: at once.
	unlock(t, lock(t, a.Mutex(d, long).Lock))
	unlock(t, lock(t, b.Mutex(d, long).Lock))
	unlock(t, lock(t, b.RWMutex(d, long).RLock))
	// After an unclean end: not before the delay is over, and then without one.
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

// The delay counts from the loss, so neither tries nor waits that are shorter than the delay begin it
// again: after it they get the lock.
func TestLockDelayCountsFromTheLoss(t *testing.T) {
	shared(t)
	const delay = time.Second
	for name, x := range map[string]struct {
		opts []Option
		take func(*RWMutex) take
	}{
		"try to write":            {nil, func(m *RWMutex) take { return m.TryLock }},
		"try to read":             {nil, func(m *RWMutex) take { return m.TryRLock }},
		"short waits":             {[]Option{WithWait(delay / 4)}, func(m *RWMutex) take { return m.Lock }},
		"short waits to read":     {[]Option{WithWait(delay / 4)}, func(m *RWMutex) take { return m.RLock }},
		"policy, try to write":    {[]Option{WithPolicy(PolicyFair)}, func(m *RWMutex) take { return m.TryLock }},
		"policy, try to read":     {[]Option{WithPolicy(PolicyFair)}, func(m *RWMutex) take { return m.TryRLock }},
		"policy, readers first":   {[]Option{WithPolicy(PolicyReader)}, func(m *RWMutex) take { return m.TryRLock }},
		"policy, short waits":     {[]Option{WithPolicy(PolicyFair), WithWait(delay / 4)}, func(m *RWMutex) take { return m.Lock }},
		"policy, short for reads": {[]Option{WithPolicy(PolicyFair), WithWait(delay / 4)}, func(m *RWMutex) take { return m.RLock }},
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
			var got *Lease
			eventually(t, "a grant", func() bool {
				tries++
				l, err := f(testCtx(t))
				if err != nil {
					must.Is(t, err, ErrNotAcquired)
				}
				got = l
				return err == nil
			})
			expect.That(t, time.Since(died) >= delay, "granted %v after the loss", time.Since(died))
			expect.That(t, tries > 1, "%d tries", tries)
			unlock(t, got)
			unlock(t, lock(t, f, WithLockDelay(time.Hour))) // the mark is gone
		})
	}
}

// Of the readers that come after a dead writer the first one waits for all.
func TestLockDelayIsWaitedForOnce(t *testing.T) {
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

// The mark of a lock delay overwrites no data of another program, whenever they come.
func TestLockDelayLeavesDataOfOthersAlone(t *testing.T) {
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
	// Before the mark is written.
	d := dir(t)
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpSetData, Under: d, Nth: 1,
		Then: func() { write(d) }})
	_, err := c.Mutex(d, WithLockDelay(time.Nanosecond)).Lock(ctx)
	wantErr(t, err, ErrUnsupported)
	r.Remove()
	expect.Equal(t, data(d), "other", "data")
	queued(t, o, d, 0)
	// While the lock is held: it is released, and downgraded, all the same.
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
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	l := lock(t, c.RWMutex(d).Lock)
	write := czk.SetData{Path: d, Data: []byte("x"), Version: -1}
	res, err := l.Txn(ctx, write, czk.Create{Path: d + "/made"}, czk.Delete{Path: d + "/made", Version: -1})
	must.That(t, err == nil && len(res) == 3 && res[0].Stat.Version == 1 && res[1].Path == d+"/made",
		"%+v, %v", res, err)
	var refused *czk.MultiError
	if _, err := l.Txn(ctx, write, czk.Delete{Path: d + "/none", Version: -1}); !errors.As(err, &refused) ||
		refused.Index != 1 || !errors.Is(err, czk.ErrNoNode) || !l.Valid() {
		t.Fatal(err)
	}
	must.OK(t, l.Downgrade(ctx))
	must.OK(t, errOf(l.Txn(ctx, write)))
	version := func() int32 {
		_, st := must.Get2(o.Get(d))(t)
		return st.Version
	}
	must.Equal(t, version(), 2, "version")
	unlock(t, l)
	wantErr(t, errOf(l.Txn(ctx, write)), ErrNotHeld)
	// The node is gone, and the client does not know yet: the server says so.
	p, proxy := proxied(t)
	l = lock(t, p.Mutex(d).Lock)
	proxy.Add(faultproxy.Rule{Kind: faultproxy.Event, Under: d, Do: faultproxy.Drop})
	remove(t, o, l.Node())
	wantErr(t, errOf(l.Txn(ctx, write)), ErrLost)
	must.Equal(t, version(), 2, "version")
	l.Unlock(ctx)
}

func TestEventsTellTheLifeOfALock(t *testing.T) {
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

// A leader that is asked to leave keeps the value by which others find it.
func TestRevokedLeaderKeepsItsValue(t *testing.T) {
	shared(t)
	a, b, d := dial(t), dial(t), dir(t)
	const value = "10.0.0.1:8080"
	l := must.Get(a.Election(d).Campaign(testCtx(t), []byte(value)))(t)
	must.OK(t, b.Inspector().Revoke(testCtx(t), d, recipe.Base(l.Node()), recipe.Revocation{By: "operator"}))
	soon(t, "the wish", l.Asked())
	leader := must.Get(b.Election(d).Leader(testCtx(t)))(t)
	expect.That(t, string(leader.Value) == value && leader.Token == l.Token(),
		"the leader is %q, token %d", leader.Value, leader.Token)
	unlock(t, l)
}

// Programs that know no way to be asked back keep their data.
func TestOnlyProgramsThatUnderstandAreAskedBack(t *testing.T) {
	for name, want := range map[string]string{
		recipe.NodeName(LayoutCurator, recipe.RoleLock, newNodeID(1), "") + "0000000001": "v\x00__REVOKE__",
		"_c_91a5a8a4-1c39-4d2b-9c5e-6a2b8f3c1d00-lock-0000000001":                        "__REVOKE__",
	} {
		made, _, _ := recipe.ParseName(name)
		asked := recipe.AskBack([]byte("v"), made.Maker, recipe.Revocation{})
		_, ok := recipe.RevocationIn(asked)
		expect.That(t, string(asked) == want && ok, "%s: %q, understood: %v", name, asked, ok)
	}
	addr(t)
	c := dial(t)
	for _, name := range []string{strings.Repeat("ab", 16) + "__lock__0000000001", "_c_" +
		strings.Repeat("ab", 16) + "-lock-0000000001"} {
		if err := c.Inspector().Revoke(testCtx(t), dir(t), name, recipe.Revocation{}); !errors.Is(err,
			ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
