package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// take gets a lock, whatever that needs.
type take = func(context.Context, ...Option) (*Lease, error)

// recipeTest says how to take a lock on d, and where below d its nodes are.
type recipeTest = func(c *Client, d string) (take, []string)

var plainRecipes = map[string]recipeTest{
	"mutex": func(c *Client, d string) (take, []string) { return c.Mutex(d).Lock, []string{""} },
	"write": func(c *Client, d string) (take, []string) { return c.RWMutex(d).Lock, []string{""} },
	"delay": func(c *Client, d string) (take, []string) {
		return c.Mutex(d, WithLockDelay(time.Millisecond)).Lock, []string{""}
	},
	"semaphore": func(c *Client, d string) (take, []string) {
		return func(ctx context.Context, o ...Option) (*Lease, error) {
			return c.Semaphore(d, 2).Acquire(ctx, 2, o...)
		}, []string{"/locks", "/leases"}
	},
	"set": func(c *Client, d string) (take, []string) {
		return func(ctx context.Context, o ...Option) (*Lease, error) {
			return c.All(ctx, c.Mutex(d+"/a").Request(o...), c.RWMutex(d+"/b").Request(1, o...))
		}, []string{"/a", "/b"}
	},
}

// policyRecipes are those of read-write locks with a policy. The lease of a change
// of mode that failed is returned with the error.
var policyRecipes = map[string]recipeTest{
	"policy write": func(c *Client, d string) (take, []string) {
		return c.RWMutex(d, WithPolicy(PolicyFair)).Lock, []string{""}
	},
	"policy upgrade": func(c *Client, d string) (take, []string) {
		m := c.RWMutex(d, WithPolicy(PolicyFair))
		upgraded := changing(m.RLock, (*Lease).Upgrade)
		return func(ctx context.Context, o ...Option) (*Lease, error) {
			for {
				l, err := upgraded(ctx, o...)
				if !errors.Is(err, ErrUpgradeConflict) {
					return l, err
				}
				if err := l.Unlock(ctx); err != nil { // the other goes first
					return nil, err
				}
			}
		}, []string{""}
	},
	"policy downgrade": func(c *Client, d string) (take, []string) {
		m := c.RWMutex(d, WithPolicy(PolicyFair))
		return changing(m.Lock, (*Lease).Downgrade), []string{""}
	},
}

// changing takes a lock and changes its mode.
func changing(f take, change func(*Lease, context.Context) error) take {
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

// TestEveryLostMessage runs a lock–work–unlock cycle and loses each of its messages in turn, in every way,
// then checks that nothing was left, no two held together, and what Unlock said was true.
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
					for k := 1; lostMessage(t, make, rule, fresh, k) && !t.Failed(); k++ {
					}
				})
			}
		}
	}
}

// lostMessage runs one cycle in which the k-th message is lost. It returns false
// if the cycle has fewer messages.
func lostMessage(t *testing.T, rec recipeTest, rule faultproxy.Rule, fresh bool, k int) bool {
	t.Helper()
	d, o := dir(t), observer(t)
	c, p := proxied(t, WithSessionTimeout(8*time.Second)) // part of it passes after each dropped message
	if many := strings.Split(several(t), ","); len(many) > 1 {
		p.SetTarget(many...) // the session moves to another server with each connection
	}
	rival := dial(t)
	defer o.Close()
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
	cycle := func(who string, take take) {
		l, err := take(testCtx(t))
		if err != nil {
			t.Errorf("message %d: %s: %v", k, who, err)
			return
		}
		expect.Equal(t, inside.Add(1), 1, "message %d: %s", k, who)
		expect.OK(t, l.Check(testCtx(t)), "message %d: %s", k, who)
		inside.Add(-1)
		expect.OK(t, l.Unlock(testCtx(t)), "message %d: %s: unlock", k, who)
	}
	// The rival contends all the time, and once more when all is over.
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for last := false; !last && !t.Failed(); {
			last = isClosed(done)
			cycle("the rival", rivals)
		}
	})
	cycle("the one who loses a message", ours)
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
			// The other ways differ in where the message is lost, not in what is known.
			if !envSet("ZLOCKD_CLIENT_FULL") && way != "cut after request" && way != "cut before request" {
				continue
			}
			t.Run(name+","+way, func(t *testing.T) {
				t.Parallel()
				for k := 1; lostMessage(t, make, rule, true, k) && !t.Failed(); k++ {
				}
			})
		}
	}
}

