package tickets_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/client/recipe"
	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/server/tickets"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/tree"
	"github.com/zlockd/zlockd/tree/acl"
)

// quiet is the observer of a node without clients.
type quiet struct{ *tickets.Server }

func (q quiet) Events(_ int64, events []tree.Event) { q.Server.Events(events) }
func (q quiet) SessionEnded(e *state.Ending)        { q.Ended(e.Session.ID) }
func (quiet) SessionMoved(int64, uint32)            {}
func (quiet) Applied()                              {}
func (quiet) ReadOnly(bool)                         {}

// beforeEnds is a node that calls before, once, when a request would remove a contender or end a ticket.
type beforeEnds struct {
	*raftfsm.Node
	mu     sync.Mutex
	before func()
}

func (n *beforeEnds) Propose(r state.Request, w state.Waiter) error {
	if r.Op == jute.OpMulti || r.Op == state.OpEndTicket {
		n.mu.Lock()
		f := n.before
		n.before = nil
		n.mu.Unlock()
		if f != nil {
			f()
		}
	}
	return n.Node.Propose(r, w)
}

// A request that finds a ticket still waiting does not end it when another request has got its lock since and
// has told so: a caller repeats a request whose answer is late, at another server.
func TestTicketThatGotItsLockSinceTheLookStays(t *testing.T) {
	t.Parallel()
	s := tickets.New(tickets.Options{ID: 1, Max: time.Hour, Now: time.Now})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := &beforeEnds{Node: must.Get(raftfsm.Start(ctx, raftfsm.Options{ID: 1, Observer: quiet{s},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Fatal:  func(err error) { t.Error(err) }}))(t)}
	t.Cleanup(func() { expect.OK(t, n.Close(context.Background()), "close the node") })
	s.Use(n)
	ask := func(secret byte, path string, mode byte) *tickets.Request {
		return &tickets.Request{Identity: tickets.Identity{Name: "ip:a", Tickets: 100, OnPath: 10, Waits: 9,
			Rate: 1000}, Secret: session.Hash{secret}, Path: path, Addr: "10.0.0.1", Arrived: time.Now(),
			Mode: mode, Limit: 1}
	}
	eventually(t, "it serves", func() bool { return s.Take(ctx, ask(9, "/first", 1)).Code == http.StatusCreated })
	const exclusive, permit = 1, 3
	revoke := func(q *tickets.Request) {
		var x session.Session
		var nodes []string
		n.View(func(st *state.State) {
			x, _ = st.Sessions().Ticket(q.Secret)
			nodes = st.Tree().SomeEphemeralsOf(x.ID, 1)
		})
		body := jute.AppendBuffer(jute.AppendString(nil, nodes[0]), []byte(recipe.CuratorRevoke))
		out := make(outcome, 1)
		must.OK(t, n.Node.Propose(state.Request{Session: x.ID, Gen: x.Gen, Op: jute.OpSetData, IDs: acl.Super,
			Body: jute.AppendInt(body, -1)}, out))
		must.Equal(t, <-out, jute.OK, "code of the revocation")
	}
	for i, tc := range []struct {
		name string
		mode byte
		try  bool // the request that finds it waiting tries
	}{{"revoked", exclusive, false}, {"tried permit", permit, true}} {
		t.Run(tc.name, func(t *testing.T) {
			path := fmt.Sprintf("/lock-%d", i)
			holder, own := byte(20+2*i), byte(21+2*i)
			must.Equal(t, s.Take(ctx, ask(holder, path, tc.mode)).Code, http.StatusCreated)
			must.Equal(t, s.Take(ctx, ask(own, path, tc.mode)).Code, http.StatusAccepted)
			if !tc.try {
				revoke(ask(own, path, tc.mode))
			}
			told := 0
			n.mu.Lock()
			n.before = func() { // the holder gives the lock back, and another request gets it
				expect.Equal(t, s.Give(ctx, ask(holder, path, tc.mode)).Code, http.StatusNoContent)
				told = s.Take(ctx, ask(own, path, tc.mode)).Code
			}
			n.mu.Unlock()
			q := ask(own, path, tc.mode)
			q.Try = tc.try
			first := s.Take(ctx, q).Code
			expect.Equal(t, told, http.StatusOK, "answer to the other request")
			expect.Equal(t, first, http.StatusOK, "answer to the request that found it waiting")
			expect.Equal(t, s.Show(ctx, ask(own, path, tc.mode), true).Code, http.StatusOK, "it holds")
		})
	}
}

type outcome chan jute.ErrCode

func (o outcome) Done(out *state.Outcome, _ *state.State) { o <- out.Code }
