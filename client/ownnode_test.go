package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// waitsLocally starts a call, and returns when the call waits for another call of the same process.
func waitsLocally(t *testing.T, c *Client, d string, layout Layout, m *RWMutex) granting {
	t.Helper()
	g := start(testCtx(t), m.Lock)
	eventually(t, "a waiter in the process", func() bool { return c.take.WaitHere(layout, d) == 1 })
	return g
}

// A write lock becomes a read lock while a writer of the same process waits. That writer must not take over
// the node: the other readers would not see the writer.
func TestWriterDoesNotInheritADowngradedLock(t *testing.T) {
	t.Parallel()
	shared(t)
	for _, test := range []struct {
		name   string
		layout Layout
		opts   []Option
		ctx    func() context.Context // returns the context for Downgrade
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
			err := first.Downgrade(test.ctx())
			must.That(t, err == nil || test.ctx().Err() != nil, "%v", err)
			reader := start(testCtx(t), b.RWMutex(d, test.opts...).RLock)
			unlock(t, first)
			// Either the writer or the reader may be first, but they exclude each other.
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
			expect.That(t, !w.hold().Nests(first.hold()), "a hold passed from one lease to another")
			expect.That(t, w.Node() != first.Node(), "the node %s was used again", w.Node())
			expect.That(t, w.Token() > first.Token(), "token %d after %d", w.Token(), first.Token())
		})
	}
}

func endedCtx() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// When a lock was lost, Unlock frees both the node and the turn of the process, so the next call of the
// process gets the lock.
func TestLostLockIsFreeForTheProcess(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	m := c.Mutex(dir(t), WithLinger())
	for range 3 {
		l := lock(t, m.Lock)
		next := start(testCtx(t), m.Lock)
		expire(t, p)
		soon(t, "the loss", l.Lost())
		_ = l.Unlock(testCtx(t))
		unlock(t, next.wait(t))
	}
}

// A server does not report the end of a node that a client may not read. A client that watched the node
// before it became unreadable must find out in another way, and soon.
func TestWaitersDoNotTrustANodeMadeUnreadable(t *testing.T) {
	t.Parallel()
	shared(t)
	o := observer(t)
	must.OK(t, o.AddAuth("digest", []byte("operator:secret")))
	hide := func(t *testing.T, node string) {
		t.Helper()
		must.OK(t, errOf(o.SetACL(node, []zk.ACL{{Perms: zk.PermAll, Scheme: "auth"}}, -1)))
	}
	waiters := map[string]func(c *Client, d string) (node string, end func(), done <-chan struct{}){}
	held := func(f, g func(c *Client, d string) taker) func(*Client, string) (string, func(), <-chan struct{}) {
		return func(c *Client, d string) (string, func(), <-chan struct{}) {
			h := lock(t, f(dial(t), d))
			call, done := start(testCtx(t), g(c, d)), make(chan struct{})
			eventually(t, "the waiter's place", func() bool { return len(names(t, o, d)) > 1 })
			go func() {
				defer close(done)
				call.wait(t)
			}()
			return h.Node(), func() { unlock(t, h) }, done
		}
	}
	mutex := func(c *Client, d string) taker {
		return c.Mutex(d).Lock
	}
	waiters["mutex"] = held(mutex, mutex)
	write := func(c *Client, d string) taker {
		return c.RWMutex(d).Lock
	}
	read := func(c *Client, d string) taker {
		return c.RWMutex(d).RLock
	}
	waiters["read"] = held(write, read)
	waiters["write"] = held(read, write)
	waiters["policy"] = held(func(c *Client, d string) taker {
		return c.RWMutex(d, WithPolicy(PolicyFair)).RLock
	}, func(c *Client, d string) taker {
		return c.RWMutex(d, WithPolicy(PolicyFair)).Lock
	})
	for name, wait := range waiters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dir(t)
			// The client looks at the node again only after a part of the session timeout, so the timeout is short.
			c, p := proxied(t, WithSessionTimeout(8*time.Second))
			p.Record()
			node, end, done := wait(c, d)
			eventually(t, "the waiter to watch", func() bool {
				return p.Count(func(f faultproxy.Frame) bool {
					return f.Kind == faultproxy.Reply && f.Path == node && (f.Op == faultproxy.OpGetData || f.Op == faultproxy.OpExists)
				}) > 0
			})
			hide(t, node)
			end()
			soon(t, "the waiter to be told or to look", done)
		})
	}
}

