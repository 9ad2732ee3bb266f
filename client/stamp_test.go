package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/faultproxy"
)

// stamping waits for a breakable lock whose stamp meets the rule, and lets it be granted.
func stamping(t *testing.T, ctx context.Context, rule faultproxy.Rule, opts ...Option) (*Client, granting, *faultproxy.Armed) {
	t.Helper()
	d, o := dir(t), observer(t)
	c, p := proxied(t, opts...)
	rule.Under, rule.Op, rule.Nth = d, faultproxy.OpSetData, 1
	r, other := p.Add(rule), dial(t).Mutex(d).Lock
	for {
		first := lock(t, other)
		g := start(ctx, c.Mutex(d).Lock, WithLimit(Limit{Hold: time.Hour, Break: true}))
		queued(t, o, d, 2)
		unlock(t, first)
		eventuallyIn(t, 30*time.Second, "a stamp or a grant", func() bool { return isClosed(r.Acted()) || !g.pending() })
		if isClosed(r.Acted()) {
			return c, g, r
		}
		unlock(t, g.wait(t)) // the other was gone before this one looked: nothing to wait for, no stamp
	}
}

// Who had to wait and may be broken must have the time of its grant in its node, or it
// passes for one that has held since it came.
func TestStampThatIsLostIsSentAgain(t *testing.T) {
	for _, rule := range []faultproxy.Rule{
		{Kind: faultproxy.Request, Do: faultproxy.CutBefore}, {Kind: faultproxy.Request, Do: faultproxy.CutAfter}, {Kind: faultproxy.Reply, Do: faultproxy.CutBefore},
	} {
		c, g, _ := stamping(t, testCtx(t), rule)
		l := g.wait(t)
		if en := must[*recipe.Queue](t)(c.Inspector().Inspect(testCtx(t), l.Path())).Holders[0]; en.Owner == nil || !en.Owner.Held {
			t.Errorf("%v: not stamped: %+v", rule, en)
		}
		unlock(t, l)
	}
}

func TestWaitEndsWhileTheStampIsOnItsWay(t *testing.T) {
	ctx, cancel := context.WithCancel(testCtx(t))
	// The session is so long that the connection is not given up for the missing answer.
	_, g, r := stamping(t, ctx, faultproxy.Rule{Kind: faultproxy.Reply, Do: faultproxy.Hold}, WithSessionTimeout(time.Minute))
	cancel()
	eventuallyIn(t, 15*time.Second, "the call to end", func() bool { return !g.pending() })
	if err := g.fails(t); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.Remove()
}
