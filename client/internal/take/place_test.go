package take

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/hold"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/client/recipe/turns"
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

// A waiter that reads its own node learns whether it still has its place, and whether it was asked to leave.
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
		w := &waiter{c: c, e: e, a: &attempt{Ask: Ask{Path: "/a"}}, Made: session.Made{Path: "/a/n"}}
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
	lostFor(t, err, hold.Revoked)
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
	must.Is(t, err, zk.ErrSessionExpired)
	must.That(t, lostPlace(zk.ErrNoAuth) == zk.ErrNoAuth, "another error")
	_, ok := errors.AsType[*requeueError](lostPlace(zk.ErrSessionExpired))
	must.That(t, ok, "the place is not lost with the session")
}

// inOrder() sorts a few contenders in the order of the queue. If all of them are readers, their ends are
// final. A writer's end is not, because a downgrade puts another node in the place of the writer's node.
func TestFewContendersInOrder(t *testing.T) {
	t.Parallel()
	q := queue{turns.Rule{Layout: recipe.LayoutCurator, Kind: recipe.RoleWrite, RW: true}}
	contender := func(role recipe.Role, seq string) recipe.Contender {
		c, _, ok := recipe.ParseName(recipe.NodeName(recipe.LayoutCurator, role, newNodeID(7), "") + seq)
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

// Contenders get the lock in the order of their numbers, also if these numbers wrap around.
func TestE20SequenceWraps(t *testing.T) {
	t.Parallel()
	d := server.Dir(t)
	seqs := []int32{math.MaxInt32 - 1, math.MaxInt32, math.MinInt32, math.MinInt32 + 1}
	if !slices.IsSortedFunc(seqs, func(a, b int32) int {
		if recipe.Before(a, b) {
			return -1
		}
		return 1
	}) {
		t.Fatal("order")
	}
	terms := &Terms{ACL: zk.WorldACL(zk.PermAll)}
	_, looker := dial(t)
	must.OK(t, looker.Ensure(testCtx(t), d, false, nil))
	// The server would take too long to count that far, so the test gives the numbers.
	waiters := make([]*waiter, len(seqs))
	for i, seq := range seqs {
		c, e := dial(t)
		a := &attempt{c: c, Ask: Ask{Path: d, Mode: fence.Exclusive, Terms: terms}, dir: d}
		n := queue{}.node(a, newNodeID(e.ID()))
		n.Path, n.Mode = n.Path+fmt.Sprintf("%010d", seq), 1 // mode 1: ephemeral
		made, _, err := e.Create(testCtx(t), n)
		must.OK(t, err)
		waiters[i] = newWaiter(e, a, queue{}, made[0])
	}
	grants := make([]chan *hold.Grant, len(seqs))
	for i, w := range waiters {
		grants[i] = make(chan *hold.Grant, 1)
		go func() {
			g, err := w.wait(context.Background(), nil)
			expect.OK(t, err)
			grants[i] <- g
		}()
	}
	for i := range grants {
		g := <-grants[i]
		must.That(t, g != nil, "contender %d has no grant", seqs[i])
		for j := i + 1; j < len(grants); j++ {
			if len(grants[j]) > 0 {
				t.Fatalf("%d holds beside %d", seqs[j], seqs[i])
			}
		}
		must.OK(t, looker.Conn().Delete(testCtx(t), g.Nodes[0].Path, -1))
	}
}

// The farther a waiter is from its turn, the later it reads its own node, but always within the session's
// timeout.
func TestWhenAWaiterLooksAtItsOwnNode(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[int]time.Duration{0: 100, 1: 100, 2: 120, 11: 300, 496: 10_000,
		1000: 10_000} {
		expect.Equal(t, ownWatchIn(10*time.Second, ahead), want*time.Millisecond, "with %d ahead", ahead)
	}
}

// A client remembers the lengths of turns for a bounded number of queues.
func TestPacesAreBounded(t *testing.T) {
	t.Parallel()
	var p paces
	expect.That(t, !p.short("/a", time.Second), "nothing is known yet")
	for i := range 3 * pacesKept {
		p.note(string(rune(i)), time.Duration(i))
	}
	p.note("/a", time.Second)
	expect.That(t, len(p.dirs) <= pacesKept, "%d are kept", len(p.dirs))
	expect.That(t, !p.short("/a", time.Second/shortTurn), "a turn of the limit is short")
	expect.That(t, p.short("/a", time.Second/shortTurn+1), "a turn beyond the limit is not short")
}
