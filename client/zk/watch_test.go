package zk_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

func TestWatches(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		st, w := must.Get2(c.ExistsW(ctx, "/w"))(t)
		must.That(t, st == nil, "%+v, %+v", st, w.Event())
		must.Equal(t, w.Event(), zk.Event{}, "event")
		node(t, c, "/w", "")
		select { // the answer is there, so the event must have come already
		case <-w.Fired():
		default:
			t.Fatal("the watch must fire before the change is answered")
		}
		must.Equal(t, w.Event(), zk.Event{Type: zk.EventCreated, Path: "/w"}, "event")
		_, data := must.Get2(c.GetW(ctx, "/w"))(t)
		_, same := must.Get2(c.ExistsW(ctx, "/w"))(t)
		_, _, list, err := c.ChildrenW(ctx, "/w")
		must.OK(t, err)
		must.Equal(t, data, same, "a watch is not shared: %d watches: data", c.Watches())
		must.Equal(t, c.Watches(), 2,
			"a watch is not shared: %d watches: c.Watches()", c.Watches())
		node(t, c, "/w/x", "")
		must.Equal(t, fired(t, list), zk.EventChildrenChanged, "event")
		must.Get(c.Set(ctx, "/w", nil, -1))(t)
		must.Equal(t, fired(t, data), zk.EventDataChanged, "event")
		must.OK(t, c.Delete(ctx, "/w/x", -1))
		_, data = must.Get2(c.GetW(ctx, "/w"))(t)
		_, _, list, err = c.ChildrenW(ctx, "/w")
		must.OK(t, err)
		must.OK(t, c.Delete(ctx, "/w", -1))
		a, b := fired(t, data), fired(t, list)
		must.Equal(t, a, zk.EventDeleted, "events")
		must.Equal(t, b, zk.EventDeleted, "events")
		_, none, err := c.GetW(ctx, "/w")
		must.That(t, none == nil, "a failed GetW returns a watch")
		must.Fails(t, err)
		must.Equal(t, c.Watches(), 0, "watches")
		_, w = must.Get2(c.ExistsW(ctx, "/w"))(t)
		must.OK(t, c.RemoveWatches(ctx, "/w"))
		must.OK(t, c.RemoveWatches(ctx, "/w"))
		ev := fired(t, w)
		must.Equal(t, ev, zk.EventLost, "event")
		must.Equal(t, c.Watches(), 0, "watches")
	})
}

// TestWatchesComeAlong changes the watched nodes before the connection is lost, while it is lost, or after
// the Conn has connected again.
func TestWatchesComeAlong(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		o := dial(t, addr, zk.Options{})
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		node(t, o, "/w", "")
		type watched struct {
			w      *zk.Watch
			change func(path string) error
			want   zk.EventType
		}
		kinds := []func(path string) watched{
			func(path string) watched {
				node(t, o, path, "")
				_, w := must.Get2(c.GetW(ctx, path))(t)
				return watched{w, func(path string) error { _, err := o.Set(ctx, path, nil, -1); return err },
					zk.EventDataChanged}
			},
			func(path string) watched {
				node(t, o, path, "")
				_, w := must.Get2(c.GetW(ctx, path))(t)
				return watched{w, func(path string) error { return o.Delete(ctx, path, -1) }, zk.EventDeleted}
			},
			func(path string) watched {
				_, w := must.Get2(c.ExistsW(ctx, path))(t)
				return watched{w, func(path string) error { _, err := o.Create(ctx, zk.Create{Path: path}); return err },
					zk.EventCreated}
			},
			func(path string) watched {
				node(t, o, path, "")
				_, _, w, err := c.ChildrenW(ctx, path)
				must.OK(t, err)
				return watched{w, func(path string) error {
					_, err := o.Create(ctx, zk.Create{Path: path + "/x"})
					return err
				}, zk.EventChildrenChanged}
			},
		}
		var ws []watched
		path := func(i int) string { return fmt.Sprintf("/w/%d", i) }
		for i := range 3 * len(kinds) {
			ws = append(ws, kinds[i%len(kinds)](path(i)))
		}
		check := func(i int) {
			t.Helper()
			must.OK(t, ws[i].change(path(i)))
			ev := fired(t, ws[i].w)
			must.Equal(t, ev, ws[i].want, "%d: event %v", i, ev)
		}
		n := len(kinds)
		for i := range n { // changes while the Conn is connected
			check(i)
		}
		p.Refuse(true)
		p.Cut()
		for i := n; i < 2*n; i++ { // changes while the connection is lost
			must.OK(t, ws[i].change(path(i)))
		}
		p.Refuse(false)
		for i := n; i < 2*n; i++ {
			ev := fired(t, ws[i].w)
			must.Equal(t, ev, ws[i].want, "%d: event %v", i, ev)
		}
		for i := 2 * n; i < 3*n; i++ { // changes after the Conn has connected again
			select {
			case <-ws[i].w.Fired():
				t.Fatalf("%d: event %v of nothing", i, ws[i].w.Event())
			default:
			}
			check(i)
		}
	})
}

