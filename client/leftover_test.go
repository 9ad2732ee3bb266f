package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// present returns the present session of a client.
func present(t *testing.T, c *Client) *epoch {
	t.Helper()
	return must.Get(c.epoch(testCtx(t)))(t)
}

// Of a creation whose answer was lost, all nodes are found again, or none is left.
func TestCreationIsRecoveredWholly(t *testing.T) {
	shared(t)
	c, o := dial(t), observer(t)
	e, ctx := present(t, c), testCtx(t)
	for name, x := range map[string]struct {
		there []int // how many nodes there are of each
		found bool
	}{
		"none": {[]int{0, 0}, false}, "all": {[]int{1, 1}, true}, "one": {[]int{1, 0}, false},
		"the other": {[]int{0, 1}, false}, "twice": {[]int{2, 1}, true}, "no directory": {nil, false},
	} {
		d := dir(t)
		var nodes []newNode
		var want []string
		for i := range 2 {
			n := newNode{Create: zk.Create{Path: d + "/" + newNodeID(e.sid).UUID() + "-", Mode: zk.EphemeralSequential,
				Data: []byte{byte(i)}}}
			nodes = append(nodes, n)
			if x.there == nil {
				continue
			}
			must.OK(t, c.ensure(ctx, e, d, nil))
			for k := range x.there[i] {
				made := must.Get(e.conn.Create(ctx, n.Create))(t)
				if k == 0 && x.found {
					want = append(want, made.Path)
				}
			}
		}
		before := c.Stats().Recovered
		made, err := c.recover(ctx, e, nodes)
		must.OK(t, err, "%s", name)
		var got []string
		for i, m := range made {
			got = append(got, m.path)
			expect.That(t, m.name == recipe.Base(m.path) && m.stat.EphemeralOwner == e.sid && m.data[0] == byte(i),
				"%s: %+v", name, m)
		}
		expect.List(t, got, want, "%s", name)
		expect.Equal(t, c.Stats().Recovered-before, uint64(len(want)/2), "%s: recovered", name)
		queued(t, o, d, len(want))
	}
	// A node of this name that another session made is not the creation.
	d := dir(t)
	n := newNode{Create: zk.Create{Path: d + "/" + newNodeID(e.sid).UUID() + "-"}}
	must.OK(t, c.ensure(ctx, e, d, nil))
	must.Get(present(t, dial(t)).conn.Create(ctx, zk.Create{Path: n.Path + "0000000000", Mode: zk.Ephemeral}))(t)
	made, err := c.recover(ctx, e, []newNode{n})
	expect.That(t, err == nil && made == nil, "%+v, %v", made, err)
}

// What a lost creation left is removed, whatever number its names got.
func TestLostCreationIsRemoved(t *testing.T) {
	shared(t)
	var mu sync.Mutex
	var told []int
	c, o, d := dial(t, WithHooks(Hooks{OnReaper: func(pending int) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, pending)
	}})), observer(t), dir(t)
	e, ctx := present(t, c), testCtx(t)
	n := newNode{Create: zk.Create{Path: d + "/" + newNodeID(e.sid).UUID() + "-", Mode: zk.EphemeralSequential}}
	other := newNode{Create: zk.Create{Path: d + "/" + newNodeID(e.sid).UUID() + "-",
		Mode: zk.EphemeralSequential}}
	must.OK(t, c.ensure(ctx, e, d, nil))
	for range 2 {
		must.Get(e.conn.Create(ctx, n.Create))(t)
	}
	must.Get(e.conn.Create(ctx, other.Create))(t)
	c.reapLost(e, []newNode{n})
	queued(t, o, d, 1)
	eventually(t, "the hook to hear of the end", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(told, []int{1, 0})
	})
}

