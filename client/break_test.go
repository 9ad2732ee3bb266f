package client

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Only a holder that has noted that its limit is over is broken by its limit, in each recipe, and no
// contender that waits behind it. No node but theirs comes into the directory, where it would disturb
// other programs.
func TestBreakExpiredSparesTheOthers(t *testing.T) {
	shared(t)
	over := join(WithMaxHold(time.Millisecond, 0), WithLinger())
	for name, f := range map[string]func(*Client, string) take{
		"mutex": mutexAt, "write": writeAt, "read": func(c *Client, d string) take { return c.RWMutex(d).RLock },
		"policy write": policyWriteAt, "policy read": policyReadAt, "permits": permitsAt,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, other, d, ctx := dial(t), dial(t), dir(t), testCtx(t)
			broken := func(l *Lease) error {
				return other.Inspector().BreakExpired(ctx, d, l.Sequencer().Node, l.Token())
			}
			for _, opts := range [][]Option{nil, {join(WithMaxHold(time.Hour, 0), WithLinger())}} {
				l := lock(t, f(c, d), opts...)
				err := broken(l)
				must.Is(t, err, ErrNotAcquired)
				expect.Has(t, err.Error(), "is not over its limit")
				unlock(t, l)
			}
			l := lock(t, f(c, d), over)
			soon(t, "the loss", l.Lost())
			eventually(t, "the note that its time is over", func() bool { return broken(l) == nil })
			must.Is(t, broken(l), ErrNotHeld)
			must.Is(t, l.Unlock(ctx), ErrLost)
		})
	}
	// A waiter with such a limit is spared however long it waits.
	c, other, d, ctx := dial(t), dial(t), dir(t), testCtx(t)
	l := lock(t, c.Mutex(d).Lock)
	g := start(ctx, other.Mutex(d).Lock, over)
	queued(t, observer(t), d, 2)
	w := must.Get(c.Inspector().Inspect(ctx, d))(t).Waiters[0]
	must.Is(t, c.Inspector().BreakExpired(ctx, d, w.Node, fence.Token(w.Token)), ErrNotAcquired)
	must.Is(t, c.Inspector().BreakExpired(ctx, d, w.Node, fence.Token(w.Token+1)), fence.ErrStale)
	must.Is(t, c.Inspector().BreakExpired(ctx, d, "none", fence.Token(w.Token)), ErrNotHeld)
	unlock(t, l)
	h := g.wait(t)
	soon(t, "the loss", h.Lost())
	eventually(t, "the holder's note", func() bool {
		return c.Inspector().BreakExpired(ctx, d, recipe.Base(h.Node()), h.Token()) == nil
	})
	must.Is(t, h.Unlock(ctx), ErrLost)
}
