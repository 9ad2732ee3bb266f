package client

import (
	"context"
	"errors"
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

func TestE42OfTwoUpgradersOneErrsAtOnce(t *testing.T) {
	t.Parallel()
	rounds := 200
	switch {
	case envSet("ZLOCKD_CLIENT_FULL"):
		rounds = 10_000
	case testing.Short():
		rounds = 20
	}
	shared(t)
	d, ctx := dir(t), context.Background()
	c := [2]*Client{dial(t), dial(t)}
	for round := range rounds {
		var l [2]*Lease
		for i := range l {
			l[i] = lock(t, c[i].RWMutex(d, WithPolicy(PolicyFair)).RLock)
		}
		var wg sync.WaitGroup
		var upgraded, clashed atomic.Int32
		for i := range l {
			wg.Go(func() {
				err := l[i].Upgrade(ctx)
				switch {
				case err == nil:
					upgraded.Add(1)
				case errors.Is(err, ErrUpgradeConflict):
					clashed.Add(1)
				default:
					t.Errorf("round %d: %v", round, err)
				}
				expect.OK(t, l[i].Unlock(ctx), "round %d: unlock", round)
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		// Each upgrade either succeeds or conflicts with the other one. They must not both conflict.
		u, k := upgraded.Load(), clashed.Load()
		must.Equal(t, u+k, 2, "round %d: ends of upgrades", round)
		must.That(t, u != 0, "round %d: both clashed", round)
	}
}

func TestE43UpgraderGoesBeforeTheWaitingWriter(t *testing.T) {
	t.Parallel()
	policies(t, func(t *testing.T, p recipe.Policy) {
		c, o, d, ctx := dial(t), observer(t), dir(t), testCtx(t)
		m := c.RWMutex(d, WithPolicy(p))
		r := lock(t, m.RLock)
		w := start(ctx, m.Lock)
		queued(t, o, d, 2)
		if p != PolicyReader {
			eventually(t, "the writer closes the door", func() bool {
				b, _, err := o.Get(d)
				return err == nil && strings.Contains(string(b), `"kind":"w"`)
			})
		}
		before := r.Token()
		must.OK(t, r.Upgrade(ctx))
		must.That(t, w.pending(), "the writer does not wait for the one that is upgraded")
		must.Equal(t, r.Mode(), fence.Exclusive)
		must.That(t, r.Token() > before, "token %v after %v", r.Token(), before)
		must.OK(t, r.Check(ctx))
		token := r.Token()
		unlock(t, r)
		l := w.wait(t)
		expect.That(t, l.Token() > token, "token %v after %v", l.Token(), token)
		unlock(t, l)
	})
}

func TestTryUpgradeLeavesTheGateOpen(t *testing.T) {
	t.Parallel()
	c, o, d, ctx := dial(t), observer(t), dir(t), testCtx(t)
	m := c.RWMutex(d, WithPolicy(PolicyFair))
	r1, r2 := lock(t, m.RLock), lock(t, m.RLock)
	must.Is(t, r1.TryUpgrade(ctx), ErrNotAcquired, "TryUpgrade beside a reader")
	b, _, err := o.Get(d)
	must.OK(t, err)
	must.Has(t, string(b), `"gate":""`, "the record")
	r3 := lock(t, m.RLock)
	unlock(t, r2)
	unlock(t, r3)
	must.OK(t, r1.TryUpgrade(ctx))
	unlock(t, r1)
}

func TestCancelledUpgradeReopensTheGate(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	m := c.RWMutex(d, WithPolicy(PolicyFair))
	r1, r2 := lock(t, m.RLock), lock(t, m.RLock)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	must.Is(t, r1.Upgrade(ctx), context.DeadlineExceeded, "upgrade")
	r3 := lock(t, m.RLock) // the failed upgrade left the door open, so a reader gets the lock
	for _, l := range []*Lease{r1, r2, r3} {
		unlock(t, l)
	}
}

// An upgrade ends with its context even if the server does not answer. If it ends before the door is closed,
// the lease stays a read lock. If it ends while the client asks for the write lock, the lease may become a
// write lock.
func TestUpgradeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for op, mode := range map[int32]fence.Mode{
		faultproxy.OpSetData: fence.Shared, faultproxy.OpMulti: fence.Exclusive,
	} {
		d := dir(t)
		c, p := proxied(t)
		l := lock(t, c.RWMutex(d, WithPolicy(PolicyFair)).RLock)
		held := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: op, Nth: 1, Do: faultproxy.Hold})
		ctx, cancel := context.WithCancel(testCtx(t))
		failed := make(chan error, 1)
		go func() { failed <- l.Upgrade(ctx) }()
		soon(t, "the request", held.Acted())
		cancel()
		expect.Is(t, soon(t, "the upgrade to end", failed), context.Canceled)
		held.Release()
		eventually(t, "the mode", func() bool { return l.Mode() == mode })
		must.OK(t, l.Check(testCtx(t)))
		unlock(t, l)
		unlock(t, lock(t, dial(t).RWMutex(d, WithPolicy(PolicyFair)).Lock))
	}
}

func TestE44UpgraderThatDiesLeavesAStaleGate(t *testing.T) {
	t.Parallel()
	policies(t, func(t *testing.T, p recipe.Policy) {
		o, d := observer(t), dir(t)
		dying, c := dial(t), dial(t)
		m := c.RWMutex(d, WithPolicy(p))
		r := lock(t, m.RLock)
		up := lock(t, dying.RWMutex(d, WithPolicy(p)).RLock)
		failed := make(chan error, 1)
		go func() { failed <- up.Upgrade(testCtx(t)) }()
		eventually(t, "the door is closed for the upgrade", func() bool {
			b, _, err := o.Get(d)
			return err == nil && strings.Contains(string(b), `"kind":"u"`)
		})
		reader := start(testCtx(t), m.RLock)
		not(t, "a reader passes the closed door", reader.lease, 50*time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		dying.Close(ctx)
		must.Fails(t, soon(t, "the upgrade ends", failed), "upgraded beside another reader")
		unlock(t, reader.wait(t))
		unlock(t, r)
		unlock(t, lock(t, m.Lock))
	})
}

// A set of several locks has no mode that could change.
func TestSetChangesNoMode(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	a, b := c.RWMutex(d+"/a", WithPolicy(PolicyFair)), c.RWMutex(d+"/b", WithPolicy(PolicyFair))
	set := must.Get(c.All(testCtx(t), a.Request(fence.Shared), b.Request(fence.Shared)))(t)
	expect.Is(t, set.Upgrade(testCtx(t)), ErrUnsupported)
	expect.Is(t, set.TryUpgrade(testCtx(t)), ErrUnsupported)
	expect.OK(t, set.Check(testCtx(t)))
	unlock(t, set)
	set = must.Get(c.All(testCtx(t), a.Request(fence.Exclusive), b.Request(fence.Exclusive)))(t)
	expect.Is(t, set.Downgrade(testCtx(t)), ErrUnsupported)
	expect.OK(t, set.Check(testCtx(t)))
	unlock(t, set)
}
