package client

import (
	"context"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
)

// waitsLocally starts a call and waits until it is behind a turn of the same process.
func waitsLocally(t *testing.T, c *Client, d string, layout Layout, m *RWMutex) granting {
	t.Helper()
	g := start(testCtx(t), m.Lock)
	key := localKey{layout, d}
	eventually(t, "a waiter in the process", func() bool { return c.localQueues.waiting(key) == 1 })
	return g
}

// A writer that waits in the process of a write lock does not get that lock's node
// when the lock has become a read lock: the readers beside it would not see the writer.
func TestWriterDoesNotInheritADowngradedLock(t *testing.T) {
	addr(t)
	leakCheck(t)
	for _, test := range []struct {
		name   string
		layout Layout
		opts   []Option
		ctx    func() context.Context // of Downgrade
	}{
		{"fair", LayoutCurator, nil, func() context.Context { return testCtx(t) }},
		{"policy", recipe.LayoutPolicy, []Option{WithPolicy(PolicyFair)}, func() context.Context { return testCtx(t) }},
		{"fair, under way", LayoutCurator, nil, endedCtx},
		{"policy, under way", recipe.LayoutPolicy, []Option{WithPolicy(PolicyFair)}, endedCtx},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b, d := dial(t), dial(t), dir(t)
			m := a.RWMutex(d, test.opts...)
			first := lock(t, m.Lock)
			next := waitsLocally(t, a, d, test.layout, m)
			if err := first.Downgrade(test.ctx()); err != nil && test.ctx().Err() == nil {
				t.Fatal(err)
			}
			reader := start(testCtx(t), b.RWMutex(d, test.opts...).RLock)
			unlock(t, first)
			// Either may be first, but the two exclude each other.
			var l *Lease
			select {
			case l = <-next.lease:
				not(t, "a reader beside a writer", reader.lease, 50*time.Millisecond)
				next.lease <- l
			case l = <-reader.lease:
				not(t, "a writer beside a reader", next.lease, 50*time.Millisecond)
				reader.lease <- l
			case <-time.After(patience):
				t.Fatal("the lock is granted to neither")
			}
			unlock(t, l)
			w := next.wait(t)
			if l == w {
				unlock(t, reader.wait(t))
			} else {
				unlock(t, w)
			}
			if w.h == first.h || w.Node() == first.Node() || w.Token() <= first.Token() {
				t.Errorf("a hold passed from one lease to another: %s with %d, then %s with %d", first.Node(), first.Token(), w.Node(), w.Token())
			}
		})
	}
}

func endedCtx() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A lock that is lost leaves neither its node nor the turn of its process behind, also
// when other calls of the process wait for it and its node lingers until Unlock.
func TestLostLockIsFreeForTheProcess(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, p := proxied(t)
	m := c.Mutex(dir(t), WithLimit(Limit{Linger: true}))
	for range 3 {
		l := lock(t, m.Lock)
		next := start(testCtx(t), m.Lock)
		expire(t, p)
		soon(t, "the loss", l.Lost())
		_ = l.Unlock(testCtx(t))
		unlock(t, next.wait(t))
	}
}
