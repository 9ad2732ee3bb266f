package client

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/faultproxy"
)

// Whatever kinds of locks meet on one path: never do two hold that should exclude
// each other, and who comes second is told.
func TestKindsOfLocksOnOnePathExcludeEachOther(t *testing.T) {
	addr(t)
	leakCheck(t)
	type kindOf struct {
		name   string
		try    func(c *Client, d string) (*Lease, error)
		shares bool   // with others of its kind
		group  string // of kinds that know each other
	}
	ctx := testCtx(t)
	kinds := []kindOf{
		{"mutex", func(c *Client, d string) (*Lease, error) { return c.Mutex(d).TryLock(ctx) }, false, "curator"},
		{"write", func(c *Client, d string) (*Lease, error) { return c.RWMutex(d).TryLock(ctx) }, false, "curator"},
		{"read", func(c *Client, d string) (*Lease, error) { return c.RWMutex(d).TryRLock(ctx) }, true, "curator"},
		{"policy write", func(c *Client, d string) (*Lease, error) { return c.RWMutex(d, WithPolicy(PolicyFair)).TryLock(ctx) }, false, "policy"},
		{"policy read", func(c *Client, d string) (*Lease, error) {
			return c.RWMutex(d, WithPolicy(PolicyFair)).TryRLock(ctx)
		}, true, "policy"},
		{"kazoo mutex", func(c *Client, d string) (*Lease, error) { return c.Mutex(d, WithLayout(LayoutKazoo)).TryLock(ctx) }, false, "kazoo"},
		{"kazoo read", func(c *Client, d string) (*Lease, error) {
			return c.RWMutex(d, WithLayout(LayoutKazoo)).TryRLock(ctx)
		}, true, "kazoo"},
		{"host write", func(c *Client, d string) (*Lease, error) {
			return c.RWMutex(d, WithLayout(LayoutHost)).TryLock(ctx)
		}, false, "host"},
		{"permit", func(c *Client, d string) (*Lease, error) { return c.Semaphore(d, 2).TryAcquire(ctx, 1) }, true, "permit"},
		{"kazoo permit", func(c *Client, d string) (*Lease, error) {
			return c.Semaphore(d, 2, WithLayout(LayoutKazoo)).TryAcquire(ctx, 1)
		}, true, "kazoo permit"},
	}
	a, b, o := dial(t), dial(t), observer(t)
	for _, first := range kinds {
		for _, second := range kinds {
			d := fmt.Sprintf("%s/%s-%s", dir(t), first.name, second.name)
			l := must[*Lease](t)(first.try(a, d))
			m, err := second.try(b, d)
			switch {
			case err == nil && first.name == second.name && first.shares:
				unlock(t, m)
			case err == nil:
				t.Errorf("%s held, and %s granted", first.name, second.name)
				unlock(t, m)
			case first.group != second.group && !errors.Is(err, ErrMixedLayout):
				t.Errorf("%s held, %s: %v", first.name, second.name, err)
			case first.group == second.group && !errors.Is(err, ErrNotAcquired):
				t.Errorf("%s held, %s: %v", first.name, second.name, err)
			}
			unlock(t, l)
			for _, sub := range []string{"", "/locks", "/leases"} {
				eventually(t, first.name+", "+second.name+": nothing left in "+sub, func() bool {
					for _, n := range names(t, o, d+sub) {
						if u, ok := useOf(n); ok && u != usePermits {
							return false
						}
					}
					return true
				})
			}
		}
	}
}

