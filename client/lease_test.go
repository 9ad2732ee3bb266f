package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	czk "github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

type valueKey struct{}

// The context given to Lock limits the wait, not the hold.
func TestLeaseOutlivesTheContextOfTheWait(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	wait, cancel := context.WithTimeout(context.WithValue(testCtx(t), valueKey{}, "v"), patience)
	l := must.Get(c.Mutex(d).Lock(wait))(t)
	cancel()
	must.OK(t, l.Context().Err(), "context of the lease")
	must.OK(t, l.Err(), "lease")
	must.Equal(t, l.Context().Value(valueKey{}), any("v"), "value of the context")
	_, ok := l.Context().Deadline()
	must.That(t, !ok, "the wait's deadline is the hold's")
	unlock(t, l)
	must.Equal(t, context.Cause(l.Context()), context.Canceled)
}

func TestLeaseEndsWithTheLeaseAroundIt(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	outer := lock(t, c.Mutex(d+"/outer").Lock)
	inner := must.Get(c.Mutex(d + "/inner").Lock(outer.Context()))(t)
	other := must.Get(c.Mutex(d + "/other").Lock(outer.Context()))(t)
	unlock(t, other)
	remove(t, o, outer.Node())
	soon(t, "the end of the work", inner.Context().Done())
	var le *LostError
	err := context.Cause(inner.Context())
	must.That(t, errors.As(err, &le), "%v is no loss", err)
	must.Equal(t, le.Path, d+"/outer")
	must.Equal(t, context.Cause(other.Context()), context.Canceled, "unlocked before")
	unlock(t, inner) // the inner lease was not lost
	outer.Unlock(testCtx(t))
}

