package client

import (
	"errors"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/faultproxy"
)

func TestE52TryLockOnAHeldLockOnlyReads(t *testing.T) {
	addr(t)
	leakCheck(t)
	a, d := dial(t), dir(t)
	c, p := proxied(t)
	h := lock(t, a.Mutex(d).Lock)
	p.Record()
	for i := range 10 {
		if _, err := c.Mutex(d).TryLock(testCtx(t)); !errors.Is(err, ErrNotAcquired) {
			t.Fatal(err)
		}
		// A list, and another one behind a sync.
		if n := under(p, d, 0); n != 3*(i+1) || under(p, d, faultproxy.OpGetChildren2) != 2*(i+1) {
			t.Fatalf("%d requests after %d tries: %v", n, i+1, p.Frames())
		}
	}
	unlock(t, h)
	unlock(t, lock(t, c.Mutex(d).TryLock)) // it sees every release that was complete
}

func TestE53TwoTriesAtOnceOnAFreeLock(t *testing.T) {
	addr(t)
	leakCheck(t)
	a, b, d := dial(t), dial(t), dir(t)
	for range rounds(10_000, 100) {
		ga, gb := start(testCtx(t), a.Mutex(d).TryLock), start(testCtx(t), b.Mutex(d).TryLock)
		var won []*Lease
		for _, g := range []granting{ga, gb} {
			select {
			case l := <-g.lease:
				won = append(won, l)
			case err := <-g.err:
				if !errors.Is(err, ErrNotAcquired) {
					t.Fatal(err)
				}
			case <-time.After(patience):
				t.Fatal("a try hangs")
			}
			if len(won) == 1 && g == ga {
				// let the other see it held or free: both are right
				continue
			}
		}
		if len(won) == 0 {
			t.Fatal("both tries failed")
		}
		if len(won) == 2 {
			t.Fatal("both tries succeeded")
		}
		unlock(t, won[0])
	}
}
