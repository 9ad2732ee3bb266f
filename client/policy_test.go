package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

func policies(t *testing.T, f func(t *testing.T, p recipe.Policy)) {
	for p := PolicyFair; p <= PolicyWriter; p++ {
		t.Run(p.String(), func(t *testing.T) { f(t, p) })
	}
}

func TestPolicyLockIsGrantedAndGivenBack(t *testing.T) {
	t.Parallel()
	policies(t, func(t *testing.T, p recipe.Policy) {
		addr(t)
		leakCheck(t)
		c, o, d := dial(t), observer(t), dir(t)
		m := c.RWMutex(d, WithPolicy(p))
		r1, r2 := lock(t, m.RLock), lock(t, m.RLock)
		must.Is(t, expect.Err(m.TryLock(testCtx(t))), ErrNotAcquired, "TryLock under readers")
		must.Equal(t, len(names(t, o, d)), 2, "nodes of two readers")
		unlock(t, r1)
		unlock(t, r2)
		w := lock(t, m.Lock)
		expect.That(t, w.Token() > r1.Token(), "token %v after %v", w.Token(), r1.Token())
		expect.That(t, w.Token() > r2.Token(), "token %v after %v", w.Token(), r2.Token())
		expect.OK(t, w.Check(testCtx(t)))
		must.Is(t, expect.Err(m.TryRLock(testCtx(t))), ErrNotAcquired, "TryRLock under a writer")
		r := start(testCtx(t), m.RLock)
		queued(t, o, d, 3)
		unlock(t, w)
		unlock(t, r.wait(t))
		queued(t, o, d, 0)
	})
}

func TestPolicyMustBeTheStoredOne(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	unlock(t, lock(t, c.RWMutex(d, WithPolicy(PolicyReader)).RLock))
	must.Is(t, expect.Err(c.RWMutex(d, WithPolicy(PolicyWriter)).RLock(testCtx(t))), ErrPolicyMismatch,
		"another policy")
}

func TestPolicyLockRefusesOtherLayouts(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	must.Is(t, expect.Err(c.RWMutex(d, WithPolicy(PolicyFair)).RLock(testCtx(t))), ErrMixedLayout,
		"beside a mutex")
	unlock(t, l)
}

func TestPolicyDowngradeLetsReadersIn(t *testing.T) {
	t.Parallel()
	policies(t, func(t *testing.T, p recipe.Policy) {
		c, d := dial(t), dir(t)
		m := c.RWMutex(d, WithPolicy(p))
		w := lock(t, m.Lock)
		token := w.Token()
		r := start(testCtx(t), m.RLock)
		not(t, "reader beside a writer", r.lease, 50*time.Millisecond)
		must.OK(t, w.Downgrade(testCtx(t)))
		expect.OK(t, w.Err(), "after the downgrade")
		expect.Equal(t, w.Token(), token, "token after the downgrade")
		expect.Equal(t, w.Mode(), fence.Shared, "mode after the downgrade")
		unlock(t, r.wait(t))
		unlock(t, w)
	})
}