func TestDoEndsTheWorkWithItsContext(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d := dial(t), dir(t)
	own := errors.New("that is enough")
	ctx, cancel := context.WithCancelCause(testCtx(t))
	err := c.Mutex(d).Do(ctx, func(ctx context.Context, l *Lease) error {
		expect.Is(t, expect.Err(c.Mutex(d).Lock(ctx)), ErrSelfDeadlock,
			"the context does not say what it holds")
		cancel(own)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	must.Is(t, err, own)
	must.That(t, !errors.Is(err, ErrLost), "%v tells of a loss", err)
	unlock(t, lock(t, c.Mutex(d).Lock))
}

func TestWaitHasALimitOfItsOwn(t *testing.T) {
	t.Parallel()
	shared(t)
	a, b, o, d := dial(t), dial(t), observer(t), dir(t)
	l := lock(t, a.Mutex(d).Lock)
	_, err := b.Mutex(d).Lock(testCtx(t), WithWait(20*time.Millisecond))
	must.Is(t, err, ErrNotAcquired)
	must.Is(t, err, context.DeadlineExceeded)
	queued(t, o, d, 1)
	unlock(t, l)
	if err := b.Mutex(d).Do(testCtx(t), func(ctx context.Context, l *Lease) error {
		if at, ok := ctx.Deadline(); ok && time.Until(at) < patience {
			t.Errorf("the work has %v", time.Until(at))
		}
		return nil
	}, WithWait(patience)); err != nil {
		t.Fatal(err)
	}
}

func TestMutexIsGrantedAndGivenBack(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	must.That(t, l.Valid(), "not valid")
	must.OK(t, l.Err())
	must.That(t, l.Token() > 0, "token %d, want more than 0", l.Token())
	must.Equal(t, len(names(t, o, d)), 1, "nodes")
	must.OK(t, l.Check(context.Background()))
	unlock(t, l)
	must.Equal(t, len(names(t, o, d)), 0, "nodes left")
	must.That(t, !l.Valid(), "the lease outlives Unlock")
	must.That(t, l.Context().Err() != nil, "the context outlives Unlock")
}

func TestMutexExcludesAndTokensGrow(t *testing.T) {
	t.Parallel()
	shared(t)
	d := dir(t)
	ctx := testCtx(t)
	var mu sync.Mutex
	var last, inside int64
	var wg sync.WaitGroup
	for range 4 {
		c := dial(t)
		for range 2 {
			wg.Go(func() {
				for range 20 {
					l, err := c.Mutex(d).Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					inside++
					expect.Equal(t, inside, 1, "holders")
					expect.That(t, int64(l.Token()) > last, "token %d after %d", l.Token(), last)
					last = int64(l.Token())
					mu.Unlock()
					time.Sleep(100 * time.Microsecond)
					mu.Lock()
					inside--
					mu.Unlock()
					expect.OK(t, l.Unlock(ctx))
				}
			})
		}
	}
	wg.Wait()
}

// Mutex.Do returns the loss of the lease, whatever error f returns.
func TestDoTellsTheLossWhateverFReturns(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o := dial(t), observer(t)
	own := errors.New("own error")
	for name, end := range map[string]struct {
		f    func(context.Context, *Lease) error
		also error
	}{
		"nil": {func(ctx context.Context, _ *Lease) error { <-ctx.Done(); return nil }, nil},
		"ctx.Err": {func(ctx context.Context, _ *Lease) error { <-ctx.Done(); return ctx.Err() },
			context.Canceled},
		"own error": {func(ctx context.Context, _ *Lease) error { <-ctx.Done(); return own }, own},
		"unlocked":  {func(ctx context.Context, l *Lease) error { <-ctx.Done(); l.Unlock(ctx); return own }, own},
	} {
		t.Run(name, func(t *testing.T) {
			d := dir(t)
			err := c.Mutex(d).Do(testCtx(t), func(ctx context.Context, l *Lease) error {
				if err := o.Delete(l.Node(), -1); err != nil {
					return err
				}
				return end.f(ctx, l)
			})
			var le *LostError
			must.Is(t, err, ErrLost)
			must.That(t, errors.As(err, &le), "%v does not say why", err)
			must.Equal(t, le.Reason, Removed)
			if end.also != nil {
				must.Is(t, err, end.also)
			}
		})
	}
	if err := c.Mutex(dir(t)).Do(testCtx(t), func(ctx context.Context, l *Lease) error {
		l.Unlock(ctx)
		return own
	}); err != own {
		t.Fatalf("unlocked by f: %v", err)
	}
}

// A lease that is nested in a set belongs to one lock of the set, and has that lock's mode and token.
func TestLeaseNestedInASetIsOfItsOwnLock(t *testing.T) {
	t.Parallel()
	c, d, o := dial(t), dir(t), observer(t)
	ctx := testCtx(t)
	a, b := c.RWMutex(d+"/a", WithReentrant()), c.RWMutex(d+"/b", WithReentrant())
	set := must.Get(c.All(ctx, a.Request(fence.Exclusive), b.Request(fence.Shared)))(t)
	expect.Is(t, expect.Err(b.Lock(set.Context())), ErrSelfDeadlock, "a write lock in a read lock")
	read := must.Get(b.RLock(set.Context()))(t)
	write := must.Get(a.Lock(set.Context()))(t)
	for i, l := range []*Lease{write, read} {
		s := set.Sequencers()[i]
		expect.Equal(t, l.Sequencer(), s)
		expect.Equal(t, len(l.Sequencers()), 1, "sequencers")
		expect.Equal(t, l.Path(), s.Path)
		expect.Equal(t, l.Token(), s.Token)
		expect.Equal(t, l.Node(), s.NodePath())
		expect.Equal(t, len(l.Nodes()), 1, "nodes")
	}
	unlock(t, set)
	n, m := len(names(t, o, d+"/a")), len(names(t, o, d+"/b"))
	expect.Equal(t, n, 1, "nodes of the one, while the nested leases are held")
	expect.Equal(t, m, 1, "nodes of the other, while the nested leases are held")
	unlock(t, read)
	unlock(t, write)
	queued(t, o, d+"/a", 0)
	queued(t, o, d+"/b", 0)
	set = must.Get(c.All(testCtx(t), c.RWMutex(d+"/a").Request(fence.Shared),
		c.RWMutex(d+"/b").Request(fence.Exclusive)))(t)
	unlock(t, must.Get(c.RWMutex(d+"/b", WithReentrant()).Lock(set.Context()))(t))
	unlock(t, set)
}

// If a read lease is nested in a mutex and the mutex's lease is unlocked first, the read lease keeps the
// node.
func TestUnlockOfAMutexBeforeAReadLockNestedInIt(t *testing.T) {
	t.Parallel()
	c, d, o := dial(t), dir(t), observer(t)
	outer := lock(t, c.Mutex(d).Lock)
	inner := must.Get(c.RWMutex(d, WithReentrant()).RLock(outer.Context()))(t)
	unlock(t, outer)
	expect.OK(t, inner.Err(), "the last lease")
	expect.Equal(t, len(names(t, o, d)), 1, "nodes before the last lease ends")
	unlock(t, inner)
	queued(t, o, d, 0)
}

// The function f of Mutex.Do belongs to the task of the lease, also in the wait graph.
func TestDoIsOneTaskWithItsLease(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	err := c.Mutex(d).Do(testCtx(t), func(ctx context.Context, l *Lease) error {
		return c.Mutex(d+"/inner").Do(ctx, func(_ context.Context, inner *Lease) error {
			outer, in := must.Get(c.Inspector().Inspect(ctx, d))(t).Holders[0],
				must.Get(c.Inspector().Inspect(ctx, d+"/inner"))(t).Holders[0]
			expect.Equal(t, outer.Owner.Task, in.Owner.Task, "tasks %q", outer.Owner.Task)
			return nil
		})
	})
	expect.OK(t, err)
}

// Release does not wait for the server. The lock is released even if the first request is lost.
func TestReleaseComesAboutAllTheSame(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	for _, what := range []faultproxy.Action{faultproxy.Hold, faultproxy.CutBefore} {
		r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpDelete, Under: d, Nth: 1, Do: what})
		l := lock(t, c.Mutex(d).Lock)
		must.OK(t, l.Release()) // Unlock would wait forever
		soon(t, "the request", r.Acted())
		expect.That(t, what != faultproxy.Hold || len(names(t, o, d)) == 1,
			"it was released although its request is held")
		r.Release()
		queued(t, o, d, 0)
		r.Remove()
	}
}

