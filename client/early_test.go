package client

import (
	"testing"

	"github.com/zlockd/zlockd/test/faultproxy"
)

// Unlock does not wait for the server, but the release comes about, also when its
// first request is lost.
func TestEarlyUnlockIsReleasedAllTheSame(t *testing.T) {
	addr(t)
	leakCheck(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	for _, what := range []faultproxy.Action{faultproxy.Hold, faultproxy.CutBefore} {
		r := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Op: faultproxy.OpDelete, Under: d, Nth: 1, Do: what})
		l := lock(t, c.Mutex(d, WithEarlyUnlock()).Lock)
		unlock(t, l) // would wait forever
		soon(t, "the request", r.Acted())
		if what == faultproxy.Hold && len(names(t, o, d)) != 1 {
			t.Error("it was released although its request is held")
		}
		r.Release()
		queued(t, o, d, 0)
		r.Remove()
	}
}