// cancelRecipes are all recipes, and those that cancelling may treat differently.
func cancelRecipes() map[string]recipeTest {
	all := maps.Clone(plainRecipes)
	maps.Copy(all, policyRecipes)
	for p := PolicyReader; p <= PolicyWriter; p++ {
		all["policy "+p.String()] = func(c *Client, d string) (take, []string) {
			return c.RWMutex(d, WithPolicy(p)).Lock, []string{""}
		}
	}
	all["policy read"] = func(c *Client, d string) (take, []string) {
		return c.RWMutex(d, WithPolicy(PolicyFair)).RLock, []string{""}
	}
	// A mark left behind would hold up the next contender for longer than a test waits.
	all["delay"] = func(c *Client, d string) (take, []string) {
		return c.Mutex(d, WithLockDelay(time.Hour)).Lock, []string{""}
	}
	all["policy delay"] = func(c *Client, d string) (take, []string) {
		return c.RWMutex(d, WithPolicy(PolicyFair), WithLockDelay(time.Hour)).Lock, []string{""}
	}
	return all
}

// endings are what may happen to an attempt in the middle: its context ends, or the lease
// it has so far is lost although the session goes on.
var endings = map[string]func(c *Client, cancel func()){
	"cancelled": func(_ *Client, cancel func()) { cancel() },
	"lost": func(c *Client, _ func()) {
		e, _ := c.keeper.Present()
		e.Lose(session.Silent)
	},
}

// TestE12ContextEndsAtEveryMessage ends an attempt when each of its messages in
// turn is on its way. Whatever the attempt had come to, nothing is left of it, and
// the next one is granted while the session lives on.
func TestE12ContextEndsAtEveryMessage(t *testing.T) {
	t.Parallel()
	shared(t)
	for name, make := range cancelRecipes() {
		for ending, end := range endings {
			if ending == "lost" && name != "policy upgrade" && name != "policy downgrade" {
				continue // nothing is held until the end
			}
			t.Run(name+","+ending, func(t *testing.T) {
				t.Parallel()
				c, p := proxied(t)
				for _, kind := range []faultproxy.Kind{faultproxy.Request, faultproxy.Reply} {
					for k := 1; endedAt(t, c, p, make, kind, k, end) && !t.Failed(); k++ {
					}
				}
			})
		}
	}
}