// TestWatchesRefused checks that waiting callers get EventLost if the next server refuses to set the watches
// again.
func TestWatchesRefused(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		node(t, c, "/w", "")
		_, data := must.Get2(c.GetW(ctx, "/w"))(t)
		_, _, list, err := c.ChildrenW(ctx, "/w")
		must.OK(t, err)
		rule := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Op: faultproxy.OpSetWatches, Do: faultproxy.Fail,
			Code: -5})
		defer rule.Remove()
		p.Cut()
		a, b := fired(t, data), fired(t, list)
		must.Equal(t, a, zk.EventLost, "events")
		must.Equal(t, b, zk.EventLost, "events")
	})
}

func TestSubscription(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		o := dial(t, addr, zk.Options{})
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		node(t, o, "/s", "")
		all := must.Get(c.Subscribe(ctx, "/s", true))(t)
		one := must.Get(c.Subscribe(ctx, "/s/b", false))(t)
		next := func(s *zk.Subscription, want zk.EventType, path string) {
			t.Helper()
			ev := must.Get(s.Next(ctx))(t)
			must.Equal(t, ev, zk.Event{Type: want, Path: path}, "event, want %v of %s", want, path)
		}
		change := func() {
			for _, p := range []string{"/s/a", "/s/b", "/s/b/c"} {
				node(t, o, p, "")
			}
			must.Get(o.Set(ctx, "/s/b", nil, -1))(t)
			for _, p := range []string{"/s/b/c", "/s/b", "/s/a"} {
				must.OK(t, o.Delete(ctx, p, -1))
			}
		}
		check := func() {
			t.Helper()
			for _, ev := range []zk.Event{{zk.EventCreated, "/s/a"}, {zk.EventCreated, "/s/b"},
				{zk.EventCreated, "/s/b/c"}, {zk.EventDataChanged, "/s/b"},
				{zk.EventDeleted, "/s/b/c"}, {zk.EventDeleted, "/s/b"}, {zk.EventDeleted, "/s/a"}} {
				next(all, ev.Type, ev.Path)
			}
			for _, ev := range []zk.EventType{zk.EventCreated, zk.EventChildrenChanged, zk.EventDataChanged,
				zk.EventChildrenChanged, zk.EventDeleted} {
				next(one, ev, "/s/b")
			}
		}
		change()
		check()
		p.Cut()
		next(all, zk.EventResumed, "/s")
		next(one, zk.EventResumed, "/s/b")
		must.OK(t, c.Sync(ctx, "/s")) // the server has set the watches again when it answers this sync
		change()
		check()
		must.OK(t, all.Close(ctx))
		must.OK(t, all.Close(ctx))
		_, err := all.Next(ctx)
		is(t, err, zk.ErrClosed)
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, err = one.Next(short)
		is(t, err, context.DeadlineExceeded)
	})
}

// In TestEventBeforeNewState one goroutine changes a node, and another reads and watches the node. When a
// read returns a new version, the event of that change must have come already.
func TestEventBeforeNewState(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		o, ctx := dial(t, addr, zk.Options{}), within(t)
		node(t, c, "/w", "")
		var wg sync.WaitGroup
		defer wg.Wait()
		stop := make(chan struct{})
		defer close(stop)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					o.Set(ctx, "/w", nil, -1)
				}
			}
		})
		first, w := must.Get2(c.GetW(ctx, "/w"))(t)
		for i := range 500 {
			if i%50 == 49 {
				p.Cut()
			}
			n := must.Get(c.Get(ctx, "/w"))(t)
			isFired := w.Event().Type != 0
			if n.Stat.Version > first.Stat.Version && !isFired {
				t.Fatalf("round %d: version %d read, the watch is of %d and has not fired", i, n.Stat.Version,
					first.Stat.Version)
			}
			if isFired {
				first, w = must.Get2(c.GetW(ctx, "/w"))(t)
			}
		}
	})
}

