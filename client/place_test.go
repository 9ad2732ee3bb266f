package client

import (
	"errors"
	"testing"

	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/zk"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

func TestHolderThatLivesIsInTheList(t *testing.T) {
	t.Parallel()
	id := newNodeID(7)
	for _, name := range []string{"_c_" + id.UUID() + "-lock-0000000001", id.Hex() + "__lock__0000000001"} {
		expect.That(t, lives([]string{"x", name}, id.UUID()), "%s", name)
	}
	expect.That(t, !lives([]string{"x", newNodeID(7).UUID()}, id.UUID()), "found among others")
	expect.That(t, !lives(nil, id.UUID()), "found in an empty directory")
}

// What a look at the own node tells a waiter.
func TestLookAtTheOwnNode(t *testing.T) {
	t.Parallel()
	c, e := withoutServer()
	watch := &zk.Watch{}
	mine := zk.Node{Data: []byte("x"), Stat: zk.Stat{EphemeralOwner: 7, Version: 3}}
	asked := mine
	asked.Data = recipe.AskBack(recipe.EncodeOwner(recipe.Owner{Task: "x"}), recipe.MakerSelf,
		recipe.Revocation{By: "me"})
	foreign := zk.Node{Stat: zk.Stat{EphemeralOwner: 8}}
	look := func(s session.Seen, err error) (*waiter, error) {
		w := &waiter{c: c, e: e, a: &attempt{path: "/a"}, Made: session.Made{Path: "/a/n"}}
		err = w.saw(s, err, 5)
		return w, err
	}
	w, err := look(session.Seen{Node: mine, Watch: watch}, nil)
	must.OK(t, err)
	must.Equal(t, w.own, watch, "the watch")
	must.Equal(t, w.since, 5, "since")
	w, err = look(session.Seen{Listed: true, Watch: watch}, nil)
	must.OK(t, err)
	must.Equal(t, w.own, watch, "the watch")
	must.Equal(t, w.since, 5, "since")
	_, err = look(session.Seen{}, zk.ErrNoAuth)
	must.Is(t, err, zk.ErrNoAuth)
	_, err = look(session.Seen{Node: asked, Watch: watch}, nil)
	lostFor(t, err, Revoked)
	for _, x := range []struct {
		s   session.Seen
		err error
	}{{session.Seen{}, zk.ErrNoNode}, {session.Seen{Node: foreign}, nil}} {
		_, err = look(x.s, x.err)
		requeue, ok := errors.AsType[*requeueError](err)
		must.That(t, ok, "got the error %v, want one to queue again", err)
		must.Is(t, requeue.why, ErrNodeRemoved)
	}
	e.End(session.Expired)
	_, err = look(session.Seen{}, zk.ErrNoNode)
	must.Is(t, err, ErrSessionExpired)
	must.That(t, lostPlace(zk.ErrNoAuth) == zk.ErrNoAuth, "another error")
	_, ok := errors.AsType[*requeueError](lostPlace(ErrSessionExpired))
	must.That(t, ok, "the place is not lost with the session")
}

// Contenders of which none leaves another node are waited for in the order of the queue, the last one first.
func TestFewContendersInOrder(t *testing.T) {
	t.Parallel()
	q := queue{recipe.Rule{Layout: LayoutCurator, Kind: recipe.RoleWrite, RW: true}}
	contender := func(role recipe.Role, seq string) recipe.Contender {
		c, _, ok := recipe.ParseName(recipe.NodeName(LayoutCurator, role, newNodeID(7), "") + seq)
		must.That(t, ok, "no contender")
		return c
	}
	read, next := contender(recipe.RoleRead, "0000000001"), contender(recipe.RoleRead, "0000000002")
	write := contender(recipe.RoleWrite, "0000000003")
	must.List(t, inOrder([]recipe.Contender{next, write, read}), []string{read.Name, next.Name, write.Name})
	must.That(t, q.EndIsFinal(read), "the end of a reader is not final")
	must.That(t, !q.EndIsFinal(write), "the end of a writer is final")
	for _, x := range []struct {
		few   []recipe.Contender
		final bool
	}{
		{nil, false}, {[]recipe.Contender{read}, true}, {[]recipe.Contender{read, next}, true},
		{[]recipe.Contender{write}, false}, {[]recipe.Contender{read, write}, false},
		{[]recipe.Contender{write, read}, false},
	} {
		must.Equal(t, q.EndsAreFinal(x.few), x.final, "%v", x.few)
	}
}
