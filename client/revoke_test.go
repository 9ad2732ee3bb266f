package client

import (
	"errors"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/test/faultproxy"
)

// Who writes to its own node must not write over the wish that it leaves.
func TestWishToLeaveIsNotWrittenOver(t *testing.T) {
	addr(t)
	leakCheck(t)
	d, o := dir(t), observer(t)
	c, p := proxied(t)
	other := dial(t)
	limits := []Option{WithLimit(Limit{Hold: time.Hour, Break: true})}
	holder := lock(t, other.Mutex(d).Lock, limits...)
	r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpSetData, Under: d, Nth: 1, Do: faultproxy.Hold})
	waiter := start(testCtx(t), c.Mutex(d).Lock, limits...)
	soon(t, "the question for the time", r.Acted())
	for _, n := range names(t, o, d) {
		if n == recipe.Base(holder.Node()) {
			continue
		}
		if err := other.Inspector().Revoke(testCtx(t), d, n, recipe.Revocation{By: "somebody"}); err != nil {
			t.Fatal(err)
		}
	}
	r.Remove()
	var lost *LostError
	if err := waiter.fails(t); !errors.As(err, &lost) || lost.Reason != Revoked {
		t.Error(err)
	}
	unlock(t, holder)
	queued(t, o, d, 0)

	// A leader that proclaims another value.
	el := c.Election(d + "/e")
	l := must[*Lease](t)(el.Campaign(testCtx(t), []byte("a")))
	time.Sleep(2 * ownWatch) // its node is watched
	p.Add(faultproxy.Rule{Kind: faultproxy.Event, Under: d, Do: faultproxy.Drop})
	if err := other.Inspector().Revoke(testCtx(t), d+"/e", recipe.Base(l.Node()), recipe.Revocation{}); err != nil {
		t.Fatal(err)
	}
	if err := el.Proclaim(testCtx(t), l, []byte("b")); err != nil {
		t.Fatal(err)
	}
	soon(t, "the wish", l.Revoked())
	unlock(t, l)
}