// The test does not rely on what the client says: a holder looks at counters of the other holders. If
// ZLOCKD_CLIENT_FULL is set, the test takes a million steps. If its value is a duration, each policy has at
// most that time.
func TestE45RandomStepsNeverOverlapAndAlwaysEnd(t *testing.T) {
	t.Parallel()
	steps, limit := 400, time.Hour
	switch {
	case envSet("ZLOCKD_CLIENT_FULL"):
		steps = 1_000_000 / 3
		if d, err := time.ParseDuration(os.Getenv("ZLOCKD_CLIENT_FULL")); err == nil {
			limit = d
		}
	case testing.Short():
		steps = 60
	}
	policies(t, func(t *testing.T, p recipe.Policy) {
		addr(t)
		leakCheck(t)
		d, ctx := dir(t), context.Background()
		var readers, writers atomic.Int32
		var last, done atomic.Int64
		end := time.Now().Add(limit)
		enter := func(in, other *atomic.Int32, alone bool) {
			n := in.Add(1)
			expect.Equal(t, other.Load(), 0, "holders that exclude it")
			if alone {
				expect.Equal(t, n, 1, "writers")
			}
		}
		read := func() { enter(&readers, &writers, false) }
		write := func(l *Lease) {
			enter(&writers, &readers, true)
			tok := int64(l.Token())
			expect.That(t, last.Swap(tok) < tok, "token %d is not the greatest so far", tok)
		}
		var wg sync.WaitGroup
		for i := range 4 {
			m := dial(t).RWMutex(d, WithPolicy(p), WithMaxWriterWait(200*time.Millisecond))
			rnd := rand.New(rand.NewPCG(uint64(i), uint64(p)))
			wg.Go(func() {
				for range steps / 4 {
					if t.Failed() || time.Now().After(end) {
						return
					}
					randomStep(ctx, t, m, rnd, read, write, &readers, &writers)
					done.Add(1)
				}
			})
		}
		wg.Wait()
		t.Logf("%d steps", done.Load())
	})
}

// A writer gives up between the creation of its hold node and its last look at the directory. It leaves
// neither that node nor its place. A place that is left, with the door closed for it, would stop all other
// contenders.
func TestE45WriterThatGivesUpAsItIsGrantedLeavesNothing(t *testing.T) {
	t.Parallel()
	policies(t, func(t *testing.T, p recipe.Policy) {
		o, d := observer(t), dir(t)
		c, proxy := proxied(t)
		ctx, cancel := context.WithCancel(testCtx(t))
		defer cancel()
		// The client looks at the directory, because its watch on the record fired when the door was closed.
		look := proxy.Add(faultproxy.Rule{
			Kind: faultproxy.Request, Op: faultproxy.OpExists, Match: func(f faultproxy.Frame) bool {
				return f.Path == d
			},
			Do: faultproxy.Hold, Then: cancel,
		})
		g := start(ctx, c.RWMutex(d, WithPolicy(p)).Lock)
		soon(t, "the look at the directory", look.Acted())
		wantErr(t, g.fails(t), context.Canceled)
		look.Release()
		queued(t, o, d, 0)
		unlock(t, lock(t, dial(t).RWMutex(d, WithPolicy(p)).Lock))
	})
}

func randomStep(ctx context.Context, t *testing.T, m *RWMutex, rnd *rand.Rand, read func(),
	write func(*Lease), readers, writers *atomic.Int32) {
	if rnd.IntN(4) == 0 { // the contender gives up early
		short, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(3000))*time.Microsecond)
		defer cancel()
		ctx = short
	}
	fail := func(err error) {
		expect.That(t, ctx.Err() != nil || errors.Is(err, ErrUpgradeConflict), "%v", err)
	}
	if rnd.IntN(3) == 0 {
		l, err := m.Lock(ctx)
		if err != nil {
			fail(err)
			return
		}
		write(l)
		writers.Add(-1)
		if rnd.IntN(2) == 0 {
			readers.Add(1)
			expect.OK(t, l.Downgrade(context.Background()))
			readers.Add(-1)
		}
		finish(t, l)
		return
	}
	l, err := m.RLock(ctx)
	if err != nil {
		fail(err)
		return
	}
	read()
	readers.Add(-1)
	if rnd.IntN(3) == 0 {
		if err := l.Upgrade(ctx); err != nil {
			fail(err)
		} else {
			write(l)
			writers.Add(-1)
		}
	}
	finish(t, l)
}

func finish(t *testing.T, l *Lease) {
	expect.OK(t, l.Unlock(context.Background()))
}

