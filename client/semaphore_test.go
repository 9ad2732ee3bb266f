package client

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A call for permits that can never be granted is refused.
func TestPermitsThatAreNeverGranted(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	ctx := testCtx(t)
	unlock(t, must.Get(c.Semaphore(d, 3).Acquire(ctx, 3))(t))
	stored := c.Semaphore(d, 0)
	must.Is(t, expect.Err(stored.Acquire(ctx, 4)), ErrInvalid)
	unlock(t, must.Get(stored.Acquire(ctx, 3))(t))
	unlock(t, must.Get(c.Semaphore(d, 4).Acquire(ctx, 3))(t)) // the stored number counts, not the 4
	must.Is(t, expect.Err(c.Semaphore(d, 4).Acquire(ctx, 4)), ErrInvalid)
	must.Is(t, expect.Err(c.Semaphore(d+"/new", 0).Acquire(ctx, 1)), ErrLimitMismatch)
	for n, want := range map[int]error{0: ErrInvalid, -1: ErrInvalid} {
		must.Is(t, expect.Err(stored.Acquire(ctx, n)), want)
		must.Is(t, expect.Err(stored.TryAcquire(ctx, n)), want)
		must.Is(t, stored.SetPermits(ctx, n), want)
	}
	must.Is(t, expect.Err(c.Semaphore(d, -1).Acquire(ctx, 1)), ErrInvalid)
	must.Is(t, expect.Err(stored.Acquire(ctx, 1, WithLayout(LayoutKazoo))), ErrInvalid)
	must.Is(t, expect.Err(c.Semaphore(d, 1, WithLayout(LayoutHost)).Acquire(ctx, 1)), ErrUnsupported)
	known := c.Semaphore(d, 3)
	must.OK(t, known.SetPermits(ctx, 4))
	unlock(t, must.Get(known.Acquire(ctx, 4))(t))
	for _, layout := range []Layout{LayoutCurator, LayoutKazoo} {
		one := c.Semaphore(d+"/one", 0, WithLayout(layout))
		if layout == LayoutKazoo {
			one = c.Semaphore(d+"/other", 0, WithLayout(layout))
		}
		must.OK(t, one.SetPermits(ctx, 1))
		unlock(t, must.Get(one.Acquire(ctx, 1))(t))
		must.Is(t, expect.Err(one.Acquire(ctx, 2)), ErrInvalid)
	}
	must.OK(t, stored.SetPermits(ctx, 5))
	l := must.Get(stored.Acquire(ctx, 4))(t)
	must.Is(t, expect.Err(stored.TryAcquire(ctx, 2)), ErrNotAcquired)
	unlock(t, must.Get(stored.TryAcquire(ctx, 1))(t))
	unlock(t, l)
}

// If the limit of a semaphore may not be stored, the limit of each client counts for its own calls.
func TestLimitThatMayNotBeStored(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	must.OK(t, present(t, c).Ensure(testCtx(t), d, false, nil))
	must.Get(o.Create(d+"/s", []byte{}, 0, []gozk.ACL{{Perms: gozk.PermAll &^ gozk.PermWrite, Scheme: "world",
		ID: "anyone"}}))(t)
	s := c.Semaphore(d+"/s", 2)
	l := must.Get(s.Acquire(testCtx(t), 2))(t)
	must.Is(t, expect.Err(s.TryAcquire(testCtx(t), 1)), ErrNotAcquired)
	unlock(t, l)
	must.Is(t, s.SetPermits(testCtx(t), 3), ErrNoAuth)
	must.Is(t, c.Semaphore(d+"/s", 1, WithLayout(LayoutHost)).SetPermits(testCtx(t), 1), ErrUnsupported)
}

// As many calls of TryAcquire are granted as there are free permits, and never more, whether they come from
// one client or from several.
func TestTriesGetTheFreePermits(t *testing.T) {
	t.Parallel()
	shared(t)
	const permits = 8
	for _, x := range []struct{ clients, tries int }{{1, permits}, {permits, permits}, {4, permits + 4}} {
		t.Run(fmt.Sprintf("%d clients, %d tries", x.clients, x.tries), func(t *testing.T) {
			d, cs := dir(t), make([]*Client, x.clients)
			for i := range cs {
				cs[i] = dial(t)
			}
			for range 5 {
				var wg sync.WaitGroup
				var mu sync.Mutex
				var held []*Lease
				for i := range x.tries {
					wg.Go(func() {
						l, err := cs[i%x.clients].Semaphore(d, permits).TryAcquire(testCtx(t), 1)
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							held = append(held, l)
						} else {
							expect.Is(t, err, ErrNotAcquired)
						}
					})
				}
				wg.Wait()
				expect.That(t, len(held) <= permits, "%d permits of %d", len(held), permits)
				if x.tries == permits {
					expect.Equal(t, len(held), permits, "granted")
				}
				for _, l := range held {
					unlock(t, l)
				}
			}
		})
	}
}

