package zk_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A request for which SendSoon was called goes out before later requests. If no other request comes, it goes
// out alone.
func TestSendSoon(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		p := c.Pipe()
		alone := p.Create(zk.Create{Path: "/soon"})
		p.SendSoon()
		<-alone.Done()
		must.Get(alone.Wait(ctx))(t)
		for range 100 {
			p := c.Pipe()
			gone := p.Delete(zk.Delete{Path: "/soon", Version: -1})
			p.SendSoon()
			must.Get(c.Create(ctx, zk.Create{Path: "/soon"}))(t)
			must.Get(gone.Wait(ctx))(t)
		}
		p = c.Pipe()
		last := p.Delete(zk.Delete{Path: "/soon", Version: -1})
		p.SendSoon()
		must.OK(t, c.Close(ctx)) // Close also sends the request that still waits after SendSoon
		must.Get(last.Wait(ctx))(t)
	})
}

func TestRequests(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		made := must.Get(c.Create(ctx, zk.Create{Path: "/a", Data: []byte("one")}))(t)
		must.Equal(t, made.Path, "/a", "created %+v: made.Path", made)
		must.That(t, made.Stat.Czxid != 0, "created %+v: want made.Stat.Czxid != 0", made)
		n := must.Get(c.Get(ctx, "/a"))(t)
		must.Equal(t, string(n.Data), "one", "read %+v: string(n.Data)", n)
		must.Equal(t, n.Stat.Czxid, made.Stat.Czxid, "read %+v: n.Stat.Czxid", n)
		st := must.Get(c.Set(ctx, "/a", []byte("two"), 0))(t)
		must.Equal(t, st.Version, 1, "version")
		_, err := c.Set(ctx, "/a", nil, 0)
		is(t, err, zk.ErrBadVersion)
		var refusal *zk.Error
		must.That(t, errors.As(err, &refusal), "error %#v: want errors.As(err, &refusal)", err)
		must.Equal(t, refusal.Path, "/a", "error %#v: refusal.Path", err)
		must.Equal(t, refusal.Op, "setData", "error %#v: refusal.Op", err)
		must.That(t, zk.IsRefusal(err), "error %#v: want zk.IsRefusal(err)", err)
		must.That(t, !errors.Is(err, zk.ErrUncertain),
			"error %#v: want !errors.Is(err, zk.ErrUncertain)", err)
		_, err = c.Create(ctx, zk.Create{Path: "/a"})
		is(t, err, zk.ErrNodeExists)
		there := must.Get(c.Exists(ctx, "/a"))(t)
		must.That(t, there != nil, "the node does not exist")
		must.Equal(t, there.Version, 1, "version")
		if st := must.Get(c.Exists(ctx, "/b"))(t); st != nil {
			t.Fatalf("exists %+v", st)
		}
		seq := must.Get(c.Create(ctx, zk.Create{Path: "/a/n-", Mode: zk.EphemeralSequential}))(t)
		must.Equal(t, seq.Path, "/a/n-0000000000", "created %+v: seq.Path", seq)
		must.Equal(t, seq.Stat.EphemeralOwner, c.Session().ID,
			"created %+v: seq.Stat.EphemeralOwner", seq)
		must.Get(c.Create(ctx, zk.Create{Path: "/a/box", Mode: zk.Container}))(t)
		must.Get(c.Create(ctx, zk.Create{Path: "/a/ttl", Mode: zk.PersistentTTL, TTL: 1 << 30}))(t)
		list, _ := must.Get2(c.Children(ctx, "/a"))(t)
		slices.Sort(list)
		must.Equal(t, fmt.Sprint(list), "[box n-0000000000 ttl]", "children %v", list)
		must.Equal(t, must.Get(c.ChildrenCount(ctx, "/a"))(t), 3, "descendants")
		must.Equal(t, fmt.Sprint(must.Get(c.Ephemerals(ctx, "/a"))(t)), "[/a/n-0000000000]", "ephemerals")
		is(t, c.Delete(ctx, "/a", -1), zk.ErrNotEmpty)
		must.OK(t, c.Delete(ctx, "/a/ttl", 0))
		must.OK(t, c.Sync(ctx, "/a"))
		must.OK(t, c.Confirm(ctx))
		must.OK(t, c.AddAuth(ctx, zk.Auth{Scheme: "digest", Secret: []byte("u:p")}))
		made.Stat = must.Get(c.SetACL(ctx, "/a/box", zk.AuthACL(zk.PermAll), 0))(t)
		must.Equal(t, made.Stat.Aversion, 1, "version of the ACL that SetACL returns")
		acl, st := must.Get2(c.GetACL(ctx, "/a/box"))(t)
		must.Get(c.Set(ctx, "/a", []byte(strings.Repeat("x", 400)), -1))(t)
		// This answer may reuse the buffer of GetACL's answer, but must not change its results.
		must.Get(c.Get(ctx, "/a"))(t)
		must.Equal(t, st.Aversion, 1, "ACL %+v, %+v: st.Aversion", acl, st)
		must.Equal(t, len(acl), 1, "ACL %+v, %+v: len(acl)", acl, st)
		must.Equal(t, acl[0].ID, zk.DigestACL(zk.PermAll, "u", "p")[0].ID,
			"ACL %+v, %+v: acl[0].ID", acl, st)
	})
}