// If a client may not read a node, the server does not tell it when the node is gone. When another answer
// shows that, the Conn drops its watch of the node, which would otherwise stay forever.
func TestWatchOfAHiddenNodeEndsWithIt(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		owner := dial(t, addr, zk.Options{Auth: []zk.Auth{{Scheme: "digest", Secret: []byte("owner:x")}}})
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		must.Get(owner.Create(ctx, zk.Create{Path: "/hidden", ACL: []zk.ACL{
			{Perms: zk.PermAll, ID: zk.ID{Scheme: "auth"}}}}))(t)
		st, w := must.Get2(c.ExistsW(ctx, "/hidden"))(t)
		must.That(t, st != nil, "%v, %d watches: want st != nil", st, c.Watches())
		must.Equal(t, c.Watches(), 1, "%v, %d watches: c.Watches()", st, c.Watches())
		must.OK(t, owner.Delete(ctx, "/hidden", -1))
		must.OK(t, c.Sync(ctx, "/hidden"))
		if st := must.Get(c.Exists(ctx, "/hidden"))(t); st != nil {
			t.Fatal("it is there")
		}
		ev := fired(t, w)
		must.Equal(t, ev, zk.EventDeleted, "event")
		must.Equal(t, c.Watches(), 0, "watches")
		// ExistsW waits for the creation of the node. An answer that the node does not exist does not end
		// this watch.
		_, w = must.Get2(c.ExistsW(ctx, "/hidden"))(t)
		must.Get(c.Exists(ctx, "/hidden"))(t)
		must.Equal(t, w.Event(), zk.Event{}, "event")
		must.Equal(t, c.Watches(), 1, "watches")
	})
}

// A server that is told to forget the watches of a node forgets the subscriptions too.
func TestSubscriptionWhoseWatchWasRemoved(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		s := must.Get(c.Subscribe(ctx, "/s", false))(t)
		must.OK(t, c.RemoveWatches(ctx, "/s"))
		node(t, c, "/s", "")
		ev, err := s.Next(ctx)
		must.OK(t, err)
		must.Equal(t, ev, zk.Event{Type: zk.EventLost, Path: "/s"}, "event")
		_, err = s.Next(ctx)
		is(t, err, zk.ErrClosed)
		must.OK(t, s.Close(ctx))
		must.Equal(t, c.Watches(), 0, "watches")
	})
}

// Subscriptions of one node share the server's watch. The end of one does not end the others.
func TestSubscriptionsOfOneNode(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		var subs []*zk.Subscription
		for _, recursive := range []bool{false, true, false} {
			subs = append(subs, must.Get(c.Subscribe(ctx, "/s", recursive))(t))
		}
		must.OK(t, subs[0].Close(ctx))
		node(t, c, "/s", "")
		p.Cut()
		for _, s := range subs[1:] {
			for _, want := range []zk.EventType{zk.EventCreated, zk.EventResumed} {
				ev := must.Get(s.Next(ctx))(t)
				must.Equal(t, ev, zk.Event{Type: want, Path: "/s"}, "event")
			}
		}
		must.OK(t, c.Sync(ctx, "/s"))
		must.Get(c.Set(ctx, "/s", nil, -1))(t)
		for _, s := range subs[1:] {
			must.Equal(t, must.Get(s.Next(ctx))(t).Type, zk.EventDataChanged, "event")
			must.OK(t, s.Close(ctx))
		}
		_, err := subs[0].Next(ctx)
		is(t, err, zk.ErrClosed)
		must.Equal(t, c.Watches(), 0, "watches")
	})
}

