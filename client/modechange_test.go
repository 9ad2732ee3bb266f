package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// A write lock with a policy can be downgraded even if another program has removed the writer's place in the
// queue, or has overwritten the mark of a lock delay.
func TestDowngradeOfADisturbedHold(t *testing.T) {
	t.Parallel()
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
		l := quietly(t, c.RWMutex(d, WithPolicy(PolicyFair)).Lock, x.opts...)
		must.OK(t, x.disturb(d, l), "%s", name)
		must.OK(t, l.Downgrade(testCtx(t)), "%s", name)
		must.Equal(t, l.Mode(), fence.Shared, "%s", name)
		must.Equal(t, len(l.Nodes()), 1, "%s: nodes %v", name, l.Nodes())
		must.OK(t, l.Check(testCtx(t)), "%s", name)
		unlock(t, l)
	}
}

// After a lease was unlocked or lost, its calls fail.
func TestCallsOfALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	for name, x := range map[string]struct {
		end  func(l *Lease)
		want error
	}{
		"unlocked": {func(l *Lease) { unlock(t, l) }, ErrNotHeld},
		"lost": {func(l *Lease) { l.hold().Lose(hold.Removed) },
			ErrLost},
	} {
		for mode, lock := range map[fence.Mode]taker{fence.Shared: policyReadAt(c, d+"/r"),
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

// If another program writes the lock's record during an upgrade, the upgrade looks again and succeeds.
func TestUpgradeBesideAWriteOfTheRecord(t *testing.T) {
	t.Parallel()
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

// If the context ended before the transaction was sent, the error does not call the outcome unknown.
func TestTxnWithAContextThatEnded(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	l := lock(t, c.Mutex(dir(t)).Lock)
	sent := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpMulti, Do: faultproxy.Hold})
	ended, cancel := context.WithCancel(testCtx(t))
	cancel()
	_, err := l.Txn(ended)
	must.Is(t, err, context.Canceled)
	must.That(t, !errors.Is(err, zk.ErrUncertain), "nothing was sent, and yet: %v", err)
	must.Equal(t, sent.Seen(), 0, "transactions that were sent")
	ctx, stop := context.WithCancel(testCtx(t))
	defer stop()
	done := make(chan error, 1)
	go func() { done <- errOf(l.Txn(ctx)) }()
	soon(t, "the transaction", sent.Acted())
	stop()
	err = soon(t, "the transaction", done)
	must.Is(t, err, context.Canceled)
	must.Is(t, err, zk.ErrUncertain)
	sent.Remove()
	must.OK(t, errOf(l.Txn(testCtx(t))))
	must.OK(t, l.Err())
}