// A removal that fails is tried again, and given up if the server refuses it for good.
func TestRemovalIsTriedAgain(t *testing.T) {
	shared(t)
	c := dial(t)
	e := present(t, c)
	for name, x := range map[string]struct {
		err   error
		tries int
	}{
		"done": {nil, 1}, "gone": {&zk.Error{Code: -101}, 1}, "refused": {&zk.Error{Code: -102}, 1},
		"throttled": {&zk.Error{Code: -127}, 3}, "lost": {zk.ErrConnectionLost, 3}, "again": {errAgain, 3},
	} {
		tries := 0
		done := c.reapFunc(e, []string{"/a", "/b"}, func(context.Context) error {
			if tries++; tries == 3 {
				return nil
			}
			return x.err
		})
		soon(t, name, done)
		expect.Equal(t, tries, x.tries, "%s: tries", name)
	}
	must.Equal(t, c.reaper.left.add(0), 0, "nodes to remove")
	must.Equal(t, len(c.crowd.dirs), 0, "directories with nodes to remove")
}

// Dial tells at once that the server refuses the identity.
func TestDialTellsOfARefusedIdentity(t *testing.T) {
	shared(t)
	_, err := Dial(testCtx(t), addr(t), WithAuth("nonsense", "x"))
	must.Is(t, err, ErrNoAuth)
	expect.Has(t, err.Error(), "client: connect to "+addr(t))
	for _, opt := range []Option{WithSessionTimeout(-1), WithMargin(-1)} {
		expect.Is(t, expect.Err(Dial(testCtx(t), addr(t), opt)), ErrInvalid)
	}
	expect.Is(t, expect.Err(Dial(testCtx(t), "a//x")), ErrInvalid)
}

// A wait for a closed barrier that is given up does not pass for an open barrier, nor does one whose barrier
// is closed again.
func TestWaitForABarrierIsGivenUp(t *testing.T) {
	shared(t)
	c, p := proxied(t)
	d := dir(t)
	b := c.Barrier(d)
	must.OK(t, b.Close(testCtx(t)))
	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	waits := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpGetData, Under: d})
	done := make(chan error, 1)
	go func() { done <- b.Wait(ctx) }()
	eventually(t, "the wait", func() bool { return waits.Seen() > 0 })
	cancel()
	must.Is(t, soon(t, "the wait to end", done), context.Canceled)
	must.OK(t, b.Open(testCtx(t)))
	must.OK(t, b.Open(testCtx(t)))
	must.OK(t, b.Wait(testCtx(t)))
	must.OK(t, b.Close(testCtx(t)))
	must.OK(t, b.Close(testCtx(t)))
	go func() { done <- b.Wait(testCtx(t)) }()
	eventually(t, "the wait", func() bool { return waits.Seen() > 2 })
	must.OK(t, dial(t).Barrier(d).Open(testCtx(t)))
	must.OK(t, soon(t, "the wait to end", done))
}