// A node has both a plain and a recursive subscription. Each reports the same events as it would alone, also
// after the other one ends, and on the next connection. A ZooKeeper before 3.9 keeps only the later of the
// two watches.
func TestKindsOfSubscriptionsOfOneNode(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		for i, order := range []struct{ first, second, closes bool }{
			{false, true, false}, {false, true, true}, {true, false, false}, {true, false, true},
		} {
			c, p := proxied(t, addr, zk.Options{})
			o, ctx, top := dial(t, addr, zk.Options{}), within(t), fmt.Sprintf("/kinds-%d", i)
			node(t, o, top, "")
			subs := map[bool]*zk.Subscription{}
			for _, recursive := range []bool{order.first, order.second} {
				subs[recursive] = must.Get(c.Subscribe(ctx, top, recursive))(t)
			}
			hears := func() {
				t.Helper()
				node(t, o, top+"/a", "")
				node(t, o, top+"/a/b", "")
				must.OK(t, o.Delete(ctx, top+"/a/b", -1))
				must.OK(t, o.Delete(ctx, top+"/a", -1))
				must.Get(o.Set(ctx, top, nil, -1))(t)
				for recursive, s := range subs {
					want := []zk.Event{{zk.EventChildrenChanged, top}, {zk.EventChildrenChanged, top},
						{zk.EventDataChanged, top}}
					if recursive {
						want = []zk.Event{{zk.EventCreated, top + "/a"}, {zk.EventCreated, top + "/a/b"},
							{zk.EventDeleted, top + "/a/b"}, {zk.EventDeleted, top + "/a"}, {zk.EventDataChanged, top}}
					}
					for _, ev := range want {
						must.Equal(t, must.Get(s.Next(ctx))(t), ev, "%+v, recursive: %v", order, recursive)
					}
				}
			}
			hears()
			p.Cut()
			for _, s := range subs {
				must.Equal(t, must.Get(s.Next(ctx))(t), zk.Event{Type: zk.EventResumed, Path: top})
			}
			must.OK(t, c.Sync(ctx, top))
			hears()
			must.OK(t, subs[order.closes].Close(ctx))
			delete(subs, order.closes)
			hears()
			p.Cut()
			must.Equal(t, must.Get(subs[!order.closes].Next(ctx))(t).Type, zk.EventResumed)
			must.OK(t, c.Sync(ctx, top))
			hears()
			must.OK(t, subs[!order.closes].Close(ctx))
			must.Equal(t, c.Watches(), 0, "watches")
		}
	})
}

// A caller stops waiting before the server has set its subscription. When the server has set it, the Conn
// drops it.
func TestSubscriptionThatIsGivenUp(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, p := proxied(t, addr, zk.Options{})
		ctx := within(t)
		hold := p.Add(faultproxy.Rule{Kind: faultproxy.Reply, Under: "/s", Nth: 1, Do: faultproxy.Hold})
		cut, stop := context.WithCancel(ctx)
		go func() {
			<-hold.Acted()
			stop()
		}()
		_, err := c.Subscribe(cut, "/s", true)
		is(t, err, context.Canceled)
		hold.Release()
		must.OK(t, c.Sync(ctx, "/"))
		must.Equal(t, c.Watches(), 0, "watches")
		refused := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Under: "/s", Do: faultproxy.Refused, Code: -8})
		defer refused.Remove()
		_, err = c.Subscribe(ctx, "/s", true)
		is(t, err, zk.ErrBadArguments)
		must.Equal(t, c.Watches(), 0, "watches")
	})
}

// A subscription goes on at the next connection, even if the session has no other watches.
func TestLoneSubscriptionComesAlong(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		for i, recursive := range []bool{true, false} {
			c, p := proxied(t, addr, zk.Options{})
			ctx, path := within(t), fmt.Sprintf("/s%d", i)
			s := must.Get(c.Subscribe(ctx, path, recursive))(t)
			p.Cut()
			must.Equal(t, must.Get(s.Next(ctx))(t), zk.Event{Type: zk.EventResumed, Path: path})
			must.OK(t, c.Sync(ctx, path)) // the server has set the watches again when it answers this sync
			node(t, c, path, "")
			node(t, c, path+"/a", "")
			want := zk.Event{Type: zk.EventChildrenChanged, Path: path}
			if recursive {
				want = zk.Event{Type: zk.EventCreated, Path: path + "/a"}
			}
			must.Equal(t, must.Get(s.Next(ctx))(t), zk.Event{Type: zk.EventCreated, Path: path})
			must.Equal(t, must.Get(s.Next(ctx))(t), want)
		}
	})
}