func TestMultiSaysWhatHappened(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		res := must.Get(c.Multi(ctx,
			zk.Create{Path: "/m", Data: []byte("x")},
			zk.Create{Path: "/m/n-", Mode: zk.EphemeralSequential},
			zk.SetData{Path: "/m", Data: []byte("y"), Version: 0},
			zk.Check{Path: "/m", Version: 1},
			zk.Create{Path: "/m/gone"}, zk.Delete{Path: "/m/gone", Version: -1}))(t)
		must.Equal(t, res[1].Path, "/m/n-0000000000", "results %+v: res[1].Path", res)
		must.Equal(t, res[1].Stat.Czxid, res[0].Stat.Czxid,
			"results %+v: res[1].Stat.Czxid", res)
		must.Equal(t, res[2].Stat.Version, 1, "results %+v: res[2].Stat.Version", res)
		_, err := c.Multi(ctx, zk.SetData{Path: "/m", Data: []byte("z"), Version: -1}, zk.Check{
			Path: "/m/absent", Version: -1}, zk.Delete{Path: "/m", Version: -1})
		var refused *zk.MultiError
		must.That(t, errors.As(err, &refused), "error %v: want errors.As(err, &refused)", err)
		must.Equal(t, refused.Index, 1, "error %v: refused.Index", err)
		must.Is(t, err, zk.ErrNoNode, "error %v", err)
		must.That(t, zk.IsRefusal(err), "error %v: want zk.IsRefusal(err)", err)
		n := must.Get(c.Get(ctx, "/m"))(t)
		must.Equal(t, string(n.Data), "y", "a refused transaction wrote %q", n.Data)
		res = must.Get(c.Multi(ctx))(t)
		must.Equal(t, len(res), 0, "results of nothing")
	})
}

// TestOneFlight checks that the server carries out the requests of a Pipe in their order.
func TestOneFlight(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		node(t, c, "/p", "")
		for i := range 50 {
			p := c.Pipe()
			made := p.Create(zk.Create{Path: "/p/n-", Mode: zk.EphemeralSequential})
			list := p.Names("/p")
			p.Send()
			n := must.Get(made.Wait(ctx))(t)
			names := must.Get(list.Wait(ctx))(t)
			must.Equal(t, names.Len(), i+1,
				"made %s, listed %v: names.Len()", n.Path, names.List())
			must.That(t, slices.Contains(names.List(), strings.TrimPrefix(n.Path, "/p/")),
				"made %s, listed %v", n.Path, names.List())
		}
	})
}