// A reader finds the door open, but its grant arrives when a writer holds the lock. The grant fails, because
// it requires that the record has not changed since the reader saw it.
func TestGrantThatComesLateIsRefused(t *testing.T) {
	t.Parallel()
	shared(t)
	o, other := observer(t), dial(t)
	c, p := proxied(t)
	for _, policy := range []recipe.Policy{PolicyFair, PolicyReader, PolicyWriter} {
		t.Run(policy.String(), func(t *testing.T) {
			d := dir(t)
			rw := c.RWMutex(d, WithPolicy(policy))
			unlock(t, lock(t, rw.RLock)) // makes the directory
			p.Record()
			late := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpMulti, Under: d,
				Do: faultproxy.Hold})
			g := start(testCtx(t), rw.RLock)
			soon(t, "the reader's grant", late.Acted())
			w := lock(t, other.RWMutex(d, WithPolicy(policy)).Lock)
			late.Release()
			late.Remove()
			eventually(t, "the answer to the grant", func() bool {
				return p.Count(func(f faultproxy.Frame) bool {
					return f.Kind == faultproxy.Reply && f.Op == faultproxy.OpMulti
				}) > 0
			})
			for _, name := range names(t, o, d) {
				n, ok := recipe.ParsePolicyNode(name)
				must.That(t, !ok || n.Kind != recipe.HoldRead, "%v: %s holds beside a writer", policy, name)
			}
			unlock(t, w)
			unlock(t, g.wait(t))
		})
	}
}

func TestE46EndlessReadersDoNotStarveAWriter(t *testing.T) {
	t.Parallel()
	const bound = 300 * time.Millisecond
	shared(t)
	d, ctx := dir(t), testCtx(t)
	// Two clients of readers take turns: each takes the lock before the other releases it, as long as readers
	// are admitted. If readers could overtake without a bound, the writer would wait forever.
	var relay [2]*RWMutex
	for i := range relay {
		relay[i] = dial(t).RWMutex(d, WithPolicy(PolicyReader), WithMaxWriterWait(bound))
	}
	held, o := lock(t, relay[0].RLock), observer(t)
	writerFirst := func() int {
		b, _, err := o.Get(d)
		expect.OK(t, err)
		return strings.Count(string(b), `"kind":"w"`)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := 1; ; i++ {
			turn, cancel := context.WithTimeout(ctx, time.Second)
			next, err := relay[i%2].RLock(turn)
			cancel()
			if err != nil && ctx.Err() == nil && writerFirst() == 0 {
				continue // the machine was too busy to grant the lock in time
			}
			finish(t, held)
			if err != nil {
				return
			}
			held = next
			time.Sleep(10 * time.Millisecond)
		}
	})
	m := dial(t).RWMutex(d, WithPolicy(PolicyReader), WithMaxWriterWait(bound))
	begun := time.Now()
	l := lock(t, m.Lock)
	waited := time.Since(begun)
	unlock(t, l)
	expect.That(t, waited >= bound, "readers had no precedence: the writer waited %v only", waited)
}

func TestE47WriterWhoseQueueNodeWasRemovedIsNotGranted(t *testing.T) {
	t.Parallel()
	c, o, d, ctx := dial(t), observer(t), dir(t), testCtx(t)
	m := c.RWMutex(d, WithPolicy(PolicyFair))
	r1 := lock(t, m.RLock)
	w := start(ctx, m.Lock)
	eventually(t, "the writer closes the door", func() bool {
		b, _, err := o.Get(d)
		return err == nil && strings.Contains(string(b), `"kind":"w"`)
	})
	blocked := start(ctx, dial(t).RWMutex(d, WithPolicy(PolicyFair)).RLock)
	queued(t, o, d, 3)
	for _, n := range names(t, o, d) {
		if node, ok := recipe.ParsePolicyNode(n); ok && node.Kind == recipe.QueueWrite {
			must.OK(t, o.Delete(recipe.Join(d, n), -1))
		}
	}
	r2 := blocked.wait(t) // the door was closed for a place that is gone, so it counts as open
	unlock(t, r1)
	not(t, "the writer is granted beside a reader", w.lease, 100*time.Millisecond)
	unlock(t, r2)
	unlock(t, w.wait(t)) // the writer queued again
}

