package client

import (
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// On a path with a lock of another kind, a call that may not wait makes no node.
func TestTryBesideAnotherKindMakesNothing(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	d := dir(t)
	l := must.Get(dial(t).Semaphore(d, 2).Acquire(testCtx(t), 1))(t)
	made := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Under: d,
		Match: func(f faultproxy.Frame) bool {
			return f.Op == faultproxy.OpCreate || f.Op == faultproxy.OpCreate2
		}})
	must.Is(t, expect.Err(c.Mutex(d).TryLock(testCtx(t))), ErrMixedLayout)
	must.Is(t, expect.Err(c.RWMutex(d).TryRLock(testCtx(t))), ErrMixedLayout)
	must.Equal(t, made.Seen(), 0, "nodes that were made")
	must.Is(t, expect.Err(c.Mutex(d).Lock(testCtx(t))), ErrMixedLayout)
	must.That(t, made.Seen() > 0, "the requests are not seen")
	unlock(t, l)
}