func TestManyGoroutines(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		node(t, c, "/g", "")
		big := strings.Repeat("x", 20_000)
		var wg sync.WaitGroup
		for g := range 40 {
			wg.Go(func() {
				path := fmt.Sprintf("/g/%d", g)
				for i := range 20 {
					data := fmt.Sprintf("%d-%d-%s", g, i, big[:i*1000])
					var err error
					if i == 0 {
						_, err = c.Create(ctx, zk.Create{Path: path, Data: []byte(data)})
					} else {
						_, err = c.Set(ctx, path, []byte(data), int32(i-1))
					}
					n, getErr := c.Get(ctx, path)
					if !expect.OK(t, err, "%s, round %d: write", path, i) ||
						!expect.OK(t, getErr, "%s, round %d: read", path, i) ||
						!expect.Equal(t, string(n.Data), data, "%s, round %d", path, i) {
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestChroot(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr+"/top/app", zk.Options{}), within(t)
		_, err := c.Create(ctx, zk.Create{Path: "/a"})
		is(t, err, zk.ErrNoNode)
		must.OK(t, c.MakePath(ctx, "/x/y", zk.Persistent, nil))
		must.OK(t, c.MakePath(ctx, "/x/y", zk.Persistent, nil))
		_, w := must.Get2(c.GetW(ctx, "/x/y"))(t)
		made := must.Get(c.Create(ctx, zk.Create{Path: "/x/y/n-", Mode: zk.PersistentSequential}))(t)
		res := must.Get(c.Multi(ctx, zk.Create{Path: "/x/m"}, zk.SetData{Path: "/x/y", Version: -1}))(t)
		must.Equal(t, made.Path, "/x/y/n-0000000000", "path")
		must.Equal(t, res[0].Path, "/x/m", "path")
		if fired(t, w); w.Event() != (zk.Event{Type: zk.EventDataChanged, Path: "/x/y"}) {
			t.Fatalf("event %+v", w.Event())
		}
		whole := dial(t, addr, zk.Options{})
		st := must.Get(whole.Exists(ctx, "/top/app/x/y/n-0000000000"))(t)
		must.That(t, st != nil, "not below the chroot")
		list, _ := must.Get2(c.Children(ctx, "/"))(t)
		must.Equal(t, fmt.Sprint(list), "[x]", "children %v", list)
	})
}

func TestNamesWithoutAllocation(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		node(t, c, "/n", "")
		for i := range 10 {
			var ops []zk.Op
			for j := range 100 {
				ops = append(ops, zk.Create{Path: fmt.Sprintf("/n/%03d-%s", i*100+j, strings.Repeat("n", 40))})
			}
			must.Get(c.Multi(ctx, ops...))(t)
		}
		names := must.Get(c.Names(ctx, "/n"))(t)
		must.Equal(t, names.Stat.NumChildren, 1000,
			"%d names, %+v: names.Stat.NumChildren", names.Len(), names.Stat)
		must.Equal(t, names.Len(), 1000, "%d names, %+v: names.Len()", names.Len(), names.Stat)
		total := 0
		if n := testing.AllocsPerRun(10, func() {
			for name := range names.All() {
				total += len(name)
			}
		}); n > 100 { // up to 100 allocations may be the server's, which runs in this process
			t.Errorf("%v allocations for 1000 names", n)
		}
		for name := range names.All() { // a loop over the names may stop before the last one
			expect.Equal(t, len(name), 44, "name %q", name)
			break
		}
		// Free() on one list does not change other lists.
		want := names.List()
		for range 10 {
			other := must.Get(c.Names(ctx, "/n"))(t)
			got := other.List()
			must.List(t, got, want, "lists of %d and %d names changed: got", len(got), names.Len())
			must.List(t, names.List(), want,
				"lists of %d and %d names changed: names.List()", len(got), names.Len())
			other.Free()
		}
		empty := must.Get(c.Names(ctx, "/n/"+want[0]))(t)
		must.Equal(t, empty.Len(), 0, "%d names: empty.Len()", empty.Len())
		must.Equal(t, len(empty.List()), 0, "%d names: len(empty.List())", empty.Len())
	})
}

func TestTooLarge(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr, zk.Options{}), within(t)
		_, err := c.Create(ctx, zk.Create{Path: "/big", Data: make([]byte, 1<<20)})
		is(t, err, zk.ErrTooLarge)
		_, err = c.Multi(ctx, zk.Check{Path: "/small", Version: -1}, zk.Create{Path: "/big", Data: make([]byte,
			1<<20)})
		is(t, err, zk.ErrTooLarge)
		expect.Has(t, err.Error(), "multi /small, ")
		st := must.Get(c.Exists(ctx, "/big"))(t)
		must.That(t, st == nil, "it was made")
	})
}

