package client

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/faultproxy"
)

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
	// A mark left behind would hold up whoever comes next for longer than a test waits.
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
		c.mu.Lock()
		e := c.ep
		c.mu.Unlock()
		e.loseAll(Deadline)
	},
}

// TestE12ContextEndsAtEveryMessage ends an attempt when each of its messages in
// turn is on its way. Whatever the attempt had come to, nothing is left of it, and
// the next one is granted while the session lives on.
func TestE12ContextEndsAtEveryMessage(t *testing.T) {
	addr(t)
	leakCheck(t)
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
func endedAt(t *testing.T, c *Client, p *faultproxy.Proxy, make recipeTest, kind faultproxy.Kind, k int, end func(*Client, func())) bool {
	t.Helper()
	d, o := dir(t), observer(t)
	defer o.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// What is on its way waits a little, so that the end comes first.
	r := p.Add(faultproxy.Rule{Kind: kind, Under: d, Nth: k, Do: faultproxy.Delay, For: 10 * time.Millisecond, Then: func() { end(c, cancel) }})
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
	addr(t)
	leakCheck(t)
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
					if err := l.Downgrade(ctx); err != nil && !errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrUnsupported) {
						t.Errorf("%s %d: downgrade: %v", name, i, err)
					}
				})
			}
			wg.Go(func() {
				time.Sleep(time.Duration(i%10) * 100 * time.Microsecond)
				if err := l.Unlock(ctx); err != nil {
					t.Errorf("%s %d: unlock: %v", name, i, err)
				}
			})
			wg.Wait()
			if t.Failed() {
				return
			}
		}
		queued(t, o, d+"/"+name, 0)
	}
}