// A call for permits that can never be granted is refused.
func TestPermitsThatAreNeverGranted(t *testing.T) {
	shared(t)
	c, d := dial(t), dir(t)
	ctx := testCtx(t)
	unlock(t, must.Get(c.Semaphore(d, 3).Acquire(ctx, 3))(t))
	stored := c.Semaphore(d, 0)
	must.Is(t, expect.Err(stored.Acquire(ctx, 4)), ErrInvalid)
	unlock(t, must.Get(stored.Acquire(ctx, 3))(t))
	must.Is(t, expect.Err(c.Semaphore(d, 4).Acquire(ctx, 1)), ErrLimitMismatch)
	must.Is(t, expect.Err(c.Semaphore(d+"/new", 0).Acquire(ctx, 1)), ErrLimitMismatch)
	for n, want := range map[int]error{0: ErrInvalid, -1: ErrInvalid} {
		must.Is(t, expect.Err(stored.Acquire(ctx, n)), want)
		must.Is(t, expect.Err(stored.TryAcquire(ctx, n)), want)
		must.Is(t, stored.SetLimit(ctx, n), want)
	}
	must.Is(t, expect.Err(c.Semaphore(d, -1).Acquire(ctx, 1)), ErrInvalid)
	must.Is(t, expect.Err(stored.Acquire(ctx, 1, WithLayout(LayoutKazoo))), ErrInvalid)
	must.Is(t, expect.Err(c.Semaphore(d, 1, WithLayout(LayoutHost)).Acquire(ctx, 1)), ErrUnsupported)
	known := c.Semaphore(d, 3)
	must.OK(t, known.SetLimit(ctx, 4))
	unlock(t, must.Get(known.Acquire(ctx, 4))(t))
	for _, layout := range []Layout{LayoutCurator, LayoutKazoo} {
		one := c.Semaphore(d+"/one", 0, WithLayout(layout))
		if layout == LayoutKazoo {
			one = c.Semaphore(d+"/other", 0, WithLayout(layout))
		}
		must.OK(t, one.SetLimit(ctx, 1))
		unlock(t, must.Get(one.Acquire(ctx, 1))(t))
		must.Is(t, expect.Err(one.Acquire(ctx, 2)), ErrInvalid)
	}
	must.OK(t, stored.SetLimit(ctx, 5))
	l := must.Get(stored.Acquire(ctx, 4))(t)
	must.Is(t, expect.Err(stored.TryAcquire(ctx, 2)), ErrNotAcquired)
	unlock(t, must.Get(stored.TryAcquire(ctx, 1))(t))
	unlock(t, l)
}

// Only a holder whose limit is over is broken by its limit, and not who waits behind it.
func TestBreakExpiredSparesTheOthers(t *testing.T) {
	shared(t)
	c, other, d := dial(t), dial(t), dir(t)
	ctx := testCtx(t)
	over := WithLimit(Limit{Hold: time.Millisecond, Grace: -1, Break: true, Linger: true})
	for path, x := range map[string]struct {
		opts []Option
		why  string
	}{
		"/none":  {nil, "is not over its limit"},
		"/quiet": {[]Option{WithLimit(Limit{Hold: time.Hour})}, "is not over its limit"},
		"/early": {[]Option{WithLimit(Limit{Hold: time.Hour, Break: true})}, "is not over its limit"},
	} {
		l := lock(t, c.Mutex(d+path).Lock, x.opts...)
		err := other.Inspector().BreakExpired(ctx, d+path, recipe.Base(l.Node()), l.Token())
		must.Is(t, err, ErrNotAcquired, "%s", path)
		expect.Has(t, err.Error(), x.why, "%s", path)
		unlock(t, l)
	}
	// A waiter with such a limit is spared however long it waits.
	l := lock(t, c.Mutex(d+"/wait").Lock)
	g := start(ctx, other.Mutex(d+"/wait").Lock, over)
	o := observer(t)
	queued(t, o, d+"/wait", 2)
	time.Sleep(20 * time.Millisecond)
	q := must.Get(c.Inspector().Inspect(ctx, d+"/wait"))(t)
	must.Equal(t, len(q.Waiters), 1, "waiters")
	w := q.Waiters[0]
	err := c.Inspector().BreakExpired(ctx, d+"/wait", w.Node, fence.Token(w.Token))
	must.Is(t, err, ErrNotAcquired)
	expect.Has(t, err.Error(), "does not hold")
	must.Is(t, c.Inspector().BreakExpired(ctx, d+"/wait", w.Node, fence.Token(w.Token+1)), fence.ErrStale)
	must.Is(t, c.Inspector().BreakExpired(ctx, d+"/wait", "none", fence.Token(w.Token)), ErrNotHeld)
	unlock(t, l)
	// A holder that did not wait is broken after a moment, in which its stamp may come.
	quiet := lock(t, other.Mutex(d+"/unstamped").Lock, over)
	soon(t, "the loss", quiet.Lost())
	time.Sleep(20 * time.Millisecond)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	err = c.Inspector().BreakExpired(short, d+"/unstamped", recipe.Base(quiet.Node()), quiet.Token())
	must.Is(t, err, context.DeadlineExceeded)
	queued(t, o, d+"/unstamped", 1)
	must.Is(t, quiet.Unlock(ctx), ErrLost)
	// Now it holds, longer than it may.
	h := g.wait(t)
	soon(t, "the loss", h.Lost())
	time.Sleep(20 * time.Millisecond)
	must.OK(t, c.Inspector().BreakExpired(ctx, d+"/wait", w.Node, fence.Token(w.Token)))
	queued(t, o, d+"/wait", 0)
	must.That(t, errors.Is(h.Unlock(ctx), ErrLost), "it was not lost")
}