// A reader of a lock with a policy has no node before it holds. A lock of another
// kind that comes between its look and its grant must not be granted beside it.
func TestReaderOfAPolicySeesWhoCameWhileItWasNotToBeSeen(t *testing.T) {
	addr(t)
	leakCheck(t)
	ctx := testCtx(t)
	o := observer(t)
	for name, other := range map[string]func(c *Client, d string) (*Lease, error){
		"mutex":       func(c *Client, d string) (*Lease, error) { return c.Mutex(d).Lock(ctx) },
		"read":        func(c *Client, d string) (*Lease, error) { return c.RWMutex(d).RLock(ctx) },
		"kazoo mutex": func(c *Client, d string) (*Lease, error) { return c.Mutex(d, WithLayout(LayoutKazoo)).Lock(ctx) },
		"host write":  func(c *Client, d string) (*Lease, error) { return c.RWMutex(d, WithLayout(LayoutHost)).Lock(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			d := dir(t)
			c, p := proxied(t)
			rw := c.RWMutex(d, WithPolicy(PolicyFair))
			unlock(t, lock(t, rw.RLock)) // makes the directory
			late := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpMulti, Do: faultproxy.Hold})
			g := start(ctx, rw.RLock)
			<-late.Acted() // the reader has looked, and is about to hold
			l := must[*Lease](t)(other(dial(t), d))
			late.Release()
			late.Remove()
			if err := g.fails(t); !errors.Is(err, ErrMixedLayout) {
				t.Errorf("granted beside another kind of lock, or %v", err)
			}
			unlock(t, l)
			eventually(t, "no node of the reader", func() bool {
				for _, n := range names(t, o, d) {
					if recipe.IsPolicyNode(n) {
						return false
					}
				}
				return true
			})
		})
	}
}

// Curator's recipes see nodes of their own kind only, so that a lock of another
// kind beside them would exclude nobody.
func TestForeignLockOfAnotherKindIsRefused(t *testing.T) {
	addr(t)
	leakCheck(t)
	c, o := dial(t), observer(t)
	const uuid = "_c_5cbee2b6-2ae0-4ad2-a2ad-c1a7a2a3f5ca-"
	ctx := testCtx(t)
	for _, x := range []struct {
		foreign string
		lock    func(d string) func(context.Context, ...Option) (*Lease, error)
		mixed   bool
	}{
		{"__WRIT__", func(d string) func(context.Context, ...Option) (*Lease, error) { return c.Mutex(d).Lock }, true},
		{"__READ__", func(d string) func(context.Context, ...Option) (*Lease, error) { return c.Mutex(d).Lock }, true},
		{"latch-", func(d string) func(context.Context, ...Option) (*Lease, error) { return c.Mutex(d).Lock }, true},
		{"lock-", func(d string) func(context.Context, ...Option) (*Lease, error) { return c.RWMutex(d).RLock }, true},
		{"lock-", func(d string) func(context.Context, ...Option) (*Lease, error) { return c.Mutex(d).Lock }, false},
		{"__WRIT__", func(d string) func(context.Context, ...Option) (*Lease, error) { return c.RWMutex(d).Lock }, false},
	} {
		d := dir(t)
		unlock(t, lock(t, x.lock(d))) // makes the directory
		p, err := o.Create(d+"/"+uuid+x.foreign, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		g := start(ctx, x.lock(d))
		if x.mixed {
			if err := g.fails(t); !errors.Is(err, ErrMixedLayout) {
				t.Errorf("beside %s: %v", x.foreign, err)
			}
			remove(t, o, p)
			continue
		}
		queued(t, o, d, 2)
		remove(t, o, p)
		unlock(t, g.wait(t))
	}
	// Nodes that only look like others' are nobody's lock.
	d := dir(t)
	unlock(t, lock(t, c.Mutex(d).Lock))
	for _, n := range []string{"lock", "leases", "locks", "5cbee2b62ae04ad2a2adc1a7a2a3f5ca"} {
		if _, err := o.Create(d+"/"+n, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	unlock(t, lock(t, c.Mutex(d).Lock))
	// The textbooks' lock of another program: whoever made the node holds it.
	if err := o.Delete(d+"/lock", -1); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Create(d+"/lock", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Mutex(d).Lock(ctx); !errors.Is(err, ErrMixedLayout) {
		t.Fatalf("beside a held node named lock: %v", err)
	}
}