// A holder that may not read its own node gets no event when the node is removed. It keeps the lock while the
// node exists, and loses the lock when the node is removed.
func TestHolderOfANodeMadeUnreadable(t *testing.T) {
	t.Parallel()
	shared(t)
	o := observer(t)
	must.OK(t, o.AddAuth("digest", []byte("operator:secret")))
	for name, take := range map[string]func(c *Client, d string) taker{
		"mutex": func(c *Client, d string) taker {
			return c.Mutex(d).Lock
		},
		"policy": func(c *Client, d string) taker {
			return c.RWMutex(d, WithPolicy(PolicyFair)).RLock
		},
	} {
		for _, dirToo := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, directory too %v", name, dirToo), func(t *testing.T) {
				t.Parallel()
				d := dir(t)
				c, p := proxied(t, WithSessionTimeout(8*time.Second))
				l := lock(t, take(c, d))
				eventually(t, "the node to be watched", func() bool { return c.keeper.Conn().Watches() > 0 })
				hidden := []string{l.Node()}
				if dirToo {
					hidden = append(hidden, d)
				}
				for _, node := range hidden {
					must.OK(t, errOf(o.SetACL(node, []zk.ACL{{Perms: zk.PermAll, Scheme: "auth"}}, -1)))
				}
				p.Record()
				eventually(t, "the holder to look again, twice", func() bool { return under(p, l.Node(), faultproxy.OpGetData) >= 2 })
				err := l.Err()
				must.OK(t, err)
				must.OK(t, l.Err(), "the lease")
				remove(t, o, l.Node())
				soon(t, "the holder to be told or to look", l.Lost())
				expect.Equal(t, l.reason(), Removed, "lost: %v", l.Err())
			})
		}
	}
}

// A waiter's node and its predecessor's are removed while the waiter has no connection. Whichever event comes
// first, the waiter is not granted the lock.
func TestWaiterRemovedWithoutAConnectionIsNotGranted(t *testing.T) {
	t.Parallel()
	shared(t)
	o, holder := observer(t), dial(t)
	enqueued := make(chan string, 4)
	c, p := proxied(t, on(EventQueued, func(e Event) { enqueued <- e.Node }))
	for i := range rounds(100, 12) {
		d := dir(t)
		h := lock(t, holder.Mutex(d).Lock)
		g := start(testCtx(t), c.Mutex(d).Lock)
		node := soon(t, "its place", enqueued)
		eventually(t, "both nodes to be watched", func() bool { return c.keeper.Conn().Watches() >= 2 })
		p.Refuse(true)
		p.Cut()
		remove(t, o, node)
		unlock(t, h)
		p.Refuse(false)
		l := g.wait(t)
		must.That(t, l.Node() != node, "round %d: the lock is held by a node that was removed", i)
		soon(t, "another place", enqueued)
		unlock(t, l)
		eventually(t, "no watch", func() bool { return c.keeper.Conn().Watches() == 0 })
	}
}

// An operator removes a waiter's node. The waiter has lost its place: when the holder releases, it is not
// granted the lock but queues again at the end.
func TestRemovedWaiterIsNotGranted(t *testing.T) {
	t.Parallel()
	shared(t)
	o := observer(t)
	for _, ahead := range []int{0, 1} { // how many waiters stand before the removed one, not counting the holder
		d := dir(t)
		holder := lock(t, dial(t).Mutex(d).Lock)
		between := make([]granting, ahead)
		for i := range between {
			between[i] = start(testCtx(t), dial(t).Mutex(d).Lock)
			queued(t, o, d, 2+i)
		}
		enqueued := make(chan string, 4)
		hooks := on(EventQueued, func(e Event) { enqueued <- e.Node })
		c := dial(t)
		removed := start(testCtx(t), c.Mutex(d, hooks).Lock)
		node := soon(t, "its place", enqueued)
		eventually(t, "its watch", func() bool { return c.keeper.Conn().Watches() > 0 })
		next := start(testCtx(t), dial(t).Mutex(d).Lock)
		queued(t, o, d, 3+ahead)
		must.OK(t, o.Delete(node, -1))
		unlock(t, holder)
		for _, g := range between {
			unlock(t, g.wait(t))
		}
		l := next.wait(t)
		not(t, "a second holder", removed.lease, 20*time.Millisecond)
		unlock(t, l)
		if again := removed.wait(t); again.Node() == node {
			t.Error("the lock is held by a node that was removed")
		} else {
			unlock(t, again)
		}
	}
}

// If a session was ended by force before Unlock was called, another holder may have been active since then.
// So Unlock must not return nil.
func TestUnlockTellsOfASessionThatWasEndedByForce(t *testing.T) {
	t.Parallel()
	shared(t)
	for _, simple := range []bool{true, false} {
		d := dir(t)
		c, p := proxied(t, WithSessionTimeout(30*time.Second))
		m := c.Mutex(d)
		if !simple {
			m = c.Mutex(d, WithLockDelay(time.Nanosecond))
		}
		l := lock(t, m.Lock)
		p.Refuse(true)
		p.Cut()
		expire(t, p)
		other := lock(t, dial(t).Mutex(d).Lock)
		must.That(t, l.Valid(), "the loss is known already")
		res := make(chan error, 1)
		go func() { res <- l.Unlock(testCtx(t)) }()
		not(t, "Unlock knows the outcome", res, 10*time.Millisecond)
		p.Refuse(false)
		var lost *LostError
		err := soon(t, "Unlock", res)
		expect.That(t, errors.As(err, &lost), "simple %v: Unlock returned %v beside another holder", simple,
			err)
		expect.Equal(t, lost.Reason, Expired, "simple %v", simple)
		unlock(t, other)
	}
}