// With WithLinger, the next holder gets the lock only after Unlock, although the lease was lost before.
func TestLingeringNodeStaysUntilUnlock(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	l := lock(t, c.Mutex(d, join(WithMaxHold(50*time.Millisecond, 10*time.Millisecond), WithLinger())).Lock)
	soon(t, "the lease is lost", l.Lost())
	next := start(testCtx(t), dial(t).Mutex(d).Lock)
	queued(t, o, d, 2)
	not(t, "the next holder is granted before Unlock", next.lease, 100*time.Millisecond)
	must.Is(t, l.Unlock(context.Background()), ErrLost, "unlock")
	unlock(t, next.wait(t))
}

// A client forgets each hold when the hold ends.
func TestHoldsAreForgottenWithTheirEnd(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	holds := present(t, c).Dependents
	l := lock(t, c.Mutex(d).Lock)
	expect.Equal(t, holds(), 1, "holds of one lock")
	unlock(t, l)
	eventually(t, "the hold to be forgotten", func() bool { return holds() == 0 })
}

// Close ends the leases at once, although it may take long to remove nodes.
func TestCloseEndsLeasesBeforeItCleansUp(t *testing.T) {
	t.Parallel()
	shared(t)
	c := dialTo(t, addr(t), steady()...)
	l := lock(t, c.Mutex(dir(t)).Lock)
	ctx, cancel := context.WithCancel(testCtx(t))
	// This node cannot be removed.
	c.keeper.LeaveBehind([]string{"/a"}, func(context.Context) { <-ctx.Done() })
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(ctx) }()
	soon(t, "the loss", l.Lost())
	select {
	case err := <-closed:
		t.Errorf("Close has returned %v", err)
	default:
	}
	cancel()
	expect.Is(t, soon(t, "Close", closed), context.Canceled)
}

