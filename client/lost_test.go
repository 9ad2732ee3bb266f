package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
)

// taker is a method that takes a lock, such as Mutex.Lock.
type taker = func(context.Context, ...Option) (*Lease, error)

// recipeTest says how to take a lock on d, and where below d its nodes are.
type recipeTest = func(c *Client, d string) (taker, []string)

var plainRecipes = map[string]recipeTest{
	"mutex": func(c *Client, d string) (taker, []string) { return c.Mutex(d).Lock, []string{""} },
	"write": func(c *Client, d string) (taker, []string) { return c.RWMutex(d).Lock, []string{""} },
	"delay": func(c *Client, d string) (taker, []string) {
		return c.Mutex(d, WithLockDelay(time.Millisecond)).Lock, []string{""}
	},
	"semaphore": func(c *Client, d string) (taker, []string) {
		return func(ctx context.Context, o ...Option) (*Lease, error) {
			return c.Semaphore(d, 2).Acquire(ctx, 2, o...)
		}, []string{"/locks", "/leases"}
	},
	"set": func(c *Client, d string) (taker, []string) {
		return func(ctx context.Context, o ...Option) (*Lease, error) {
			return c.All(ctx, c.Mutex(d+"/a").Request(o...), c.RWMutex(d+"/b").Request(1, o...))
		}, []string{"/a", "/b"}
	},
}

// policyRecipes are the recipes of read-write locks with a policy. If a change of mode fails, the taker
// returns the lease together with the error.
var policyRecipes = map[string]recipeTest{
	"policy write": func(c *Client, d string) (taker, []string) {
		return c.RWMutex(d, WithPolicy(PolicyFair)).Lock, []string{""}
	},
	"policy upgrade": func(c *Client, d string) (taker, []string) {
		m := c.RWMutex(d, WithPolicy(PolicyFair))
		upgraded := changing(m.RLock, (*Lease).Upgrade)
		return func(ctx context.Context, o ...Option) (*Lease, error) {
			for {
				l, err := upgraded(ctx, o...)
				if !errors.Is(err, ErrUpgradeConflict) {
					return l, err
				}
				if err := l.Unlock(ctx); err != nil { // let the other reader upgrade first
					return nil, err
				}
			}
		}, []string{""}
	},
	"policy downgrade": func(c *Client, d string) (taker, []string) {
		m := c.RWMutex(d, WithPolicy(PolicyFair))
		return changing(m.Lock, (*Lease).Downgrade), []string{""}
	},
}

// changing() takes a lock and changes its mode.
func changing(f taker, change func(*Lease, context.Context) error) taker {
	return func(ctx context.Context, o ...Option) (*Lease, error) {
		l, err := f(ctx, o...)
		if err == nil {
			err = change(l, ctx)
		}
		return l, err
	}
}

// losses are the ways to lose a message.
var losses = map[string]faultproxy.Rule{
	"reply dropped":      {Kind: faultproxy.Reply, Do: faultproxy.Drop},
	"request dropped":    {Kind: faultproxy.Request, Do: faultproxy.Drop},
	"cut before request": {Kind: faultproxy.Request, Do: faultproxy.CutBefore},
	"cut after request":  {Kind: faultproxy.Request, Do: faultproxy.CutAfter},
	"cut before reply":   {Kind: faultproxy.Reply, Do: faultproxy.CutBefore},
	"cut after reply":    {Kind: faultproxy.Reply, Do: faultproxy.CutAfter},
}

// TestEveryLostMessage runs a cycle of lock, work and unlock, and loses each message of the cycle in turn, in
// every way. Then it checks that no node is left, that no two clients held the lock together, and that Unlock
// returned what had happened.
func TestEveryLostMessage(t *testing.T) {
	t.Parallel()
	shared(t)
	for recipe, make := range plainRecipes {
		for way, rule := range losses {
			for _, fresh := range []bool{true, false} {
				if !envSet("ZLOCKD_CLIENT_FULL") && (recipe != "mutex" || !fresh) && (recipe != "semaphore" ||
					way != "cut after request") {
					continue
				}
				t.Run(fmt.Sprintf("%s,%s,fresh=%v", recipe, way, fresh), func(t *testing.T) {
					t.Parallel()
					o := observer(t)
					for k := 1; lostMessage(t, o, make, rule, fresh, k) && !t.Failed(); k++ {
					}
				})
			}
		}
	}
}

