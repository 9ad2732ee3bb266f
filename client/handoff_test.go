package client

import (
	"testing"
	"time"
)

// passing unlocks a lease for which one attempt of the same process waits, and returns
// the lease of that one.
func passing(t *testing.T, c *Client, d string, first *Lease, next granting) *Lease {
	t.Helper()
	eventually(t, "a waiter in the process", func() bool { return c.localQueues.waiting(localKey{LayoutCurator, d}) == 1 })
	unlock(t, first)
	return next.wait(t)
}

// A hold is not handed to somebody who asked for another one.
func TestHandoffGivesWhatWasAskedFor(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, d, ctx := dial(t), dir(t), testCtx(t)
	many := WithHandoff(100, 0)

	l := passing(t, c, d, lock(t, c.Mutex(d, many).Lock), start(ctx, c.Mutex(d).Lock, WithMaxHold(50*time.Millisecond)))
	soon(t, "the end of the longest hold", l.Lost())
	l.Unlock(ctx)

	l = passing(t, c, d, lock(t, c.Mutex(d, many).Lock), start(ctx, c.RWMutex(d).Lock))
	if err := l.Downgrade(ctx); err != nil {
		t.Error(err)
	}
	unlock(t, l)

	for name, o := range map[string]AcquireOption{
		"strict": WithStrict(), "linger": WithLinger(), "revocable": WithRevocable(time.Second), "early": WithEarlyUnlock(), "data": WithData(nil),
	} {
		first := lock(t, c.Mutex(d, many).Lock)
		l := passing(t, c, d, first, start(ctx, c.Mutex(d).Lock, o))
		if l.h == first.h {
			t.Errorf("%s: handed over all the same", name)
		}
		unlock(t, l)
	}

	told := make(chan LockEvent, 1)
	hooks := WithHooks(Hooks{OnRelease: func(e LockEvent) { told <- e }})
	l = passing(t, c, d, lock(t, c.Mutex(d, many).Lock), start(ctx, c.Mutex(d, hooks).Lock))
	unlock(t, l)
	soon(t, "the release", told)

	first := lock(t, c.Mutex(d, many).Lock)
	l = passing(t, c, d, first, start(ctx, c.Mutex(d).Lock, WithReason("another")))
	if l.h != first.h {
		t.Error("not handed over")
	}
	unlock(t, l)
}

// A lease that is unlocked before those nested in it ends with them, not with who
// comes after them.
func TestHandoffEndsAllThatWereBefore(t *testing.T) {
	c, d := dial(t), dir(t)
	m := c.Mutex(d, WithHandoff(100, 0), WithReentrant())
	outer := lock(t, m.Lock)
	inner := must[*Lease](t)(m.Lock(outer.Context()))
	next := start(testCtx(t), m.Lock)
	eventually(t, "a waiter in the process", func() bool { return c.localQueues.waiting(localKey{LayoutCurator, d}) == 1 })
	unlock(t, outer)
	if outer.Context().Err() != nil {
		t.Error("the outer context ended before the inner lease")
	}
	unlock(t, inner)
	l := next.wait(t)
	if l.h != outer.h || outer.Context().Err() == nil {
		t.Error("the context of an unlocked lease lives on under the next holder")
	}
	unlock(t, l)
}
