package client

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Calls whose contexts end leave nodes behind. However fast they come and go, a
// directory must not fill up: never more than twice as many nodes as goroutines.
func TestAbandonedNodesAreBounded(t *testing.T) {
	addr(t)
	const goroutines = 100
	type locker = func(context.Context) (*Lease, error)
	modes := map[string]func(c *Client, d string) (f locker, dirs []string){
		"mutex": func(c *Client, d string) (locker, []string) {
			return func(ctx context.Context) (*Lease, error) { return c.Mutex(d).Lock(ctx) }, []string{d}
		},
		"without local queue": func(c *Client, d string) (locker, []string) {
			return func(ctx context.Context) (*Lease, error) { return c.Mutex(d, WithoutLocalQueue()).Lock(ctx) }, []string{d}
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
			return func(ctx context.Context) (*Lease, error) { return c.Mutex(d, WithoutLocalQueue()).Lock(ctx) }, []string{d}
		},
		"read, policy": func(c *Client, d string) (locker, []string) {
			return func(ctx context.Context) (*Lease, error) { return c.RWMutex(d, WithPolicy(PolicyFair)).RLock(ctx) }, []string{d}
		},
		"set": func(c *Client, d string) (locker, []string) {
			a, b := c.Mutex(d+"/a"), c.RWMutex(d+"/b")
			return func(ctx context.Context) (*Lease, error) {
				return c.AcquireAll(ctx, a.Request(), b.Request(1))
			}, []string{d + "/a", d + "/b"}
		},
		"permits": func(c *Client, d string) (locker, []string) {
			s := c.Semaphore(d, 3, WithoutLocalQueue())
			return func(ctx context.Context) (*Lease, error) { return s.Acquire(ctx, 1) }, []string{d + "/locks", d + "/leases"}
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
					wg.Add(1)
					go func() {
						defer wg.Done()
						for ctx.Err() == nil {
							limit, done := context.WithTimeout(ctx, time.Duration(1+rand.N(20))*time.Millisecond)
							if l, err := lock(limit); err == nil {
								l.Unlock(limit)
							}
							done()
							calls.Add(1)
						}
					}()
				}
				most := 0
				for calls.Load() < int64(rounds(100_000, 3000)) && ctx.Err() == nil {
					for _, d := range dirs {
						most = max(most, len(names(t, o, d)))
					}
				}
				cancel()
				wg.Wait()
				t.Logf("%d nodes at most, %d calls", most, calls.Load())
				if most > 2*goroutines {
					t.Errorf("%d nodes of %d goroutines in one directory", most, goroutines)
				}
				bounded, stop := context.WithTimeout(context.Background(), patience)
				defer stop()
				if err := c.Close(bounded); err != nil {
					t.Fatal(err)
				}
				for _, d := range dirs {
					queued(t, o, d, 0)
				}
			})
		}
	}
}

func TestCrowdLetsInAsMuchAsItMay(t *testing.T) {
	var c crowd
	if c.room("/d") != nil {
		t.Fatal("an empty directory is full")
	}
	c.abandon("/d")
	if c.room("/d") != nil {
		t.Fatal("one call may leave one node behind")
	}
	c.abandon("/d")
	wait := c.room("/d")
	if wait == nil || isClosed(wait) || c.room("/other") != nil {
		t.Fatal("two nodes behind one call")
	}
	c.enter("/d", "/d", "/d", "/d")
	if !isClosed(wait) || c.room("/d") != nil {
		t.Fatal("two nodes behind four calls are allowed")
	}
	c.leave("/d", "/d", "/d", "/d")
	if wait = c.room("/d"); isClosed(wait) {
		t.Fatal("the calls are over")
	}
	c.gone("/d", "/d")
	if !isClosed(wait) || len(c.dirs) != 0 {
		t.Fatalf("room, and nothing to remember: %v", c.dirs)
	}
}