// lostMessage runs one cycle in which the k-th message is lost. It returns false
// if the cycle has fewer messages.
func lostMessage(t *testing.T, o *zk.Conn, rec recipeTest, rule faultproxy.Rule, fresh bool, k int) bool {
	t.Helper()
	d := dir(t)
	c, p := proxied(t, WithSessionTimeout(8*time.Second)) // a dropped message costs a part of the timeout
	if many := strings.Split(several(t), ","); len(many) > 1 {
		p.SetTarget(many...) // the session moves to another server with each connection
	}
	rival := dial(t)
	defer c.Close(testCtx(t))
	defer rival.Close(testCtx(t))
	ours, parts := rec(c, d)
	rivals, _ := rec(rival, d)
	if !fresh {
		unlock(t, lock(t, ours))
		eventually(t, "nothing to reap", func() bool { return c.keeper.Pending() == 0 })
	}
	rule.Under, rule.Nth = d, k
	r := p.Add(rule)
	var inside atomic.Int32
	cycle := func(who string, take taker, held time.Duration) {
		l, err := take(testCtx(t))
		if err != nil {
			t.Errorf("message %d: %s: %v", k, who, err)
			return
		}
		expect.Equal(t, inside.Add(1), 1, "message %d: %s", k, who)
		expect.OK(t, l.Check(testCtx(t)), "message %d: %s", k, who)
		time.Sleep(held)
		inside.Add(-1)
		expect.OK(t, l.Unlock(testCtx(t)), "message %d: %s: unlock", k, who)
	}
	// The rival locks and unlocks all the time, and once more at the end. After the loss of the message it holds
	// the lock for longer: the other client may be silent for seconds, and short cycles would only keep the
	// processor busy.
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for last := false; !last && !t.Failed(); {
			last = session.IsClosed(done)
			held := time.Duration(0)
			if session.IsClosed(r.Acted()) {
				held = 2 * time.Millisecond
			}
			cycle("the rival", rivals, held)
		}
	})
	cycle("the one who loses a message", ours, 0)
	close(done)
	wg.Wait()
	for _, part := range parts {
		queued(t, o, d+part, 0)
	}
	select {
	case <-r.Acted():
		return true
	default:
		return false
	}
}

// TestEveryLostMessageOfAPolicyLock loses each message of a cycle in turn, for a
// write, for a read that is upgraded, and for a write that is downgraded.
func TestEveryLostMessageOfAPolicyLock(t *testing.T) {
	t.Parallel()
	shared(t)
	for name, make := range policyRecipes {
		for way, rule := range losses {
			// Short runs test two ways. The other ways lose the message at another point, which makes no difference to
			// the client.
			if !envSet("ZLOCKD_CLIENT_FULL") && way != "cut after request" && way != "cut before request" {
				continue
			}
			t.Run(name+","+way, func(t *testing.T) {
				t.Parallel()
				o := observer(t)
				for k := 1; lostMessage(t, o, make, rule, true, k) && !t.Failed(); k++ {
				}
			})
		}
	}
}

// cancelRecipes returns all recipes, and variants that may behave differently when they are cancelled.
func cancelRecipes() map[string]recipeTest {
	all := maps.Clone(plainRecipes)
	maps.Copy(all, policyRecipes)
	for p := PolicyReader; p <= PolicyWriter; p++ {
		all["policy "+p.String()] = func(c *Client, d string) (taker, []string) {
			return c.RWMutex(d, WithPolicy(p)).Lock, []string{""}
		}
	}
	all["policy read"] = func(c *Client, d string) (taker, []string) {
		return c.RWMutex(d, WithPolicy(PolicyFair)).RLock, []string{""}
	}
	// A mark left behind would hold up the next contender for longer than a test waits.
	all["delay"] = func(c *Client, d string) (taker, []string) {
		return c.Mutex(d, WithLockDelay(time.Hour)).Lock, []string{""}
	}
	all["policy delay"] = func(c *Client, d string) (taker, []string) {
		return c.RWMutex(d, WithPolicy(PolicyFair), WithLockDelay(time.Hour)).Lock, []string{""}
	}
	return all
}

