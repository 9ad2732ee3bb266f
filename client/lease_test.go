package client

import (
	"context"
	"errors"
	"testing"
	"time"
)

type valueKey struct{}

// The context given to Lock limits the wait. The hold is another matter.
func TestLeaseOutlivesTheContextOfTheWait(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, d := dial(t), dir(t)
	wait, cancel := context.WithTimeout(context.WithValue(testCtx(t), valueKey{}, "v"), patience)
	l := must[*Lease](t)(c.Mutex(d).Lock(wait))
	cancel()
	if l.Context().Err() != nil || !l.Valid() || l.Context().Value(valueKey{}) != "v" {
		t.Fatalf("%v, valid %v", l.Context().Err(), l.Valid())
	}
	if _, ok := l.Context().Deadline(); ok {
		t.Fatal("the wait's deadline is the hold's")
	}
	unlock(t, l)
	if context.Cause(l.Context()) != context.Canceled {
		t.Fatal(context.Cause(l.Context()))
	}
}

func TestLeaseEndsWithTheLeaseAroundIt(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o, d := dial(t), observer(t), dir(t)
	outer := lock(t, c.Mutex(d+"/outer").Lock)
	inner := must[*Lease](t)(c.Mutex(d + "/inner").Lock(outer.Context()))
	other := must[*Lease](t)(c.Mutex(d + "/other").Lock(outer.Context()))
	unlock(t, other)
	remove(t, o, outer.Node())
	soon(t, "the end of the work", inner.Context().Done())
	var le *LostError
	if err := context.Cause(inner.Context()); !errors.As(err, &le) || le.Path != d+"/outer" {
		t.Fatalf("%v", err)
	}
	if context.Cause(other.Context()) != context.Canceled {
		t.Fatal("unlocked before")
	}
	unlock(t, inner) // it was not lost itself
	outer.Unlock(testCtx(t))
}

func TestDoEndsTheWorkWithItsContext(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, d := dial(t), dir(t)
	own := errors.New("that is enough")
	ctx, cancel := context.WithCancelCause(testCtx(t))
	err := c.Mutex(d).Do(ctx, func(ctx context.Context, l *Lease) error {
		if _, err := c.Mutex(d).Lock(ctx); !errors.Is(err, ErrSelfDeadlock) {
			t.Errorf("the context does not say what it holds: %v", err)
		}
		cancel(own)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, own) || errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	unlock(t, lock(t, c.Mutex(d).Lock))
}

func TestWaitHasALimitOfItsOwn(t *testing.T) {
	addr(t)
	leakCheck(t)
	a, b, o, d := dial(t), dial(t), observer(t), dir(t)
	l := lock(t, a.Mutex(d).Lock)
	_, err := b.Mutex(d).Lock(testCtx(t), WithWait(20*time.Millisecond))
	if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
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

// Locking twice without passing the lease's context on would wait forever.
func TestNamedTaskDoesNotWaitForItself(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, d := dial(t), dir(t)
	task, other := Task(testCtx(t), "order 4711"), Task(testCtx(t), "order 4712")
	m, rw := c.Mutex(d), c.RWMutex(d+"/rw")
	l := must[*Lease](t)(m.Lock(task))
	if _, err := m.Lock(task); !errors.Is(err, ErrSelfDeadlock) {
		t.Fatal(err)
	}
	if _, err := c.AcquireAll(task, rw.Request(1), m.Request()); !errors.Is(err, ErrSelfDeadlock) {
		t.Fatal(err)
	}
	g := start(other, m.Lock)
	unlock(t, l)
	mine := g.wait(t)
	again := start(task, m.Lock) // not held by this task any more
	unlock(t, mine)
	unlock(t, again.wait(t))

	r := must[*Lease](t)(rw.RLock(task))
	unlock(t, must[*Lease](t)(rw.RLock(task))) // readers do not wait for each other
	if _, err := rw.Lock(task); !errors.Is(err, ErrSelfDeadlock) {
		t.Fatal(err)
	}
	unlock(t, r)
	set := must[*Lease](t)(c.AcquireAll(task, rw.Request(1), m.Request()))
	if _, err := m.TryLock(task); !errors.Is(err, ErrSelfDeadlock) || !errors.Is(err, ErrNotAcquired) {
		t.Fatal(err)
	}
	unlock(t, set)
	if len(c.named.m) != 0 {
		t.Fatalf("left: %v", c.named.m)
	}
	// What is lost is not held.
	l = must[*Lease](t)(m.Lock(task))
	remove(t, observer(t), l.Node())
	soon(t, "loss", l.Lost())
	unlock(t, must[*Lease](t)(m.Lock(task)))
	l.Unlock(task)
}
