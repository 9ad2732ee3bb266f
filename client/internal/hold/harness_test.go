package hold

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/fence"
	"github.com/zlockd/zlockd/client/internal/session"
	"github.com/zlockd/zlockd/test/must"
)

// unreachable returns the shared part of a client whose server does not answer, and a session that lasts a
// day.
func unreachable(t *testing.T) (*Shared, *session.Epoch) {
	k, e, end := session.Unreachable()
	t.Cleanup(end)
	return &Shared{Keeper: k, Cause: lossItself}, e
}

// withoutServer returns the shared part of a client that has no server, and a session with a timeout of ten
// seconds.
func withoutServer() (*Shared, *session.Epoch) {
	k, e := session.Stub(session.Bubble(), 7, 10*time.Second, nil)
	return &Shared{Keeper: k, Cause: lossItself}, e
}

func lossItself(l Loss) error { return l }

// granted() describes a grant of a node in a lock at `path`.
func granted(e *session.Epoch, path string, mode fence.Mode, left *atomic.Int32) *Grant {
	return &Grant{Epoch: e, Path: path, Nodes: []Node{{Path: path + "/n"}}, Mode: mode, Token: 5,
		Asked: time.Now(), Leave: func() { left.Add(1) }}
}

// heldWith grants a hold in a session that lasts a day, on a client that never reaches a server. The counter
// `left` says how often the hold has passed its turn on, which happens when its nodes end.
func heldWith(t *testing.T, limits Limits) (h *Hold, l *Lease, left *atomic.Int32) {
	s, e := unreachable(t)
	left = new(atomic.Int32)
	g := granted(e, "/a", fence.Exclusive, left)
	g.Nodes = append(g.Nodes, Node{Path: "/a/q", Place: true})
	g.Since, g.Limits = s.Keeper.Now(), limits
	h = s.newHold(g)
	must.That(t, e.Add(h), "the hold is not added")
	l = must.Get(h.addLease(t.Context(), fence.Exclusive))(t)
	h.watchLimit()
	return h, l, left
}

// told() begins to collect the events of one kind. It returns a function that returns the events collected so
// far.
func told(h *Hold, kind EventKind) func() []Event {
	var events []Event
	before := h.g.Tell
	h.g.Tell = func(ev Event) {
		if before != nil {
			before(ev)
		}
		if ev.Kind == kind {
			events = append(events, ev)
		}
	}
	return func() []Event { return events }
}

// lostFor ends the test unless err is the loss of a lease whose reason is `why`.
func lostFor(t testing.TB, err error, why Reason) {
	t.Helper()
	lost, ok := errors.AsType[Loss](err)
	must.That(t, ok, "got the error %v, want the loss because of %v", err, why)
	must.Equal(t, lost.Reason, why, "the reason of the loss")
}