// endings are the ways in which an attempt can end midway: its context ends, or it loses a lease that it
// already has although the session lives on.
var endings = map[string]func(c *Client, cancel func()){
	"cancelled": func(_ *Client, cancel func()) { cancel() },
	"lost": func(c *Client, _ func()) {
		e, _ := c.keeper.Present()
		e.Lose(session.Silent)
	},
}

// TestE12ContextEndsAtEveryMessage ends an attempt while each of its messages in turn is on its way. The
// attempt leaves nothing behind, and the next one is granted in the same session.
func TestE12ContextEndsAtEveryMessage(t *testing.T) {
	t.Parallel()
	shared(t)
	for name, make := range cancelRecipes() {
		for ending, end := range endings {
			if ending == "lost" && name != "policy upgrade" && name != "policy downgrade" {
				continue // the other recipes have no lease to lose before they end
			}
			t.Run(name+","+ending, func(t *testing.T) {
				t.Parallel()
				c, p := proxied(t)
				o := observer(t)
				for _, kind := range []faultproxy.Kind{faultproxy.Request, faultproxy.Reply} {
					for k := 1; endedAt(t, c, o, p, make, kind, k, end) && !t.Failed(); k++ {
					}
				}
			})
		}
	}
}

// endedAt ends an attempt at its k-th message. It returns false if the attempt has fewer messages.
func endedAt(t *testing.T, c *Client, o *zk.Conn, p *faultproxy.Proxy, make recipeTest, kind faultproxy.Kind,
	k int, end func(*Client, func())) bool {
	t.Helper()
	d := dir(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Delay the message, so that the attempt ends before the message arrives.
	r := p.Add(faultproxy.Rule{Kind: kind, Under: d, Nth: k, Do: faultproxy.Delay, For: 10 * time.Millisecond,
		Then: func() { end(c, cancel) }})
	take, parts := make(c, d)
	l, err := take(ctx)
	r.Remove()
	if l != nil {
		if err := l.Unlock(testCtx(t)); err != nil && l.reason() != Deadline {
			t.Errorf("%v %d: unlock: %v", kind, k, err)
		}
	} else if err == nil {
		t.Errorf("%v %d: neither a lease nor an error", kind, k)
	}
	for _, part := range parts {
		queued(t, o, d+part, 0)
	}
	next := dial(t)
	defer next.Close(testCtx(t))
	take, _ = make(next, d)
	unlock(t, lock(t, take))
	select {
	case <-r.Acted():
		return true
	default:
		return false
	}
}

// A program may change the mode and unlock at the same time. The client does one after the other, and Unlock
// returns what has happened.
func TestChangesOfModeComeOneAfterAnother(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	for name, lockIt := range map[string]taker{
		"queue":  c.RWMutex(d + "/queue").Lock,
		"policy": c.RWMutex(d+"/policy", WithPolicy(PolicyFair)).Lock,
	} {
		for i := range rounds(500, 50) {
			l := lock(t, lockIt)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if err := l.Downgrade(ctx); err != nil && !errors.Is(err, ErrNotHeld) &&
						!errors.Is(err, ErrUnsupported) {
						t.Errorf("%s %d: downgrade: %v", name, i, err)
					}
				})
			}
			wg.Go(func() {
				time.Sleep(time.Duration(i%10) * 100 * time.Microsecond)
				expect.OK(t, l.Unlock(ctx), "%s %d: unlock", name, i)
			})
			wg.Wait()
			if t.Failed() {
				return
			}
		}
		queued(t, o, d+"/"+name, 0)
	}
}

// A contender waits for the node before its own in the list, even if it may neither read that node nor ask
// whether it exists.
func TestWaiterBehindANodeThatItMayNotSee(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	held := lock(t, dial(t).Mutex(d).Lock)
	c, p := proxied(t)
	const noAuth = -102
	hides := func(op int32) *faultproxy.Armed {
		return p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: op, Under: held.Node(), Do: faultproxy.Fail,
			Code: noAuth})
	}
	read, stat := hides(faultproxy.OpGetData), hides(faultproxy.OpExists)
	g := start(testCtx(t), c.Mutex(d).Lock)
	queued(t, o, d, 2)
	soon(t, "the read", read.Acted())
	soon(t, "the look", stat.Acted())
	not(t, "granted beside the holder", g.lease, 100*time.Millisecond)
	unlock(t, held)
	unlock(t, g.wait(t))
}