func TestStatesAndEventsHaveNames(t *testing.T) {
	for what, want := range map[interface{ String() string }]string{
		zk.Disconnected: "disconnected", zk.Connected: "connected", zk.Expired: "expired", zk.Closed: "closed",
		zk.Closed + 1: "unknown",
		zk.EventLost:  "watch lost", zk.EventOver: "session over", zk.EventResumed: "connection resumed",
	} {
		expect.Equal(t, what.String(), want)
	}
}

// The requests of one Pipe, including watches and transactions, are answered in their order.
func TestFlightOfEveryKind(t *testing.T) {
	both(t, func(t *testing.T, addr string) {
		c, ctx := dial(t, addr+"/top", zk.Options{}), within(t)
		must.OK(t, c.MakePath(ctx, "/f", zk.Persistent, nil))
		p := c.Pipe()
		sync, get, missing := p.Sync("/f"), p.GetW("/f"), p.ExistsW("/none")
		multi := p.Multi(zk.Check{Path: "/f", Version: 0}, zk.Create{Path: "/none", Data: []byte("x")})
		refused := p.Multi(zk.Delete{Path: "/none/x", Version: -1})
		gone := p.Get("/none/x")
		p.Send()
		must.Get(sync.Wait(ctx))(t)
		must.Get(get.Wait(ctx))(t)
		st := must.Get(missing.Wait(ctx))(t)
		must.That(t, st == nil, "%+v: want st == nil", st)
		must.That(t, missing.Watch() != nil, "%+v: want missing.Watch() != nil", st)
		must.That(t, get.Watch() != nil, "%+v: want get.Watch() != nil", st)
		res := must.Get(multi.Wait(ctx))(t)
		must.Equal(t, len(res), 2, "len(res)")
		must.Equal(t, res[1].Path, "/none", "res[1].Path")
		must.Equal(t, missing.Watch().Event(), zk.Event{Type: zk.EventCreated, Path: "/none"}, "event")
		must.Equal(t, get.Watch().Event(), zk.Event{}, "event")
		_, err := refused.Wait(ctx)
		is(t, err, zk.ErrNoNode)
		must.Equal(t, err.Error(), "zk: delete /none/x: no node (-101)", "text")
		_, err = gone.Wait(ctx)
		must.Equal(t, err.Error(), "zk: getData /none/x: no node (-101)", "text")
		// The root of the chroot is "/" to the program.
		_, w := must.Get2(c.ExistsW(ctx, "/"))(t)
		must.Get(c.Set(ctx, "/", []byte("x"), -1))(t)
		fired(t, w)
		must.Equal(t, w.Event(), zk.Event{Type: zk.EventDataChanged, Path: "/"}, "event")
		// A path below an ephemeral node cannot be made.
		must.Get(c.Create(ctx, zk.Create{Path: "/e", Mode: zk.Ephemeral}))(t)
		is(t, c.MakePath(ctx, "/e/a/b", zk.Persistent, nil), zk.ErrNoChildrenForEphemerals)
	})
}