// If a leader's own request finds that the leader's node is gone, the lease is lost.
func TestRequestTellsOfTheLossOfTheLease(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	el := c.Election(d + "/e")
	l := must.Get(el.Campaign(testCtx(t), []byte("a")))(t)
	must.OK(t, observer(t).Delete(l.Node(), -1))
	expect.Is(t, l.Publish(testCtx(t), []byte("b")), ErrLost)
}

// When a set is lost, the error names the lock that caused the loss.
func TestLossOfASetNamesTheLock(t *testing.T) {
	t.Parallel()
	c, d, o := dial(t), dir(t), observer(t)
	for _, opts := range [][]Option{nil, {WithoutRequeue()}} {
		for how, notice := range map[string]func(*Lease) error{
			"watch": func(l *Lease) error { soon(t, "the loss", l.Lost()); return l.Err() },
			"check": func(l *Lease) error { return l.Check(testCtx(t)) },
			"txn":   func(l *Lease) error { _, err := l.Txn(testCtx(t)); return err },
		} {
			t.Run(how, func(t *testing.T) {
				set := must.Get(c.All(testCtx(t), c.Mutex(d+"/a").Request(opts...),
					c.RWMutex(d+"/b").Request(fence.Shared)))(t)
				node := set.Nodes()[1]
				must.OK(t, o.Delete(node, -1))
				var lost *LostError
				err := notice(set)
				must.That(t, errors.As(err, &lost), "%s, %d options: %v is no loss", how, len(opts), err)
				want := LostError{Path: d + "/b", Node: node, Reason: Removed}
				expect.Equal(t, *lost, want, "%s, %d options", how, len(opts))
				expect.Is(t, set.Unlock(context.Background()), ErrLost)
				queued(t, o, d+"/a", 0)
			})
		}
	}
}

// If a set may not queue again, its error tells what happened to the lock that it had.
func TestSetThatLosesALockOnTheWaySaysWhy(t *testing.T) {
	t.Parallel()
	d, o, other := dir(t), observer(t), dial(t)
	lost := make(chan Event, 10)
	c := dial(t, on(EventLost, func(e Event) { lost <- e }))
	b := lock(t, other.Mutex(d+"/b").Lock)
	set := start(testCtx(t), func(ctx context.Context, _ ...Option) (*Lease, error) {
		return c.All(ctx, c.Mutex(d+"/a").Request(WithoutRequeue()), c.Mutex(d+"/b").Request())
	})
	queued(t, o, d+"/b", 2)
	must.OK(t, o.Delete(d+"/a/"+names(t, o, d+"/a")[0], -1))
	soon(t, "the loss", lost)
	unlock(t, b)
	err := set.fails(t)
	expect.Is(t, err, ErrNodeRemoved, "why the set fails")
	expect.That(t, !errors.Is(err, ErrSessionExpired), "the session lives: %v", err)
	queued(t, o, d+"/a", 0)
	queued(t, o, d+"/b", 0)
}

// A lease has one sequencer for each of its locks, and each sequencer is current.
func TestSequencersAreCurrent(t *testing.T) {
	t.Parallel()
	c, d := dial(t), dir(t)
	policy := c.RWMutex(d+"/policy", WithPolicy(PolicyFair))
	for name, take := range map[string]taker{
		"write": c.RWMutex(d + "/rw").Lock, "policy write": policy.Lock, "policy read": policy.RLock,
		"policy upgrade": changing(policy.RLock, (*Lease).Upgrade), "policy downgrade": changing(policy.Lock, (*Lease).Downgrade),
		"downgrade": changing(c.RWMutex(d+"/rw").Lock, (*Lease).Downgrade),
		"set": func(ctx context.Context, _ ...Option) (*Lease, error) {
			return c.All(ctx, policy.Request(fence.Exclusive), c.Mutex(d+"/a").Request())
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := lock(t, take)
			paths := map[string]bool{}
			for _, s := range l.Sequencers() {
				expect.OK(t, c.CheckSequencer(testCtx(t), s), "%s: %+v", name, s)
				expect.That(t, !paths[s.Path], "%s: two sequencers of %s", name, s.Path)
				expect.Equal(t, s.Mode, l.Mode(), "%s: mode of %+v", name, s)
				paths[s.Path] = true
			}
			unlock(t, l)
		})
	}
}
