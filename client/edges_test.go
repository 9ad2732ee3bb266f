package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	gozk "github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/faultproxy"
)

// A waiter whose node an operator removes has no place: it is not granted the lock when the
// holder goes, but queues again behind the next one.
func TestRemovedWaiterIsNotGranted(t *testing.T) {
	addr(t)
	leakCheck(t)
	o := observer(t)
	for _, ahead := range []int{0, 1} { // of the waiter that is removed, beside the holder
		d := dir(t)
		holder := lock(t, dial(t).Mutex(d).Lock)
		between := make([]granting, ahead)
		for i := range between {
			between[i] = start(testCtx(t), dial(t).Mutex(d).Lock)
			queued(t, o, d, 2+i)
		}
		enqueued := make(chan string, 4)
		hooks := WithHooks(Hooks{OnEnqueue: func(e LockEvent) { enqueued <- e.Node }})
		c := dial(t)
		removed := start(testCtx(t), c.Mutex(d, hooks).Lock)
		node := soon(t, "its place", enqueued)
		eventually(t, "its watch", func() bool { return c.Stats().Watches > 0 })
		next := start(testCtx(t), dial(t).Mutex(d).Lock)
		queued(t, o, d, 3+ahead)
		if err := o.Delete(node, -1); err != nil {
			t.Fatal(err)
		}
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

// A permit is not the lock of its path: a mutex below it does not nest in it.
func TestPermitIsNoMutex(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, d := dial(t), dir(t)
	p := must[*Lease](t)(c.Semaphore(d, 3).Acquire(testCtx(t), 1))
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	if l, err := c.Mutex(d, WithReentrant()).Lock(ctx); !errors.Is(err, ErrMixedLayout) {
		t.Errorf("a mutex below a permit: %v, %v", l, err)
	}
	unlock(t, p)
}

// A semaphore leaves data alone that another program keeps at its path.
func TestSemaphoreLeavesForeignDataAlone(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o := dial(t), observer(t)
	for _, layout := range []Layout{LayoutCurator, LayoutKazoo} {
		const theirs = "host=db1;user=app"
		unlock(t, lock(t, c.Mutex(dir(t)+"/x").Lock)) // makes /t
		d := dir(t)
		if _, err := o.Create(d, []byte(theirs), 0, gozk.WorldACL(gozk.PermAll)); err != nil {
			t.Fatal(err)
		}
		s := c.Semaphore(d, 3, WithLayout(layout))
		if _, err := s.Acquire(testCtx(t), 1); err == nil {
			t.Errorf("%v: granted", layout)
		}
		if err := s.SetLimit(testCtx(t), 4); err == nil {
			t.Errorf("%v: the limit was stored", layout)
		}
		if b, _ := contentOf(t, o, d); string(b) != theirs {
			t.Errorf("%v: the data are %q now", layout, b)
		}
	}
}

// One path that the server refuses says nothing about containers.
func TestBadPathLeavesContainersAlone(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, p := proxied(t)
	if _, err := c.Mutex("/t/\U0001F512/a").Lock(testCtx(t)); err == nil {
		t.Fatal("a path beyond the basic plane was taken")
	}
	d := dir(t)
	p.Record()
	unlock(t, lock(t, c.Mutex(d+"/a").Lock))
	if under(p, d, int32(jute.OpCreateContainer)) == 0 {
		t.Error("the directory is no container")
	}
}

// kazoo makes a lock's directory once and not again, so in its layout a directory stays.
func TestKazooDirectoriesStay(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, p := proxied(t)
	d := dir(t)
	p.Record()
	unlock(t, lock(t, c.Mutex(d+"/mutex", WithLayout(LayoutKazoo)).Lock))
	unlock(t, must[*Lease](t)(c.Semaphore(d+"/semaphore", 1, WithLayout(LayoutKazoo)).Acquire(testCtx(t), 1)))
	unlock(t, must[*Lease](t)(c.Election(d+"/election", WithLayout(LayoutKazoo)).Campaign(testCtx(t), nil)))
	for _, f := range p.Frames() {
		path := strings.TrimPrefix(f.Path, d+"/")
		if f.Kind == faultproxy.Request && f.Op == int32(jute.OpCreateContainer) && path != f.Path {
			t.Errorf("%s is a container", f.Path)
		}
	}
}

// A leader that is asked to leave keeps the value by which others find it.
func TestRevokedLeaderKeepsItsValue(t *testing.T) {
	addr(t)
	leakCheck(t)
	a, b, d := dial(t), dial(t), dir(t)
	const value = "10.0.0.1:8080"
	l := must[*Lease](t)(a.Election(d).Campaign(testCtx(t), []byte(value)))
	if err := b.Inspector().Revoke(testCtx(t), d, recipe.Base(l.Node()), recipe.Revocation{By: "operator"}); err != nil {
		t.Fatal(err)
	}
	soon(t, "the wish", l.Revoked())
	leader := must[Leader](t)(b.Election(d).Leader(testCtx(t)))
	if string(leader.Value) != value || leader.Token != l.Token() {
		t.Errorf("the leader is %q, token %d", leader.Value, leader.Token)
	}
	unlock(t, l)
}

// Programs that know no way to be asked back keep their data.
func TestOnlyProgramsThatUnderstandAreAskedBack(t *testing.T) {
	for name, want := range map[string]string{
		recipe.NodeName(LayoutCurator, recipe.RoleLock, newNodeID(1), "") + "0000000001": "v\x00__REVOKE__",
		"_c_91a5a8a4-1c39-4d2b-9c5e-6a2b8f3c1d00-lock-0000000001":                        "__REVOKE__",
	} {
		made, _, _ := recipe.ParseName(name)
		asked := recipe.AskBack([]byte("v"), made.Maker, recipe.Revocation{})
		if _, ok := recipe.RevocationIn(asked); string(asked) != want || !ok {
			t.Errorf("%s: %q, understood: %v", name, asked, ok)
		}
	}
	addr(t)
	c := dial(t)
	for _, name := range []string{strings.Repeat("ab", 16) + "__lock__0000000001", "_c_" + strings.Repeat("ab", 16) + "-lock-0000000001"} {
		if err := c.Inspector().Revoke(testCtx(t), dir(t), name, recipe.Revocation{}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A try waits for the server alone, and not for the delay behind a holder that died.
func TestTryDoesNotWaitForTheLockDelay(t *testing.T) {
	addr(t)
	leakCheck(t)
	for name, lock1 := range map[string]func(c *Client, d string, opts ...Option) (func(context.Context, ...Option) (*Lease, error), func(context.Context, ...Option) (*Lease, error)){
		"mutex": func(c *Client, d string, opts ...Option) (a, b func(context.Context, ...Option) (*Lease, error)) {
			m := c.Mutex(d, opts...)
			return m.Lock, m.TryLock
		},
		"policy": func(c *Client, d string, opts ...Option) (a, b func(context.Context, ...Option) (*Lease, error)) {
			m := c.RWMutex(d, append(opts, WithPolicy(PolicyFair))...)
			return m.Lock, m.TryLock
		},
	} {
		d := dir(t)
		dead, p := proxied(t)
		delay := WithLockDelay(time.Hour)
		take, _ := lock1(dead, d, delay)
		l := lock(t, take)
		expire(t, p)
		soon(t, "the loss", l.Lost())
		wait, try := lock1(dial(t), d, delay)
		for what, f := range map[string]func(context.Context, ...Option) (*Lease, error){"try": try, "no wait": func(ctx context.Context, _ ...Option) (*Lease, error) { return wait(ctx, WithWait(0)) }} {
			if _, err := f(testCtx(t)); !errors.Is(err, ErrNotAcquired) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// WithWait(0) waits for no other holder.
func TestNoWaitIsATry(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, d := dial(t), dir(t)
	l := lock(t, c.Mutex(d).Lock, WithWait(0))
	if _, err := dial(t).Mutex(d).Lock(testCtx(t), WithWait(0)); !errors.Is(err, ErrNotAcquired) {
		t.Error(err)
	}
	unlock(t, l)
}

// A lease that is not valid has an error: a program may look at either.
func TestErrSaysWhyALeaseIsNotValid(t *testing.T) {
	addr(t)
	leakCheck(t)
	for range rounds(20, 5) {
		clock := newTestClock()
		c, p := proxied(t, withClock(clock))
		l := lock(t, c.Mutex(dir(t)).Lock)
		done := make(chan error, 1)
		go func() {
			for {
				if !l.Valid() {
					done <- l.Err()
					return
				}
			}
		}()
		if rounds(1, 0) == 0 {
			expire(t, p)
		} else {
			clock.move(time.Hour, 0)
		}
		if err := soon(t, "the loss", done); !errors.Is(err, ErrLost) {
			t.Fatalf("invalid, but Err is %v", err)
		}
		c.Close(testCtx(t))
	}
}

// Close ends without servers when the session is over by the client's own clock.
func TestCloseWithoutServersEnds(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, p := proxied(t)
	lock(t, c.Mutex(dir(t)).Lock)
	p.Refuse(true)
	p.Cut()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(context.Background()) }()
	if err := soon(t, "the end of Close", closed); err != nil {
		t.Error(err)
	}
}

// An option of the session that is given to a lock, and a layout that the kind of lock does
// not have, are refused.
func TestMisplacedOptionsAreRefused(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, d := dial(t), dir(t)
	for name, refused := range map[string]struct {
		opt  Option
		want error
	}{
		"session timeout": {WithSessionTimeout(time.Minute), ErrInvalid},
		"latch":           {WithLayout(LayoutLatch), ErrUnsupported},
		"policy":          {WithPolicy(PolicyFair), ErrUnsupported},
	} {
		if _, err := c.Mutex(d, refused.opt).Lock(testCtx(t)); !errors.Is(err, refused.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Mutex(d).Lock(testCtx(t), refused.opt); !errors.Is(err, refused.want) {
			t.Errorf("%s, of a call: %v", name, err)
		}
	}
	l := lock(t, dial(t, WithReason("of the client")).Mutex(d).Lock)
	if q := must[*recipe.Queue](t)(c.Inspector().Inspect(testCtx(t), d)); len(q.Holders) != 1 || q.Holders[0].Owner.Reason != "of the client" {
		t.Errorf("an option of Dial does not count for its locks: %+v", q)
	}
	unlock(t, l)
}
