package client

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/recipe"
	czk "github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/faultproxy"
	"github.com/zlockd/zlockd/test/must"
)

// In each recipe, BreakExpired removes only holders whose records say that their limit is over. It spares the
// other holders, and the contenders that wait.
func TestBreakExpiredSparesTheOthers(t *testing.T) {
	t.Parallel()
	shared(t)
	over := join(WithMaxHold(time.Millisecond, 0), WithLinger())
	for name, f := range map[string]func(*Client, string) taker{
		"mutex": mutexAt, "write": writeAt,
		"read":         func(c *Client, d string) taker { return c.RWMutex(d).RLock },
		"policy write": policyWriteAt, "policy read": policyReadAt, "permits": permitsAt,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, other, d, ctx := dial(t), dial(t), dir(t), testCtx(t)
			broken := func(l *Lease) error {
				return other.Inspector().BreakExpired(ctx, d, l.Sequencer().Node, l.Token())
			}
			for _, opts := range [][]Option{nil, {join(WithMaxHold(time.Hour, 0), WithLinger())}} {
				l := lock(t, f(c, d), opts...)
				err := broken(l)
				must.Is(t, err, ErrNotAcquired)
				expect.Has(t, err.Error(), "is not over its limit")
				unlock(t, l)
			}
			l := lock(t, f(c, d), over)
			soon(t, "the loss", l.Lost())
			eventually(t, "the note that its time is over", func() bool { return broken(l) == nil })
			must.Is(t, broken(l), ErrNotHeld)
			must.Is(t, l.Unlock(ctx), ErrLost)
		})
	}
	// BreakExpired spares a waiter with a limit, however long it waits.
	c, other, d, ctx := dial(t), dial(t), dir(t), testCtx(t)
	l := lock(t, c.Mutex(d).Lock)
	g := start(ctx, other.Mutex(d).Lock, over)
	queued(t, observer(t), d, 2)
	w := must.Get(c.Inspector().Inspect(ctx, d))(t).Waiters[0]
	must.Is(t, c.Inspector().BreakExpired(ctx, d, w.Node, fence.Token(w.Token)), ErrNotAcquired)
	must.Is(t, c.Inspector().BreakExpired(ctx, d, w.Node, fence.Token(w.Token+1)), fence.ErrStale)
	must.Is(t, c.Inspector().BreakExpired(ctx, d, "none", fence.Token(w.Token)), ErrNotHeld)
	unlock(t, l)
	h := g.wait(t)
	soon(t, "the loss", h.Lost())
	eventually(t, "the holder's note", func() bool {
		return c.Inspector().BreakExpired(ctx, d, recipe.Base(h.Node()), h.Token()) == nil
	})
	must.Is(t, h.Unlock(ctx), ErrLost)
}