// A heartbeat without an answer costs the connection, which answers pings but nothing else.
func TestHeartbeatWithoutAnAnswer(t *testing.T) {
	shared(t)
	c, p := proxied(t, WithSessionTimeout(2*time.Second), WithMargin(300*time.Millisecond))
	n := c.Stats().Attachments
	lost := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSync, Nth: 1, Do: faultproxy.Drop,
		Match: func(f faultproxy.Frame) bool { return f.Path == "/" }})
	soon(t, "a heartbeat", lost.Acted())
	eventually(t, "another connection", func() bool { return c.Stats().Attachments > n })
	before := c.Stats().Heartbeats
	eventually(t, "another heartbeat", func() bool { return c.Stats().Heartbeats > before })
}

// A try on a path that has a lock of another kind makes nothing there.
func TestTryBesideAnotherKindMakesNothing(t *testing.T) {
	shared(t)
	c, p := proxied(t)
	d := dir(t)
	l := must.Get(dial(t).Semaphore(d, 2).Acquire(testCtx(t), 1))(t)
	made := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Under: d,
		Match: func(f faultproxy.Frame) bool {
			return f.Op == faultproxy.OpCreate || f.Op == faultproxy.OpCreate2
		}})
	must.Is(t, expect.Err(c.Mutex(d).TryLock(testCtx(t))), ErrMixedLayout)
	must.Is(t, expect.Err(c.RWMutex(d).TryRLock(testCtx(t))), ErrMixedLayout)
	must.Equal(t, made.Seen(), 0, "nodes that were made")
	must.Is(t, expect.Err(c.Mutex(d).Lock(testCtx(t))), ErrMixedLayout)
	must.That(t, made.Seen() > 0, "the requests are not seen")
	unlock(t, l)
}

// A write confirms the session, as a heartbeat does.
func TestWriteConfirmsTheSession(t *testing.T) {
	shared(t)
	c, d := dial(t), dir(t)
	e := present(t, c)
	confirmed := func() time.Duration {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.confirmed.Mono
	}
	unlock(t, lock(t, c.Mutex(d).Lock)) // makes the directory
	before := c.opt.clock.Now().Mono
	unlock(t, lock(t, c.Mutex(d).Lock))
	must.That(t, confirmed() >= before, "not confirmed since")
}

// A write lock with a policy becomes a read lock, whatever other programs have done to its place in the
// queue, and to the mark of a lock delay.
func TestDowngradeOfADisturbedHold(t *testing.T) {
	shared(t)
	o := observer(t)
	for name, x := range map[string]struct {
		opts    []Option
		disturb func(d string, l *Lease) error
	}{
		"place removed": {nil, func(_ string, l *Lease) error { return o.Delete(l.Nodes()[1], -1) }},
		"mark written over": {[]Option{WithLockDelay(time.Hour)}, func(d string, _ *Lease) error {
			data, _, err := o.Get(d)
			if err == nil {
				_, err = o.Set(d, data, -1)
			}
			return err
		}},
	} {
		c, d := dial(t), dir(t)
		var l *Lease
		for quiet := false; !quiet; { // the client must not look at its nodes
			if l != nil {
				unlock(t, l)
			}
			l = lock(t, c.RWMutex(d, WithPolicy(PolicyFair)).Lock, x.opts...)
			l.h.mu.Lock()
			quiet = len(l.h.timers) == 1 && l.h.timers[0].Stop()
			l.h.mu.Unlock()
		}
		must.OK(t, x.disturb(d, l), "%s", name)
		must.OK(t, l.Downgrade(testCtx(t)), "%s", name)
		must.That(t, l.Mode() == fence.Shared && len(l.Nodes()) == 1, "%s: %v, %v", name, l.Mode(), l.Nodes())
		must.OK(t, l.Check(testCtx(t)), "%s", name)
		unlock(t, l)
	}
}

