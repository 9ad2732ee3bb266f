package client

import (
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// Of a creation whose answer was lost, all nodes are found again, or none is left.
func TestCreationIsRecoveredWholly(t *testing.T) {
	shared(t)
	c, o := dial(t), observer(t)
	e, ctx := present(t, c), testCtx(t)
	for name, x := range map[string]struct {
		there []int // how many nodes there are of each
		found bool
	}{
		"none": {[]int{0, 0}, false}, "all": {[]int{1, 1}, true}, "one": {[]int{1, 0}, false},
		"the other": {[]int{0, 1}, false}, "twice": {[]int{2, 1}, true}, "no directory": {nil, false},
	} {
		d := dir(t)
		var nodes []newNode
		var want []string
		for i := range 2 {
			n := newNode{Create: zk.Create{Path: d + "/" + newNodeID(e.sid).UUID() + "-", Mode: zk.EphemeralSequential,
				Data: []byte{byte(i)}}}
			nodes = append(nodes, n)
			if x.there == nil {
				continue
			}
			must.OK(t, e.ensure(ctx, d, nil))
			for k := range x.there[i] {
				made := must.Get(e.conn.Create(ctx, n.Create))(t)
				if k == 0 && x.found {
					want = append(want, made.Path)
				}
			}
		}
		before := c.count.recovered.Load()
		made, err := e.recover(ctx, nodes)
		must.OK(t, err, "%s", name)
		var got []string
		for _, m := range made {
			got = append(got, m.path)
			expect.That(t, m.name == recipe.Base(m.path) && m.stat.EphemeralOwner == e.sid, "%s: %+v", name, m)
		}
		expect.List(t, got, want, "%s", name)
		expect.Equal(t, c.count.recovered.Load()-before, uint64(len(want)/2), "%s: recovered", name)
		queued(t, o, d, len(want))
	}
	// A node of this name that another session made is not the creation.
	d := dir(t)
	n := newNode{Create: zk.Create{Path: d + "/" + newNodeID(e.sid).UUID() + "-"}}
	must.OK(t, e.ensure(ctx, d, nil))
	must.Get(present(t, dial(t)).conn.Create(ctx, zk.Create{Path: n.Path + "0000000000", Mode: zk.Ephemeral}))(t)
	made, err := e.recover(ctx, []newNode{n})
	expect.That(t, err == nil && made == nil, "%+v, %v", made, err)
}

// A try on a path that has a lock of another kind makes nothing there.
func TestTryBesideAnotherKindMakesNothing(t *testing.T) {
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
