package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// hurried() returns a client that believes turns in d to be short. It also returns the client's proxy.
func hurried(t *testing.T, d string) (*Client, *faultproxy.Proxy) {
	c, p := proxied(t)
	c.take.ShortTurns(d)
	p.Record()
	return c, p
}

// line() returns a holder and n waiters, each of which waits for the one before it.
func line(t *testing.T, d string, n int) (h *Lease, waiting []granting, leave []context.CancelFunc) {
	o := observer(t)
	h = lock(t, dial(t).Mutex(d).Lock)
	for i := range n {
		ctx, cancel := context.WithCancel(testCtx(t))
		t.Cleanup(cancel)
		waiting, leave = append(waiting, start(ctx, dial(t).Mutex(d).Lock)), append(leave, cancel)
		queued(t, o, d, i+2)
	}
	return h, waiting, leave
}

// Where turns are short, a waiter lists the directory while its predecessor still holds the lock. When the
// predecessor releases the lock, that list proves the waiter's turn, so the waiter sends no request.
func TestShortTurnsAreGrantedWithoutAnotherRoundTrip(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	h, ahead, _ := line(t, d, 1)
	c, p := hurried(t, d)
	g := start(testCtx(t), c.Mutex(d).Lock)
	watches(t, p, h.Node(), 1)
	last := d + "/" + nth(t, o, d, 1)
	unlock(t, h)
	l := ahead[0].wait(t)
	eventually(t, "the list behind the watch", func() bool {
		return p.Count(func(f faultproxy.Frame) bool {
			return f.Kind == faultproxy.Reply &&
				f.Op == faultproxy.OpGetChildren2
		}) == 2
	})
	watches(t, p, last, 1)
	must.That(t, g.pending(), "granted beside another")
	p.Record()
	unlock(t, l)
	own := g.wait(t)
	if n := p.Count(func(f faultproxy.Frame) bool {
		return f.Kind == faultproxy.Request && f.Under(d) && f.Path != own.Node()
	}); n != 0 {
		t.Errorf("%d requests from the release to the grant: %v", n, p.Frames())
	}
	unlock(t, own)
}

// A contender before the waiter leaves without having held the lock. The waiter, which looks ahead, still
// waits for the holder.
func TestLookingAheadGrantsNothingByItself(t *testing.T) {
	t.Parallel()
	shared(t)
	for _, who := range []string{"the one watched leaves", "the last one leaves", "both leave"} {
		t.Run(who, func(t *testing.T) {
			o, d := observer(t), dir(t)
			h, ahead, leave := line(t, d, 2) // a holder and two waiters
			c, p := hurried(t, d)
			g := start(testCtx(t), c.Mutex(d).Lock)
			watches(t, p, d+"/"+nth(t, o, d, 1), 1)
			var stay []granting
			for i, leaves := range []bool{who != "the last one leaves", who != "the one watched leaves"} {
				if !leaves {
					stay = append(stay, ahead[i])
					continue
				}
				leave[i]()
				ahead[i].fails(t)
			}
			queued(t, o, d, 2+len(stay))
			if who != "the last one leaves" {
				// The waiter looks again, and watches another contender.
				eventually(t, "another look", func() bool { return under(p, d, faultproxy.OpGetChildren2) >= 2 })
				watches(t, p, h.Node(), 1)
			}
			must.That(t, g.pending(), "granted beside the holder")
			must.That(t, h.Valid(), "the holder has lost the lock")
			unlock(t, h)
			for _, a := range stay {
				l := a.wait(t)
				must.That(t, g.pending(), "granted beside another")
				unlock(t, l)
			}
			unlock(t, g.wait(t))
		})
	}
}

// If no contender is left before a waiter by the time it looks ahead, the waiter gets the lock.
func TestLookingAheadTooLate(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	h, ahead, _ := line(t, d, 1)
	c, p := hurried(t, d)
	last := d + "/" + nth(t, o, d, 1)
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpGetData,
		Match: func(f faultproxy.Frame) bool { return f.Path == last }, Do: faultproxy.Hold})
	g := start(testCtx(t), c.Mutex(d).Lock)
	watches(t, p, h.Node(), 1)
	unlock(t, h)
	l := ahead[0].wait(t)
	soon(t, "the look at the last one", r.Acted())
	unlock(t, l)
	r.Release()
	unlock(t, g.wait(t))
}

// Many clients take the lock, hold it for an instant and often give up. No two of them hold it at the same
// time.
func TestShortTurnsExclude(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	var inside, held atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		c := dial(t)
		c.take.ShortTurns(d)
		wg.Go(func() {
			for range rounds(2000, 60) {
				ctx := testCtx(t)
				if rand.N(3) == 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
					defer cancel()
				}
				l, err := c.Mutex(d).Lock(ctx)
				if err != nil {
					continue
				}
				expect.Equal(t, inside.Add(1), 1, "two hold")
				held.Add(1)
				inside.Add(-1)
				expect.OK(t, l.Unlock(testCtx(t)))
			}
		})
	}
	wg.Wait()
	expect.That(t, held.Load() >= 8, "%d holds", held.Load())
}