// On a server without containers directories are lasting nodes, after one refusal.
func TestServerWithoutContainers(t *testing.T) {
	shared(t)
	const createContainer, unimplemented = 19, -6
	c, p := proxied(t)
	refused := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: createContainer, Do: faultproxy.Refused,
		Code: unimplemented})
	o, d := observer(t), dir(t)
	for _, path := range []string{d + "/a", d + "/b/c"} {
		l := lock(t, c.Mutex(path).Lock)
		_, st := must.Get2(o.Get(path))(t)
		must.Equal(t, st.EphemeralOwner, 0, "owner of %s", path)
		unlock(t, l)
	}
	must.Equal(t, refused.Seen(), 1, "containers asked for")
	must.That(t, c.noContainers.Load(), "it is not remembered")
}

// A limit that may not be stored counts for the clients that name it.
func TestLimitThatMayNotBeStored(t *testing.T) {
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	must.OK(t, c.ensure(testCtx(t), present(t, c), d, nil))
	must.Get(o.Create(d+"/s", []byte{}, 0, []gozk.ACL{{Perms: gozk.PermAll &^ gozk.PermWrite, Scheme: "world",
		ID: "anyone"}}))(t)
	s := c.Semaphore(d+"/s", 2)
	l := must.Get(s.Acquire(testCtx(t), 2))(t)
	must.Is(t, expect.Err(s.TryAcquire(testCtx(t), 1)), ErrNotAcquired)
	unlock(t, l)
	must.Is(t, s.SetLimit(testCtx(t), 3), ErrNoAuth)
	must.Is(t, c.Semaphore(d+"/s", 1, WithLayout(LayoutHost)).SetLimit(testCtx(t), 1), ErrUnsupported)
}

// A lease that was unlocked, or lost, has no more calls.
func TestCallsOfALeaseThatIsOver(t *testing.T) {
	shared(t)
	c, d := dial(t), dir(t)
	for name, x := range map[string]struct {
		end  func(l *Lease)
		want error
	}{
		"unlocked": {func(l *Lease) { unlock(t, l) }, ErrNotHeld}, "lost": {func(l *Lease) { l.h.lose(Removed) },
			ErrLost},
	} {
		for mode, lock := range map[fence.Mode]take{fence.Shared: policyReadAt(c, d+"/r"),
			fence.Exclusive: policyWriteAt(c, d+"/w")} {
			l := must.Get(lock(testCtx(t)))(t)
			x.end(l)
			for call, err := range map[string]error{
				"Check": l.Check(testCtx(t)), "Txn": errOf(l.Txn(testCtx(t))), "Upgrade": l.Upgrade(testCtx(t)),
				"TryUpgrade": l.TryUpgrade(testCtx(t)), "Downgrade": l.Downgrade(testCtx(t)),
				"Unlock": l.Unlock(testCtx(t)),
			} {
				expect.Is(t, err, x.want, "%s, %v: %s", name, mode, call)
			}
		}
	}
}

