package client

import (
	"context"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A waiter, and a call that is refused, learn their place and the holder from lists that they read anyway.
func TestWaitsTellPlaceAndHolder(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	told := make(chan Event, 100)
	c, o := dial(t, WithReason("why")), dial(t)
	holder := lock(t, c.Mutex(d).Lock)
	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	hooks := on(EventWaiting, func(e Event) { told <- e })
	g := start(ctx, o.Mutex(d, hooks, WithOwnPlace()).Lock)
	ev := <-told
	expect.Equal(t, ev.Path, d, "path")
	expect.Equal(t, ev.Place, 2, "place")
	expect.Equal(t, ev.Of, 2, "contenders")
	expect.Equal(t, recipe.Base(ev.Holder), recipe.Base(holder.Sequencer().NodePath()), "holder")
	who := must.Get(o.Inspector().Contender(ctx, ev.Holder))(t)
	must.That(t, who.Owner != nil, "no owner of %+v", who)
	expect.Equal(t, who.Owner.Reason, "why", "reason")
	_, err := o.Mutex(d, hooks, WithOwnPlace()).TryLock(ctx)
	expect.Is(t, err, ErrNotAcquired)
	ev = <-told
	expect.Equal(t, ev.Place, 3, "place of a try that is refused")
	expect.Equal(t, ev.Of, 3, "contenders, with the try")
	unlock(t, holder)
	unlock(t, g.wait(t))
}
