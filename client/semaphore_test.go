package client

import (
	"testing"

	gozk "github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

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