func TestE58Revocation(t *testing.T) {
	t.Parallel()
	shared(t)
	c, op, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	wish := recipe.Revocation{By: "operator", Reason: "maintenance"}
	h := lock(t, c.Mutex(d).Lock)
	w := start(ctx, dial(t).Mutex(d).Lock)
	queued(t, o, d, 2)
	// A waiter that is asked to leave the lock leaves the queue.
	must.OK(t, op.Inspector().Revoke(ctx, d, nth(t, o, d, 1), wish))
	lostFor(t, w.fails(t), Revoked)
	queued(t, o, d, 1)
	// A holder gets a repeated request only once, and keeps the lock.
	for range 2 {
		must.OK(t, op.Inspector().Revoke(ctx, d, recipe.Base(h.Node()), wish))
	}
	r := soon(t, "the wish", h.Asked())
	must.Equal(t, r.By, "operator")
	must.Equal(t, r.Reason, "maintenance")
	e := must.Get(op.Inspector().Inspect(ctx, d))(t).Holders[0]
	must.That(t, e.Owner != nil, "the holder has no record: %+v", e)
	r, asked := e.Asked()
	must.That(t, asked, "the entry shows no request: %+v", e)
	must.Equal(t, r.By, "operator")
	// The holder understands Curator's request, and reports it only once.
	must.OK(t, errOf(o.Set(h.Node(), []byte("__REVOKE__"), -1)))
	must.OK(t, h.Check(ctx))
	must.Equal(t, len(h.Asked()), 0, "more requests")
	unlock(t, h)
	// A revocable holder loses the lock after the grace.
	h = lock(t, c.Mutex(d).Lock, WithRevocable(20*time.Millisecond))
	must.OK(t, errOf(o.Set(h.Node(), []byte("__REVOKE__"), -1)))
	soon(t, "the wish", h.Asked())
	soon(t, "the loss", h.Lost())
	lostFor(t, h.Unlock(ctx), Revoked)
	queued(t, o, d, 0)
	// A request to a Curator contender writes the data that Curator expects.
	peer, err := o.Create(d+"/_c_6ba7b810-9dad-41d1-80b4-00c04fd430c8-lock-", []byte("10.0.0.1"),
		zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	must.OK(t, err)
	must.OK(t, op.Inspector().Revoke(ctx, d, recipe.Base(peer), wish))
	data, _, _ := o.Get(peer)
	must.Equal(t, string(data), "__REVOKE__", "data %q", data)
	wantErr(t, op.Inspector().Revoke(ctx, d, "gone", wish), ErrNotHeld)
}

func TestE60MaxHoldAndBreaking(t *testing.T) {
	t.Parallel()
	shared(t)
	c, c2, o, d := dial(t), dial(t), observer(t), dir(t)
	ctx := testCtx(t)
	// If a lock is held too long, the lease's context ends at once, and the node is removed after the grace.
	l := lock(t, c.Mutex(d).Lock, WithMaxHold(30*time.Millisecond, 100*time.Millisecond))
	soon(t, "the end", l.Context().Done())
	expect.That(t, len(names(t, o, d)) == 1 || l.hold().Held() >= 100*time.Millisecond,
		"the grace was not observed")
	queued(t, o, d, 0)
	lostFor(t, l.Unlock(ctx), MaxHold)
	// If the holder unlocks within the grace, the node is removed at once.
	l = lock(t, c.Mutex(d).Lock, WithMaxHold(10*time.Millisecond, time.Hour))
	soon(t, "the end", l.Lost())
	l.Unlock(ctx)
	queued(t, o, d, 0)

	// An operator needs the right token to break a hold. BreakExpired also needs the holder's note that the
	// limit is over.
	l = lock(t, c.Mutex(d).Lock, join(WithMaxHold(10*time.Millisecond, 0), WithLinger()))
	soon(t, "the end", l.Lost())
	node := recipe.Base(l.Node())
	wantErr(t, c2.Inspector().Break(ctx, d, node, l.Token()+1), fence.ErrStale)
	eventually(t, "the holder's note that its time is over", func() bool {
		err := c2.Inspector().BreakExpired(ctx, d, node, l.Token())
		if err != nil {
			must.Is(t, err, ErrNotAcquired)
		}
		return err == nil
	})
	queued(t, o, d, 0)
	next := lock(t, c2.Mutex(d).Lock)
	must.That(t, next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
	wantErr(t, c.Inspector().BreakExpired(ctx, d, recipe.Base(next.Node()), next.Token()), ErrNotAcquired)
	must.OK(t, c.Inspector().Break(ctx, d, recipe.Base(next.Node()), next.Token()))
	soon(t, "the loss", next.Lost())
	lostFor(t, next.Unlock(ctx), Removed)
	lostFor(t, l.Unlock(ctx), MaxHold)
}

// Break removes only the hold that its caller inspected, not a later one, even if the later hold's node has
// the same path and version. Other nodes that appear in the directory do not matter.
func TestBreakSparesTheNextHolder(t *testing.T) {
	t.Parallel()
	shared(t)
	c, p := proxied(t)
	o, next, d := observer(t), observer(t), dir(t)
	make := func(o *zk.Conn, path string, flags int32) {
		_, err := o.Create(path, nil, flags, zk.WorldACL(zk.PermAll))
		must.OK(t, err)
	}
	unlock(t, lock(t, c.Mutex(d).Lock)) // makes the directory
	for name, between := range map[string]func(lone string){
		"nothing": func(string) {},
		"another": func(string) { make(next, d+"/other-", zk.FlagEphemeralSequential) },
		"holder": func(lone string) {
			must.OK(t, o.Delete(lone, -1))
			make(next, lone, zk.FlagEphemeral)
		},
	} {
		t.Run(name, func(t *testing.T) {
			lone := d + "/" + name
			make(o, lone, zk.FlagEphemeral)
			_, st, err := o.Get(lone)
			must.OK(t, err)
			first := p.Add(faultproxy.Rule{Kind: faultproxy.Request, Match: func(f faultproxy.Frame) bool {
				return f.Op == faultproxy.OpMulti || f.Op == faultproxy.OpDelete
			}, Under: lone, Nth: 1, Then: func() { between(lone) }})
			err = c.Inspector().Break(testCtx(t), lone, "", fence.Token(st.Czxid))
			first.Remove()
			left, now, _ := o.Exists(lone)
			if name == "holder" {
				wantErr(t, err, fence.ErrStale)
				expect.That(t, left, "the new hold was broken")
				expect.Equal(t, now.EphemeralOwner, next.SessionID(), "session of the new hold")
			} else {
				expect.OK(t, err, "%s", name)
				expect.That(t, !left, "%s: the node is there", name)
			}
		})
	}
	children, _, err := o.Children(d)
	must.OK(t, err)
	must.Equal(t, len(children), 2, "children %v", children)
	// If the client may not create nodes in the directory, Break compares only the node's version, and removes
	// the node.
	_, st, err := o.Get(d + "/" + children[0])
	must.OK(t, err)
	_, err = o.SetACL(d, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
	must.OK(t, err)
	must.OK(t, c.Inspector().Break(testCtx(t), d+"/"+children[0], "", fence.Token(st.Czxid)))
}

// Before it removes a node without a number, Break looks at the directory and at the node. If the server
// refuses to show one of them, the node stays. If the node is gone, Break returns ErrNotHeld.
func TestBreakOfANodeThatGoes(t *testing.T) {
	t.Parallel()
	shared(t)
	o, d := observer(t), dir(t)
	c, p := proxied(t)
	unlock(t, lock(t, c.Mutex(d).Lock)) // makes the directory
	for _, under := range []string{d, d + "/lone"} {
		_, err := o.Create(d+"/lone", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		must.OK(t, err)
		_, st, err := o.Get(d + "/lone")
		must.OK(t, err)
		look := faultproxy.Rule{Kind: faultproxy.Reply, Match: func(f faultproxy.Frame) bool {
			return f.Op == faultproxy.OpExists && f.Path == under
		}, Nth: 1, Do: faultproxy.Fail, Code: -102}
		r := p.Add(look)
		wantErr(t, c.Inspector().Break(testCtx(t), d+"/lone", "", fence.Token(st.Czxid)), czk.ErrNoAuth)
		r.Remove()
		must.That(t, exists(t, o, d+"/lone"), "it was broken without a look")
		look.Kind, look.Do = faultproxy.Request, faultproxy.Pass
		look.Then = func() { expect.OK(t, o.Delete(d+"/lone", -1)) }
		r = p.Add(look)
		wantErr(t, c.Inspector().Break(testCtx(t), d+"/lone", "", fence.Token(st.Czxid)), ErrNotHeld)
		r.Remove()
	}
	// If the directory is gone as well, Break also returns ErrNotHeld.
	_, err := o.Create(d+"/lone", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	must.OK(t, err)
	_, st, err := o.Get(d + "/lone")
	must.OK(t, err)
	p.Add(faultproxy.Rule{Kind: faultproxy.Request, Match: func(f faultproxy.Frame) bool {
		return f.Op == faultproxy.OpExists && f.Path == d
	}, Nth: 1, Then: func() {
		expect.OK(t, o.Delete(d+"/lone", -1))
		removeDir(t, o, d)
	}})
	wantErr(t, c.Inspector().Break(testCtx(t), d+"/lone", "", fence.Token(st.Czxid)), ErrNotHeld)
}

// If a leader is asked to leave, its node keeps the value, by which others find the leader.
func TestRevokedLeaderKeepsItsValue(t *testing.T) {
	t.Parallel()
	shared(t)
	a, b, d := dial(t), dial(t), dir(t)
	const value = "10.0.0.1:8080"
	l := must.Get(a.Election(d).Campaign(testCtx(t), []byte(value)))(t)
	must.OK(t, b.Inspector().Revoke(testCtx(t), d, recipe.Base(l.Node()), recipe.Revocation{By: "operator"}))
	soon(t, "the wish", l.Asked())
	leader := must.Get(b.Election(d).Leader(testCtx(t)))(t)
	expect.Equal(t, string(leader.Value), value)
	expect.Equal(t, leader.Token, l.Token(), "token of the leader")
	unlock(t, l)
}

// A request to leave is written only to nodes of programs that understand such a request.
func TestOnlyProgramsThatUnderstandAreAskedBack(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		recipe.NodeName(LayoutCurator, recipe.RoleLock, newNodeID(1), "") + "0000000001": "v\x00__REVOKE__",
		"_c_91a5a8a4-1c39-4d2b-9c5e-6a2b8f3c1d00-lock-0000000001":                        "__REVOKE__",
	} {
		t.Run(name, func(t *testing.T) {
			made, _, _ := recipe.ParseName(name)
			asked := recipe.AskBack([]byte("v"), made.Maker, recipe.Revocation{})
			_, ok := recipe.RevocationIn(asked)
			expect.That(t, ok, "%s: not understood", name)
			expect.Equal(t, string(asked), want, "%s", name)
		})
	}
	addr(t)
	c := dial(t)
	for _, name := range []string{strings.Repeat("ab", 16) + "__lock__0000000001", "_c_" +
		strings.Repeat("ab", 16) + "-lock-0000000001"} {
		if err := c.Inspector().Revoke(testCtx(t), dir(t), name, recipe.Revocation{}); !errors.Is(err,
			ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
