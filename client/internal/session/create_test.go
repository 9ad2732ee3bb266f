package session

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// If the answer to a creation is lost, its nodes are removed, whatever numbers the server gave them.
func TestLostCreationIsRemoved(t *testing.T) {
	var mu sync.Mutex
	var told []int
	_, e := open(t, server.Addr(t), Options{LeftBehind: func(nodes int) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, nodes)
	}})
	d, ctx := server.Dir(t), testCtx(t)
	n := Node{Create: zk.Create{Path: d + "/" + fresh().UUID() + "-", Mode: zk.EphemeralSequential}}
	other := Node{Create: zk.Create{Path: d + "/" + fresh().UUID() + "-",
		Mode: zk.EphemeralSequential}}
	must.OK(t, e.makeDir(ctx, d, nil))
	for range 2 {
		must.Get(e.conn.Create(ctx, n.Create))(t)
	}
	must.Get(e.conn.Create(ctx, other.Create))(t)
	e.reapLost([]Node{n})
	has(t, e, d, 1)
	must.Await(t, "the hook to hear of the end", patience, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(told, []int{1, 0})
	})
}

// The client repeats a failed removal, and gives up if the server refuses it for good.
func TestRemovalIsTriedAgain(t *testing.T) {
	k, e := open(t, server.Addr(t), Options{})
	for name, x := range map[string]struct {
		err   error
		tries int
	}{
		"done": {nil, 1}, "gone": {&zk.Error{Code: -101}, 1}, "refused": {&zk.Error{Code: -102}, 1},
		"throttled": {&zk.Error{Code: -127}, 3}, "lost": {zk.ErrConnectionLost, 3}, "again": {ErrAgain, 3},
	} {
		tries := 0
		done := e.ReapFunc([]string{"/a", "/b"}, func(context.Context) error {
			if tries++; tries == 3 {
				return nil
			}
			return x.err
		})
		must.Await(t, name, patience, func() bool { return isClosed(done) })
		expect.Equal(t, tries, x.tries, "%s: tries", name)
	}
	must.Equal(t, k.Pending(), 0, "nodes to remove")
	must.Equal(t, len(k.crowd.dirs), 0, "directories with nodes to remove")
}

// If the answer to a creation is lost, the client finds all of its nodes again, or leaves none.
func TestCreationIsRecoveredWholly(t *testing.T) {
	k, e := open(t, server.Addr(t), Options{})
	ctx := testCtx(t)
	for name, x := range map[string]struct {
		there []int // how many copies of each node exist
		found bool
	}{
		"none": {[]int{0, 0}, false}, "all": {[]int{1, 1}, true}, "one": {[]int{1, 0}, false},
		"the other": {[]int{0, 1}, false}, "twice": {[]int{2, 1}, true}, "no directory": {nil, false},
	} {
		d := server.Dir(t)
		var nodes []Node
		var want []string
		for i := range 2 {
			n := Node{Create: zk.Create{Path: d + "/" + fresh().UUID() + "-", Mode: zk.EphemeralSequential,
				Data: []byte{byte(i)}}}
			nodes = append(nodes, n)
			if x.there == nil {
				continue
			}
			must.OK(t, e.makeDir(ctx, d, nil))
			for nth := range x.there[i] {
				made := must.Get(e.conn.Create(ctx, n.Create))(t)
				if nth == 0 && x.found {
					want = append(want, made.Path)
				}
			}
		}
		before := k.Recovered()
		made, err := e.recover(ctx, nodes)
		must.OK(t, err, "%s", name)
		var got []string
		for _, m := range made {
			got = append(got, m.Path)
			expect.Equal(t, m.Name, recipe.Base(m.Path), "%s: name", name)
			expect.Equal(t, m.Stat.EphemeralOwner, e.sid, "%s: session", name)
		}
		expect.List(t, got, want, "%s", name)
		expect.Equal(t, k.Recovered()-before, uint64(len(want)/2), "%s: recovered", name)
		has(t, e, d, len(want))
	}
}

// The client does not adopt a node with the requested name that another session made.
func TestNodeOfAnotherSessionIsNotAdopted(t *testing.T) {
	_, e := open(t, server.Addr(t), Options{})
	_, other := open(t, server.Addr(t), Options{})
	ctx := testCtx(t)
	for _, mode := range []zk.Mode{zk.Ephemeral, zk.EphemeralSequential} {
		d := server.Dir(t)
		n := Node{Create: zk.Create{Path: d + "/" + fresh().UUID() + "-"}}
		must.OK(t, e.makeDir(ctx, d, nil))
		theirs := zk.Create{Path: n.Path + "0000000000", Mode: mode}
		if mode == zk.EphemeralSequential {
			theirs.Path = n.Path
		}
		must.Get(other.conn.Create(ctx, theirs))(t)
		made, err := e.recover(ctx, []Node{n})
		must.OK(t, err)
		expect.Equal(t, len(made), 0, "nodes adopted")
	}
}

// The client finds its node again by the requested name.
func TestNodeIsKnownByItsName(t *testing.T) {
	id := fresh()
	names := []string{"_c_" + id.UUID() + "-lock-0000000007", "q-" + id.UUID() + "-W-0000000008",
		"h-" + id.UUID() + "-W", "lock-0000000009"}
	for asked, want := range map[string][]string{
		"_c_" + id.UUID() + "-lock-": names[:1], "h-" + id.UUID() + "-W": names[2:3], fresh().Hex(): nil,
	} {
		n := Node{Create: zk.Create{Path: "/d/" + asked}}
		expect.List(t, n.in(names), want, "%s", asked)
	}
}

// In a directory, half as many nodes may be left behind as calls are running, but always one.
func TestCrowdLetsInAsMuchAsItMay(t *testing.T) {
	var c crowd
	expect.That(t, c.room("/d") == nil, "an empty directory is full")
	c.abandon("/d")
	expect.That(t, c.room("/d") == nil, "one call may leave one node behind")
	c.abandon("/d")
	wait := c.room("/d")
	must.That(t, wait != nil, "one call may leave two nodes behind")
	expect.That(t, !isClosed(wait), "the wait is over before there is room")
	expect.That(t, c.room("/other") == nil, "another directory is full")
	c.enter("/d", "/d", "/d", "/d")
	expect.That(t, isClosed(wait), "the wait goes on beside four calls")
	expect.That(t, c.room("/d") == nil, "four calls may not leave two nodes behind")
	c.leave("/d", "/d", "/d", "/d")
	wait = c.room("/d")
	must.That(t, wait != nil, "calls that are over count")
	c.gone("/d", "/d")
	expect.That(t, isClosed(wait), "the wait goes on without a node left behind")
	expect.Equal(t, len(c.dirs), 0, "directories that are remembered")
}