// If the number of permits changes, waiters use the new number, and so do programs that name another number.
func TestNumberOfPermitsChangesUnderWay(t *testing.T) {
	t.Parallel()
	shared(t)
	c, other, o, d, ctx := dial(t), dial(t), observer(t), dir(t), testCtx(t)
	first := must.Get(c.Semaphore(d, 1).Acquire(ctx, 1))(t)
	g := start(ctx, func(ctx context.Context, opts ...Option) (*Lease, error) {
		return other.Semaphore(d, 1).Acquire(ctx, 1, opts...)
	})
	queued(t, o, d+"/locks", 1)
	must.OK(t, c.Semaphore(d, 0).SetPermits(ctx, 3))
	second := g.wait(t)
	third := must.Get(other.Semaphore(d, 1).TryAcquire(ctx, 1))(t)
	must.Is(t, expect.Err(other.Semaphore(d, 9).TryAcquire(ctx, 1)), ErrNotAcquired)
	for _, l := range []*Lease{first, second, third} {
		unlock(t, l)
	}
}

// A program gets one event if the stored number of permits differs from its own.
func TestEventTellsOfAnotherNumberOfPermits(t *testing.T) {
	t.Parallel()
	shared(t)
	heard := make(chan Event, 10)
	c, d, ctx := dial(t, on(EventPermits, func(ev Event) { heard <- ev })), dir(t), testCtx(t)
	unlock(t, must.Get(c.Semaphore(d, 3).Acquire(ctx, 1))(t))
	s := c.Semaphore(d, 5)
	for range 3 {
		unlock(t, must.Get(s.Acquire(ctx, 1))(t))
	}
	ev := <-heard
	expect.Equal(t, ev.Path, d, "the path is")
	expect.Equal(t, ev.Permits, 3, "the stored number is")
	expect.Equal(t, ev.Wanted, 5, "the program's number is")
	must.OK(t, c.Close(ctx))
	expect.Equal(t, len(heard), 0, "it is told again")
}

// An attempt with the wrong kind of lock is refused. It does not change the lock's directory, and the holder
// can still be seen.
func TestAttemptOfTheWrongKindWritesNothing(t *testing.T) {
	t.Parallel()
	shared(t)
	attempts := map[string]func(ctx context.Context, c *Client, d string) error{
		"permit": func(ctx context.Context, c *Client, d string) error { return errOf(c.Semaphore(d, 2).Acquire(ctx, 1)) },
		"try permit": func(ctx context.Context, c *Client, d string) error {
			return errOf(c.Semaphore(d, 2).TryAcquire(ctx, 1))
		},
		"permit of kazoo": func(ctx context.Context, c *Client, d string) error {
			return errOf(c.Semaphore(d, 2, WithLayout(LayoutKazoo)).Acquire(ctx, 1))
		},
		"number of permits": func(ctx context.Context, c *Client, d string) error { return c.Semaphore(d, 0).SetPermits(ctx, 3) },
		"policy write":      func(ctx context.Context, c *Client, d string) error { return errOf(policyWriteAt(c, d)(ctx)) },
		"policy read":       func(ctx context.Context, c *Client, d string) error { return errOf(policyReadAt(c, d)(ctx)) },
		"policy try": func(ctx context.Context, c *Client, d string) error {
			return errOf(c.RWMutex(d, WithPolicy(PolicyReader)).TryLock(ctx))
		},
	}
	for _, held := range []string{"mutex", "write"} {
		for name, attempt := range attempts {
			t.Run(name+" on "+held, func(t *testing.T) {
				t.Parallel()
				c, other, o, d, ctx := dial(t), dial(t), observer(t), dir(t), testCtx(t)
				f := mutexAt
				if held == "write" {
					f = writeAt
				}
				l := lock(t, f(c, d))
				expect.Is(t, attempt(ctx, other, d), ErrMixedLayout)
				data, _ := contentOf(t, o, d)
				expect.Equal(t, string(data), "", "data of the directory")
				queued(t, o, d, 1)
				q := must.Get(other.Inspector().Inspect(ctx, d))(t)
				must.Equal(t, len(q.Holders), 1, "holders")
				expect.Equal(t, q.Holders[0].Token, int64(l.Token()), "token of the holder")
				unlock(t, l)
				unlock(t, lock(t, c.Mutex(d, WithLockDelay(time.Hour)).Lock)) // fails if data were left
			})
		}
	}
}