// An upgrade that meets a change of the record looks again.
func TestUpgradeBesideAWriteOfTheRecord(t *testing.T) {
	shared(t)
	c, p := proxied(t)
	o, d := observer(t), dir(t)
	l := must.Get(policyReadAt(c, d)(testCtx(t)))(t)
	late := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpMulti, Under: d, Nth: 1,
		Do: faultproxy.Hold})
	done := make(chan error, 1)
	go func() { done <- l.Upgrade(testCtx(t)) }()
	soon(t, "the upgrade", late.Acted())
	data, _ := must.Get2(o.Get(d))(t)
	must.Get(o.Set(d, data, -1))(t)
	late.Release()
	must.OK(t, soon(t, "the upgrade", done))
	must.Equal(t, l.Mode(), fence.Exclusive)
	must.OK(t, l.Check(testCtx(t)))
	unlock(t, l)
}

// The outcome of a transaction is known if its context ended before it was sent.
func TestTxnWithAContextThatEnded(t *testing.T) {
	shared(t)
	c, p := proxied(t)
	l := lock(t, c.Mutex(dir(t)).Lock)
	sent := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpMulti, Do: faultproxy.Hold})
	ended, cancel := context.WithCancel(testCtx(t))
	cancel()
	_, err := l.Txn(ended)
	must.That(t, errors.Is(err, context.Canceled) && !errors.Is(err, zk.ErrUncertain), "%v", err)
	must.Equal(t, sent.Seen(), 0, "transactions that were sent")
	ctx, stop := context.WithCancel(testCtx(t))
	defer stop()
	done := make(chan error, 1)
	go func() { done <- errOf(l.Txn(ctx)) }()
	soon(t, "the transaction", sent.Acted())
	stop()
	err = soon(t, "the transaction", done)
	must.That(t, errors.Is(err, context.Canceled) && errors.Is(err, zk.ErrUncertain), "%v", err)
	sent.Remove()
	must.OK(t, errOf(l.Txn(testCtx(t))))
	must.OK(t, l.Err())
}

// A writer that waits for a place notices when the writer of that place holds for too long.
func TestWriterBehindAPlaceIsBroken(t *testing.T) {
	shared(t)
	first, second, o, d := dial(t), dial(t), observer(t), dir(t)
	third := dialTo(t, addr(t), quick()...)
	policy := WithPolicy(PolicyFair)
	a := lock(t, first.RWMutex(d, policy).Lock)
	b := start(testCtx(t), second.RWMutex(d, policy).Lock, WithLimit(Limit{Hold: time.Millisecond, Grace: -1,
		Break: true, Linger: true}))
	queued(t, o, d, 3)
	c := start(testCtx(t), third.RWMutex(d, policy).Lock, WithLimit(Limit{Hold: time.Hour, Break: true}))
	queued(t, o, d, 4)
	unlock(t, a)
	stuck := b.wait(t) // and is never unlocked
	soon(t, "the loss", stuck.Lost())
	unlock(t, c.wait(t))
	must.Is(t, stuck.Unlock(testCtx(t)), ErrLost)
}

// A walk leaves out what is not there, or may not be read.
func TestWalkPassesOverWhatItMayNotRead(t *testing.T) {
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	l := lock(t, c.Mutex(d+"/a").Lock)
	must.Get(o.Create(d+"/hidden", nil, 0, []gozk.ACL{{Perms: gozk.PermDelete, Scheme: "world", ID: "anyone"}}))(t)
	var found []string
	look := func(q *recipe.Queue) error {
		found = append(found, q.Path)
		return nil
	}
	must.OK(t, c.Inspector().Walk(ctx, d, -1, look))
	must.OK(t, c.Inspector().Walk(ctx, d+"/none", -1, look))
	must.OK(t, c.Inspector().Walk(ctx, d+"/hidden", -1, look))
	must.OK(t, c.Inspector().Walk(ctx, d, 0, look))
	must.List(t, found, []string{d + "/a"})
	must.OK(t, c.Inspector().Walk(ctx, d, 1, look))
	must.List(t, found, []string{d + "/a", d + "/a"})
	unlock(t, l)
	must.OK(t, o.Delete(d+"/hidden", -1))
}