func TestPolicyLockDelayFollowsADeadHolderOnly(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Second
	d := dir(t)
	opts := []Option{WithPolicy(PolicyFair), WithLockDelay(delay)}
	c := dial(t)
	m, long := c.RWMutex(d, opts...), c.RWMutex(d, WithPolicy(PolicyFair), WithLockDelay(time.Hour))
	unlock(t, lock(t, long.Lock))
	unlock(t, lock(t, long.Lock)) // not delayed after a clean unlock
	dying := dial(t)
	lock(t, dying.RWMutex(d, opts...).Lock)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dying.Close(ctx)
	begun := time.Now()
	unlock(t, lock(t, m.RLock))
	waited := time.Since(begun)
	expect.That(t, waited >= delay, "granted %v after the holder vanished", waited)
	unlock(t, lock(t, long.RLock)) // the second reader is not delayed
}

func TestPolicyNamesAndRecord(t *testing.T) {
	t.Parallel()
	id := newNodeID(0x1234)
	for _, n := range []recipe.PolicyNode{
		{ID: id, Kind: recipe.QueueRead, Seq: 0}, {ID: id, Kind: recipe.QueueWrite, Seq: 2147483647},
		{ID: id, Kind: recipe.QueueWrite, Seq: -2147483648}, {ID: id, Kind: recipe.HoldRead, Seq: 0},
		{ID: id, Kind: recipe.HoldWrite, Seq: 0},
	} {
		got, ok := recipe.ParsePolicyNode(n.Name(true))
		expect.That(t, ok, "%q is not read", n.Name(true))
		expect.Equal(t, got, n)
	}
	for _, bad := range []string{
		"", "q-", "h-" + id.UUID(), "h-" + id.UUID() + "-X", "h-" + id.UUID() + "-R0", "q-" + id.UUID() + "-R",
		"q-" + id.UUID() + "-R-1", "q-" + id.UUID() + "-R0000000001", "x-" + id.UUID() + "-R", "h-" + id.Hex() +
			"-R", "h-" + id.UUID() + "-R-0000000001",
	} {
		if n, ok := recipe.ParsePolicyNode(bad); ok {
			t.Errorf("%q was read as %v", bad, n)
		}
	}
	for _, g := range []recipe.Door{{}, {Owner: id, Kind: recipe.DoorWrite},
		{Owner: id, Kind: recipe.DoorUpgrade}} {
		rec, ok := recipe.ParsePolicyRecord(recipe.NewPolicyRecord(PolicyFair,
			recipe.DefaultMaxWriterWait).WithDoor(g).Encode())
		expect.That(t, ok, "%v is not read", g)
		expect.Equal(t, rec.Mark(), g)
		expect.Equal(t, rec.WriterBound(), recipe.DefaultMaxWriterWait)
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add(recipe.PolicyNode{ID: newNodeID(1), Kind: recipe.QueueRead, Seq: -5}.Name(true))
	f.Add(recipe.PolicyNode{ID: newNodeID(1), Kind: recipe.HoldWrite, Seq: 0}.Name(true))
	f.Fuzz(func(t *testing.T, name string) {
		if n, ok := recipe.ParsePolicyNode(name); ok && n.Name(true) != name {
			t.Fatalf("%q is read as %v, which is called %q", name, n, n.Name(true))
		}
	})
}

// If an operator breaks the hold of a writer with a policy, the writer's place goes, too, so no contender
// waits for it.
func TestBreakTakesThePlaceOfAWriterToo(t *testing.T) {
	t.Parallel()
	o, d, c := observer(t), dir(t), dial(t)
	hung := lock(t, dial(t).RWMutex(d, WithPolicy(PolicyFair)).Lock)
	hung.hold().Hang()
	next := start(testCtx(t), c.RWMutex(d, WithPolicy(PolicyFair)).Lock)
	queued(t, o, d, 3)
	must.OK(t, c.Inspector().Break(testCtx(t), d, recipe.Base(hung.Node()), hung.Token()))
	l := next.wait(t)
	expect.That(t, l.Token() > hung.Token(), "token %d after %d", l.Token(), hung.Token())
	expect.Is(t, hung.Unlock(testCtx(t)), ErrLost)
	unlock(t, l)
}