// Release 0.1.0 may have left a record that does not fit the contenders. Such a record hides no contender.
func TestStrayRecordHidesNoHolder(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d, ctx := dial(t), observer(t), dir(t), testCtx(t)
	l := lock(t, c.Mutex(d).Lock)
	must.Get(o.Set(d, []byte(`{"zl":1,"limit":2}`), -1))(t)
	for _, beside := range []string{"", "/leases", "/locks"} {
		if beside != "" {
			must.Get(o.Create(d+beside, nil, 0, gozk.WorldACL(gozk.PermAll)))(t)
		}
		q := must.Get(c.Inspector().Inspect(ctx, d))(t)
		must.Equal(t, len(q.Holders), 1, "holders")
		expect.Equal(t, q.Holders[0].Token, int64(l.Token()), "token of the holder")
	}
	found := 0
	must.OK(t, c.Inspector().Walk(ctx, d, 0, func(q *recipe.Queue) error { found += len(q.Holders); return nil }))
	expect.Equal(t, found, 1, "holders that Walk finds")
	unlock(t, l)
}

// The limit of a set counts from the moment when all its locks are held.
func TestLimitOfASetCountsFromItsGrant(t *testing.T) {
	t.Parallel()
	shared(t)
	c, other, o, d, ctx := dial(t), dial(t), observer(t), dir(t), testCtx(t)
	second := lock(t, other.Mutex(d+"/b").Lock)
	limit := join(WithMaxHold(300*time.Millisecond, 0), WithLinger())
	got := make(chan error, 1)
	var set *Lease
	go func() {
		var err error
		set, err = c.All(ctx, c.Mutex(d+"/a").Request(limit), c.Mutex(d+"/b").Request(limit))
		got <- err
	}()
	queued(t, o, d+"/b", 2)
	first := names(t, o, d+"/a")
	not(t, "the set is granted", got, 700*time.Millisecond) // longer than the limit
	expect.List(t, names(t, o, d+"/a"), first, "the first lock's nodes")
	unlock(t, second)
	must.OK(t, soon(t, "the set", got))
	soon(t, "the end", set.Lost())
	lostFor(t, set.Unlock(ctx), MaxHold)
	queued(t, o, d+"/a", 0)
	queued(t, o, d+"/b", 0)
}

// Every value of a leader is shown unchanged, and none is read as a record or as a request to leave.
func TestLeaderValuesAreNoRecords(t *testing.T) {
	t.Parallel()
	shared(t)
	c, other := dial(t), dial(t)
	for _, value := range []string{"", "plain", `{"v":1}`, `{"v":1,"host":"10.0.0.7","port":8080}`,
		`{"v":1,"revoke":{"by":"api"}}`, "__REVOKE__", "x\x00__REVOKE__", "x\x00" + `{"v":1}`} {
		for _, layout := range []Layout{LayoutCurator, LayoutLatch, LayoutKazoo} {
			d, ctx := dir(t), testCtx(t)
			el := c.Election(d, WithLayout(layout), WithRevocable(0))
			l := must.Get(el.Campaign(ctx, []byte(value)))(t)
			for range 2 {
				leader := must.Get(other.Election(d, WithLayout(layout)).Leader(ctx))(t)
				expect.Equal(t, string(leader.Value), value, "%v", layout)
				must.OK(t, l.Check(ctx), "%v, %q", layout, value)
				must.OK(t, l.Publish(ctx, []byte("other")))
				must.OK(t, l.Publish(ctx, []byte(value)))
			}
			not(t, "a leader is asked to leave", l.Asked(), 0)
			q := must.Get(other.Inspector().Inspect(ctx, d))(t)
			must.Equal(t, len(q.Holders), 1, "holders")
			if o := q.Holders[0].Owner; o != nil {
				expect.That(t, o.Host != "10.0.0.7", "%q is taken for a host: %+v", value, o)
				expect.That(t, o.Revoke == nil, "%q is taken for a request: %+v", value, o)
			}
			unlock(t, l)
		}
	}
}

// Observe reports once why it cannot see the leader, and continues.
func TestObserveTellsOfARefusal(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx, cancel := context.WithCancel(testCtx(t))
	defer cancel()
	l := must.Get(dial(t).Election(d).Campaign(ctx, []byte("me")))(t)
	must.Get(o.SetACL(l.Node(), gozk.DigestACL(gozk.PermAll, "some", "body"), -1))(t)
	seen := c.Election(d).Observe(ctx)
	leader := soon(t, "the refusal", seen)
	expect.Is(t, leader.Err, ErrNoAuth)
	expect.That(t, !leader.None(), "no leader is told of")
	not(t, "the refusal is told again", seen, 200*time.Millisecond)
	unlock(t, l)
	expect.That(t, soon(t, "the end of the leader", seen).None(), "a leader")
}
