package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

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