// If one request of a set has WithWait(0) and another has no limit, the set still waits for the other lock.
func TestSetWaitsForEachLockAsItSays(t *testing.T) {
	t.Parallel()
	c, d, o := dial(t), dir(t), observer(t)
	a, b := c.Mutex(d+"/a"), c.Mutex(d+"/b")
	held := lock(t, dial(t).Mutex(d+"/b").Lock)
	g := start(testCtx(t), func(ctx context.Context, _ ...Option) (*Lease, error) {
		return c.All(ctx, a.Request(WithWait(0)), b.Request())
	})
	queued(t, o, d+"/b", 2)
	other := expect.Err(c.All(testCtx(t), c.Mutex(d+"/0").Request(), b.Request(WithWait(0))))
	expect.Is(t, other, ErrNotAcquired)
	unlock(t, held)
	unlock(t, g.wait(t))
}

// If a call may not wait, and its own context holds the lock, the error is both ErrNotAcquired and
// ErrSelfDeadlock.
func TestSelfDeadlockOfACallThatMayNotWait(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	l := lock(t, c.Mutex(d).Lock)
	for _, err := range []error{
		expect.Err(c.Mutex(d).Lock(l.Context(), WithWait(0))), expect.Err(c.Mutex(d).TryLock(l.Context())),
	} {
		expect.Is(t, err, ErrNotAcquired)
		expect.Is(t, err, ErrSelfDeadlock)
	}
	unlock(t, l)
}

// If the context of a transaction ends before the answer comes, the outcome is unknown. If another program
// replaces the node of a hold, the lease is lost.
func TestHoldWhoseNodeIsReplaced(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	o, d, ctx := observer(t), dir(t), testCtx(t)
	l := lock(t, c.Mutex(d+"/l").Lock)
	hold := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpMulti, Nth: 1, Do: faultproxy.Hold})
	cut, stop := context.WithCancel(ctx)
	go func() {
		<-hold.Acted()
		stop()
	}()
	_, err := l.Txn(cut, czk.Create{Path: d + "/c"})
	must.Is(t, err, czk.ErrUncertain)
	must.Is(t, err, context.Canceled)
	hold.Remove()

	must.OK(t, o.Delete(l.Node(), -1))
	_, err = o.Create(l.Node(), nil, 0, zk.WorldACL(zk.PermAll))
	must.OK(t, err)
	must.Is(t, l.Check(ctx), ErrLost)
	_, err = l.Txn(ctx, czk.Create{Path: d + "/d"})
	must.Is(t, err, ErrLost)
	lostFor(t, l.Unlock(ctx), Removed)
}

// A sequencer is current only if its node exists and has its token.
func TestSequencersThatAreStale(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d, ctx := dial(t), dir(t), testCtx(t)
	l := lock(t, c.RWMutex(d).Lock)
	seq := l.Sequencer()
	must.OK(t, c.CheckSequencer(ctx, seq))
	for name, change := range map[string]func(*fence.Sequencer){
		"an older hold": func(s *fence.Sequencer) { s.Token-- },
		"a later hold":  func(s *fence.Sequencer) { s.Token++ },
		"another node":  func(s *fence.Sequencer) { s.Node += "0" },
		"a reader that came later": func(s *fence.Sequencer) {
			s.Mode = fence.Shared
			s.Token++
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := seq
			change(&other)
			must.Is(t, c.CheckSequencer(ctx, other), fence.ErrStale, "%s", name)
		})
	}
	must.OK(t, l.Downgrade(ctx))
	must.OK(t, c.CheckSequencer(ctx, l.Sequencer()))
	unlock(t, l)
	must.Is(t, c.CheckSequencer(ctx, seq), fence.ErrStale)
}

// The event function of a lock reports only events of that lock, also for the first lock of a set.
func TestEventsOfALockInASet(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	events := make(chan string, 10)
	hears := WithEvents(func(ev Event) {
		if ev.Kind == EventGranted || ev.Kind == EventReleased {
			events <- ev.Kind.String() + " " + ev.Path
		}
	})
	unlock(t, must.Get(c.All(testCtx(t), c.Mutex(d+"/a").Request(hears), c.Mutex(d+"/b").Request()))(t))
	unlock(t, lock(t, c.Mutex(d+"/c").Lock, hears))
	for _, want := range []string{"granted /a", "released /a", "granted /c", "released /c"} {
		what, path, _ := strings.Cut(want, " ")
		must.Equal(t, soon(t, want, events), what+" "+d+path)
	}
}