// endedAt ends an attempt at its k-th message. It returns false if there are fewer.
func endedAt(t *testing.T, c *Client, p *faultproxy.Proxy, make recipeTest, kind faultproxy.Kind, k int,
	end func(*Client, func())) bool {
	t.Helper()
	d, o := dir(t), observer(t)
	defer o.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// What is on its way waits a little, so that the end comes first.
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

// Changes of mode and the release may be asked for at the same time. They come one
// after another, and Unlock tells the truth.
func TestChangesOfModeComeOneAfterAnother(t *testing.T) {
	t.Parallel()
	shared(t)
	c, o, d := dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	for name, lockIt := range map[string]take{
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

// Calls whose contexts end leave nodes behind. However fast they come and go, a
// directory must not fill up: never more than twice as many nodes as goroutines.
func TestAbandonedNodesAreBounded(t *testing.T) {
	addr(t)
	const goroutines = 100
	least := int64(rounds(100_000, 3000))
	if testing.Short() {
		least = 1000
	}
	type locker = func(context.Context) (*Lease, error)
	modes := map[string]func(c *Client, d string) (f locker, dirs []string){
		"mutex": func(c *Client, d string) (locker, []string) {
			return func(ctx context.Context) (*Lease, error) { return c.Mutex(d).Lock(ctx) }, []string{d}
		},
		"without local queue": func(c *Client, d string) (locker, []string) {
			return func(ctx context.Context) (*Lease, error) { return c.Mutex(d, WithOwnPlace()).Lock(ctx) },
				[]string{d}
		},
		"read": func(c *Client, d string) (locker, []string) {
			return func(ctx context.Context) (*Lease, error) { return c.RWMutex(d).RLock(ctx) }, []string{d}
		},
		"read behind a writer": func(c *Client, d string) (locker, []string) {
			go c.RWMutex(d).Lock(context.Background()) // until the client is closed
			return func(ctx context.Context) (*Lease, error) { return c.RWMutex(d).RLock(ctx) }, []string{d}
		},
		"without local queue, behind another": func(c *Client, d string) (locker, []string) {
			go c.Mutex(d).Lock(context.Background())
			return func(ctx context.Context) (*Lease, error) { return c.Mutex(d, WithOwnPlace()).Lock(ctx) },
				[]string{d}
		},
		"read, policy": func(c *Client, d string) (locker, []string) {
			return func(ctx context.Context) (*Lease, error) {
				return c.RWMutex(d, WithPolicy(PolicyFair)).RLock(ctx)
			}, []string{d}
		},
		"set": func(c *Client, d string) (locker, []string) {
			a, b := c.Mutex(d+"/a"), c.RWMutex(d+"/b")
			return func(ctx context.Context) (*Lease, error) {
				return c.All(ctx, a.Request(), b.Request(1))
			}, []string{d + "/a", d + "/b"}
		},
		"permits": func(c *Client, d string) (locker, []string) {
			s := c.Semaphore(d, 3, WithOwnPlace())
			return func(ctx context.Context) (*Lease, error) { return s.Acquire(ctx, 1) }, []string{
				d + "/locks", d + "/leases"}
		},
	}
	for name, mode := range modes {
		for _, procs := range []int{1, runtime.GOMAXPROCS(0)} {
			t.Run(name, func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				leakCheck(t)
				d := dir(t)
				c, o := dial(t, WithSessionTimeout(40*time.Second)), observer(t)
				lock, dirs := mode(c, d)
				ctx, cancel := context.WithCancel(testCtx(t))
				var calls atomic.Int64
				var wg sync.WaitGroup
				for range goroutines {
					wg.Go(func() {
						for ctx.Err() == nil {
							limit, done := context.WithTimeout(ctx, time.Duration(1+rand.N(20))*time.Millisecond)
							if l, err := lock(limit); err == nil {
								l.Unlock(limit)
							}
							done()
							calls.Add(1)
						}
					})
				}
				most := 0
				for calls.Load() < least && ctx.Err() == nil {
					for _, d := range dirs {
						most = max(most, len(names(t, o, d)))
					}
				}
				cancel()
				wg.Wait()
				t.Logf("%d nodes at most, %d calls", most, calls.Load())
				expect.That(t, most <= 2*goroutines,
					"%d nodes of %d goroutines in one directory", most, goroutines)
				bounded, stop := context.WithTimeout(context.Background(), patience)
				defer stop()
				must.OK(t, c.Close(bounded))
				for _, d := range dirs {
					queued(t, o, d, 0)
				}
			})
		}
	}
}

// A call counts in every directory in which it makes nodes, as long as it lasts.
func TestCallsCountInTheirDirectories(t *testing.T) {
	t.Parallel()
	shared(t)
	c, d, o := dial(t), dir(t), observer(t)
	permits := c.Semaphore(d+"/permits", 1, WithOwnPlace())
	for _, k := range []struct {
		lock   take
		dirs   []string // the waiting calls have their nodes in the first
		holder int      // the holder's nodes there
	}{
		{c.Mutex(d+"/lock", WithOwnPlace()).Lock, []string{d + "/lock"}, 1},
		{func(ctx context.Context, opts ...Option) (*Lease, error) { return permits.Acquire(ctx, 1, opts...) },
			[]string{d + "/permits/locks", d + "/permits/leases"}, 0},
	} {
		l := lock(t, k.lock)
		queued(t, o, k.dirs[0], k.holder) // it leaves the head of the queue in the background
		ctx, cancel := context.WithCancel(testCtx(t))
		var calls []granting
		for range 4 {
			calls = append(calls, start(ctx, k.lock))
		}
		queued(t, o, k.dirs[0], k.holder+4)
		full := func(dir string) bool { return c.keeper.Crowded(dir, 2) }
		for _, dir := range k.dirs {
			expect.That(t, !full(dir), "four calls may not leave two nodes behind in %s", dir)
		}
		cancel()
		for _, g := range calls {
			wantErr(t, g.fails(t), context.Canceled)
		}
		queued(t, o, k.dirs[0], k.holder)
		for _, dir := range k.dirs {
			expect.That(t, full(dir), "calls that are over count in %s", dir)
		}
		unlock(t, l)
	}
}

// One path that the server refuses says nothing about containers.
func TestBadPathLeavesContainersAlone(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	must.Fails(t, expect.Err(c.Mutex("/t/\U0001F512/a").Lock(testCtx(t))),
		"a path beyond the basic plane was taken")
	d := dir(t)
	p.Record()
	unlock(t, lock(t, c.Mutex(d+"/a").Lock))
	expect.That(t, under(p, d, int32(jute.OpCreateContainer)) != 0, "the directory is no container")
}

// kazoo makes a lock's directory once and not again, so in its layout a directory stays.
func TestKazooDirectoriesStay(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	d := dir(t)
	p.Record()
	unlock(t, lock(t, c.Mutex(d+"/mutex", WithLayout(LayoutKazoo)).Lock))
	unlock(t, must.Get(c.Semaphore(d+"/semaphore", 1, WithLayout(LayoutKazoo)).Acquire(testCtx(t), 1))(t))
	unlock(t, must.Get(c.Election(d+"/election", WithLayout(LayoutKazoo)).Campaign(testCtx(t), nil))(t))
	for _, f := range p.Frames() {
		path := strings.TrimPrefix(f.Path, d+"/")
		if f.Kind == faultproxy.Request && f.Op == int32(jute.OpCreateContainer) && path != f.Path {
			t.Errorf("%s is a container", f.Path)
		}
	}
}

// Permits of which another client has removed one all go, though the connection breaks.
func TestUnlockRemovesTheOtherPermits(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	o, d := observer(t), dir(t)
	l := must.Get(c.Semaphore(d, 3).Acquire(testCtx(t), 3))(t)
	queued(t, o, d+"/locks", 0)
	cut := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpDelete, Under: d, Nth: 1,
		Do: faultproxy.CutBefore})
	must.OK(t, o.Delete(l.Nodes()[1], -1))
	expect.Is(t, l.Unlock(testCtx(t)), ErrLost)
	soon(t, "the cut", cut.Acted())
	queued(t, o, d+"/leases", 0)
}

// An attempt that ends while the answer to its creation is lost leaves no node.
func TestAbandonedCreationLeavesNothing(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	other := dial(t)
	keep := lock(t, other.Mutex(d+"/keep").Lock) // d stays
	c, p := proxied(t)
	rule := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpCreate2, Under: d, Nth: 1,
		Do: faultproxy.CutBefore, Then: func() { p.Refuse(true) }})
	ctx, stop := context.WithCancel(testCtx(t))
	g := start(ctx, c.Mutex(d).Lock)
	soon(t, "the creation", rule.Acted())
	stop()
	wantErr(t, g.fails(t), context.Canceled)
	queued(t, o, d, 2)
	p.Refuse(false)
	queued(t, o, d, 1)
	unlock(t, keep)
	unlock(t, lock(t, c.Mutex(d).Lock))
}

// A contender that may neither read nor stat the node before it looks for it in the list.
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
