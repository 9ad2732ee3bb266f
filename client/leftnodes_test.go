package client

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// Calls whose contexts end leave nodes behind. However fast such calls follow each other, a directory never
// has more than twice as many nodes as there are goroutines.
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
			go c.RWMutex(d).Lock(context.Background()) // ends when the client is closed
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
							soon := time.Duration(1+rand.N(20)) * time.Millisecond
							limit, done := context.WithTimeout(ctx, soon)
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
		lock   taker
		dirs   []string // directories of the nodes; the first has the nodes of waiting calls
		holder int      // how many nodes the holder has in dirs[0]
	}{
		{c.Mutex(d+"/lock", WithOwnPlace()).Lock, []string{d + "/lock"}, 1},
		{func(ctx context.Context, opts ...Option) (*Lease, error) { return permits.Acquire(ctx, 1, opts...) },
			[]string{d + "/permits/locks", d + "/permits/leases"}, 0},
	} {
		l := lock(t, k.lock)
		// wait: the client removes the place of a permit's holder in the background
		queued(t, o, k.dirs[0], k.holder)
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

// If the server refuses one path, the client still makes containers at other paths.
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

// kazoo makes a lock's directory only once. So with kazoo's layout the directory is a persistent node, and
// not a container, because the server may remove containers.
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

// When another client has removed one of several permits, the release removes all others, even if the
// connection breaks.
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

// If an attempt ends while the answer to its creation is lost, it leaves no node.
func TestAbandonedCreationLeavesNothing(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	other := dial(t)
	keep := lock(t, other.Mutex(d+"/keep").Lock) // keeps d from being removed
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
