package client

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// What a lost creation left is removed, whatever number its names got.
func TestLostCreationIsRemoved(t *testing.T) {
	shared(t)
	var mu sync.Mutex
	var told []int
	c, o, d := dial(t, on(EventLeftBehind, func(ev Event) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, ev.Pending)
	})), observer(t), dir(t)
	e, ctx := present(t, c), testCtx(t)
	n := newNode{Create: zk.Create{Path: d + "/" + newNodeID(e.sid).UUID() + "-", Mode: zk.EphemeralSequential}}
	other := newNode{Create: zk.Create{Path: d + "/" + newNodeID(e.sid).UUID() + "-",
		Mode: zk.EphemeralSequential}}
	must.OK(t, e.ensure(ctx, d, nil))
	for range 2 {
		must.Get(e.conn.Create(ctx, n.Create))(t)
	}
	must.Get(e.conn.Create(ctx, other.Create))(t)
	e.reapLost([]newNode{n})
	queued(t, o, d, 1)
	eventually(t, "the hook to hear of the end", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(told, []int{1, 0})
	})
}

// A removal that fails is tried again, and given up if the server refuses it for good.
func TestRemovalIsTriedAgain(t *testing.T) {
	shared(t)
	c := dial(t)
	e := present(t, c)
	for name, x := range map[string]struct {
		err   error
		tries int
	}{
		"done": {nil, 1}, "gone": {&zk.Error{Code: -101}, 1}, "refused": {&zk.Error{Code: -102}, 1},
		"throttled": {&zk.Error{Code: -127}, 3}, "lost": {zk.ErrConnectionLost, 3}, "again": {errAgain, 3},
	} {
		tries := 0
		done := e.reapFunc([]string{"/a", "/b"}, func(context.Context) error {
			if tries++; tries == 3 {
				return nil
			}
			return x.err
		})
		soon(t, name, done)
		expect.Equal(t, tries, x.tries, "%s: tries", name)
	}
	must.Equal(t, c.reaper.left.add(0), 0, "nodes to remove")
	must.Equal(t, len(c.crowd.dirs), 0, "directories with nodes to remove")
}
