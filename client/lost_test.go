package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/faultproxy"
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
			return c.AcquireAll(ctx, c.Mutex(d+"/a").Request(o...), c.RWMutex(d+"/b").Request(1, o...))
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

// TestEveryLostMessage runs a lock–work–unlock cycle and loses each of its
// messages in turn, in every way, then checks that nothing was left, nobody held
// together, and what Unlock said was true.
func TestEveryLostMessage(t *testing.T) {
	addr(t)
	leakCheck(t)
	for recipe, make := range plainRecipes {
		for way, rule := range losses {
			for _, fresh := range []bool{true, false} {
				if !envSet("ZLOCKD_CLIENT_FULL") && (recipe != "mutex" || !fresh) && (recipe != "semaphore" || way != "cut after request") {
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
	c, p := proxied(t)
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
		eventually(t, "nothing to reap", func() bool { return c.reaper.left.add(0) == 0 })
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
		if inside.Add(1) != 1 {
			t.Errorf("message %d: %s is not alone inside", k, who)
		}
		if err := l.Check(testCtx(t)); err != nil {
			t.Errorf("message %d: %s: %v", k, who, err)
		}
		inside.Add(-1)
		if err := l.Unlock(testCtx(t)); err != nil {
			t.Errorf("message %d: %s: unlock: %v", k, who, err)
		}
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
