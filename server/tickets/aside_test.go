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

// The type quiet is the observer of a node without clients.
type quiet struct{ *tickets.Server }

func (q quiet) Events(_ int64, events []tree.Event) { q.Server.Events(events) }
func (q quiet) SessionEnded(e *state.Ending)        { q.Ended(e.Session.ID) }
func (quiet) SessionMoved(int64, uint32)            {}
func (quiet) Applied()                              {}
func (quiet) ReadOnly(bool)                         {}

// beforeEnds is a node that calls a function once, before the next request of some kind.
type beforeEnds struct {
	*raftfsm.Node
	mu     sync.Mutex
	before func() // before a request that would remove a contender or end a ticket
	opens  func() // before a request that would open a ticket
	renews func() // before a touch of a ticket
}

// call() calls a function once.
func (n *beforeEnds) call(before *func()) {
	n.mu.Lock()
	f := *before
	*before = nil
	n.mu.Unlock()
	if f != nil {
		f()
	}
}

// next() sets f as the function that runs before the next request. `before` is the field for the request's
// kind.
func (n *beforeEnds) next(before *func(), f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*before = f
}

func (n *beforeEnds) Propose(r state.Request, w state.Waiter) error {
	switch r.Op {
	case jute.OpMulti, state.OpEndTicket:
		n.call(&n.before)
	case state.OpOpenTicket:
		n.call(&n.opens)
	}
	return n.Node.Propose(r, w)
}

func (n *beforeEnds) Touch(id int64) bool {
	n.call(&n.renews)
	return n.Node.Touch(id)
}

// do() applies a request and returns its outcome, which must be OK.
func (n *beforeEnds) do(t *testing.T, r state.Request) state.Outcome {
	t.Helper()
	out := make(outcome, 1)
	must.OK(t, n.Node.Propose(r, out))
	o := <-out
	must.Equal(t, o.Code, jute.OK, "code of %v", r.Op)
	return o
}

// startNode starts a server of tickets with a node of its own, and waits until it serves.
func startNode(t *testing.T) (*tickets.Server, *beforeEnds) {
	s := tickets.New(tickets.Options{ID: 1, Max: time.Hour, Now: time.Now})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := &beforeEnds{Node: must.Get(raftfsm.Start(ctx, raftfsm.Options{ID: 1, Observer: quiet{s},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Fatal:  func(err error) { t.Error(err) }}))(t)}
	t.Cleanup(func() { expect.OK(t, n.Close(context.Background()), "close the node") })
	s.Use(n)
	eventually(t, "it serves", func() bool {
		return s.Take(ctx, request(9, "/first", 1)).Code == http.StatusCreated
	})
	return s, n
}

func request(secret byte, path string, mode byte) *tickets.Request {
	return &tickets.Request{Identity: tickets.Identity{Name: "ip:a", Tickets: 100, OnPath: 10, Waits: 9,
		Rate: 1000}, Secret: session.Hash{secret}, Path: path, Addr: "10.0.0.1", Arrived: time.Now(),
		Mode: mode, Limit: 1}
}

const exclusive, permit = 1, 3

// A request finds that its ticket waits and must end. Before it ends the ticket, the same request at another
// server gets the lock, and its caller knows of it. Then the ticket must stay.
func TestTicketThatGotItsLockSinceTheLookStays(t *testing.T) {
	t.Parallel()
	s, n := startNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	revoke := func(q *tickets.Request) {
		var x session.Session
		var nodes []string
		n.View(func(st *state.State) {
			x, _ = st.Sessions().Ticket(q.Secret)
			nodes = st.Tree().SomeEphemeralsOf(x.ID, 1)
		})
		body := jute.AppendBuffer(jute.AppendString(nil, nodes[0]), []byte(recipe.CuratorRevoke))
		n.do(t, state.Request{Session: x.ID, Gen: x.Gen, Op: jute.OpSetData, IDs: acl.Super,
			Body: jute.AppendInt(body, -1)})
	}
	for i, tc := range []struct {
		name string
		mode byte
		try  bool // whether the first request only tries: it ends its ticket if it does not get the lock
	}{{"revoked", exclusive, false}, {"tried permit", permit, true}} {
		t.Run(tc.name, func(t *testing.T) {
			path := fmt.Sprintf("/lock-%d", i)
			holder, own := byte(20+2*i), byte(21+2*i)
			must.Equal(t, s.Take(ctx, request(holder, path, tc.mode)).Code, http.StatusCreated)
			must.Equal(t, s.Take(ctx, request(own, path, tc.mode)).Code, http.StatusAccepted)
			if !tc.try {
				revoke(request(own, path, tc.mode))
			}
			told := 0
			n.next(&n.before, func() { // the holder gives the lock back, and another request gets it
				expect.Equal(t, s.Give(ctx, request(holder, path, tc.mode)).Code, http.StatusNoContent)
				told = s.Take(ctx, request(own, path, tc.mode)).Code
			})
			q := request(own, path, tc.mode)
			q.Try = tc.try
			first := s.Take(ctx, q).Code
			expect.Equal(t, told, http.StatusOK, "answer to the other request")
			expect.Equal(t, first, http.StatusOK, "answer to the request that found it waiting")
			expect.Equal(t, s.Show(ctx, request(own, path, tc.mode), true).Code, http.StatusOK, "it holds")
		})
	}
}

// A caller may send If-Match with the ETag of its place in the queue. Then the request leaves the queue, but
// it does not give back a lock that the ticket has got by now.
func TestPlaceThatIsLeftIsNoHold(t *testing.T) {
	t.Parallel()
	s, n := startNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for mode, path := range map[byte]string{exclusive: "/leave", permit: "/leave-permits"} {
		holder, own := 20+mode, 30+mode
		must.Equal(t, s.Take(ctx, request(holder, path, mode)).Code, http.StatusCreated)
		place := s.Take(ctx, request(own, path, mode)).ETag
		leave := func() *tickets.Answer {
			q := request(own, path, mode)
			q.IfMatch = place
			return s.Give(ctx, q)
		}
		n.next(&n.before, func() {
			expect.Equal(t, s.Give(ctx, request(holder, path, mode)).Code, http.StatusNoContent)
			expect.Equal(t, s.Take(ctx, request(own, path, mode)).Code, http.StatusOK, "%s: it holds", path)
		})
		expect.Equal(t, leave().Code, http.StatusPreconditionFailed, "%s: the ticket has its lock", path)
		expect.Equal(t, s.Show(ctx, request(own, path, mode), true).Code, http.StatusOK, "%s: it stays", path)
		own = 40 + mode
		place = s.Take(ctx, request(own, path, mode)).ETag
		expect.Equal(t, leave().Code, http.StatusNoContent, "%s: it still waits", path)
		expect.Equal(t, leave().Code, http.StatusGone, "%s: it has left", path)
	}
}

// A request finds a lock of another kind at its path, so its ticket must end. Before that, the other lock is
// removed, and the same request at another server gets the lock for the ticket. Then the ticket stays.
func TestTicketThatHoldsAfterAnotherKindIsGoneStays(t *testing.T) {
	t.Parallel()
	s, n := startNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body := state.SessionBody{Timeout: 60_000, Owner: 1, Addr: "10.0.0.2"}
	other := n.do(t, state.Request{Op: state.OpCreateSession, Body: body.Append(nil)}).Session
	create := func(path string, flags int32) {
		b := jute.AppendACL(jute.AppendBuffer(jute.AppendString(nil, path), []byte{}), jute.WorldAnyone)
		n.do(t, state.Request{Session: other.ID, Gen: other.Gen, Op: jute.OpCreate, IDs: acl.Super,
			Body: jute.AppendInt(b, flags)})
	}
	remove := func(path string) {
		n.do(t, state.Request{Session: other.ID, Gen: other.Gen, Op: jute.OpDelete, IDs: acl.Super,
			Body: jute.AppendInt(jute.AppendString(nil, path), -1)})
	}
	setData := func(path, data string) {
		b := jute.AppendBuffer(jute.AppendString(nil, path), []byte(data))
		n.do(t, state.Request{Session: other.ID, Gen: other.Gen, Op: jute.OpSetData, IDs: acl.Super,
			Body: jute.AppendInt(b, -1)})
	}
	const kazoo, curator = "/6f1ed002ab5c4b1fa0ce75ab2e1ed1a2__rlock__0000000000",
		"/_c_6f1ed002-ab5c-4b1f-a0ce-75ab2e1ed1a2-lock-0000000000"
	of := func(name string) (comes, goes func(path string)) {
		return func(path string) { create(path+name, jute.FlagEphemeral) },
			func(path string) { remove(path + name) }
	}
	simple, simpleGoes := of("/lock")
	reader, readerGoes := of(kazoo)
	queue, queueGoes := of(curator)
	for i, tc := range []struct {
		name        string
		mode        byte
		holder      bool // whether another ticket holds the lock at first
		comes, goes func(path string)
		again       bool // whether the other lock is made again after the ticket has got its lock
	}{
		{"a lock without a number", exclusive, false, simple, simpleGoes, false},
		{"a lock without a number, in a queue", exclusive, true, simple, simpleGoes, false},
		{"a reader of kazoo's", exclusive, false, reader, readerGoes, false},
		{"permits", exclusive, false, func(path string) {
			create(path+"/leases", 0)
			create(path+"/leases/one", jute.FlagEphemeral)
		}, func(path string) { remove(path + "/leases/one") }, false},
		{"a policy", exclusive, false, func(path string) {
			setData(path, string(recipe.Record{Layout: recipe.LayoutPolicy.String()}.Encode()))
		}, func(path string) { setData(path, "") }, false},
		{"a contender of a queue, in a semaphore", permit, true, queue, queueGoes, false},
		{"a lock of a name that comes again", exclusive, false, simple, simpleGoes, true},
		{"the same in a queue", exclusive, true, simple, simpleGoes, true},
		{"permits of a directory that comes again", exclusive, false, func(path string) {
			create(path+"/leases", 0)
			create(path+"/leases/one", jute.FlagEphemeral)
		}, func(path string) { remove(path + "/leases/one"); remove(path + "/leases") }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := fmt.Sprintf("/kinds-%d", i)
			holder, own := byte(20+2*i), byte(21+2*i)
			if tc.holder {
				must.Equal(t, s.Take(ctx, request(holder, path, tc.mode)).Code, http.StatusCreated)
			} else {
				create(path, 0)
			}
			// After the request has read the path, and before its ticket has a node there.
			n.next(&n.opens, func() { tc.comes(path) })
			told := 0
			n.next(&n.before, func() { // the other locks are removed, and the same request gets the lock
				tc.goes(path)
				if tc.holder {
					expect.Equal(t, s.Give(ctx, request(holder, path, tc.mode)).Code, http.StatusNoContent)
				}
				told = s.Take(ctx, request(own, path, tc.mode)).Code
				if tc.again {
					tc.comes(path)
				}
			})
			first := s.Take(ctx, request(own, path, tc.mode)).Code
			expect.Equal(t, told, http.StatusOK, "answer to the other request")
			expect.That(t, first == http.StatusOK || first == http.StatusCreated,
				"answer to the request that found another kind: %d", first)
			expect.Equal(t, s.Show(ctx, request(own, path, tc.mode), true).Code, http.StatusOK, "it holds")
		})
	}
	// If the other lock stays, the ticket ends, and no answer says that the ticket holds.
	inQueue := func(path string) {
		create(path+"/"+recipe.QueueName, 0)
		reader(path + "/" + recipe.QueueName)
	}
	for i, tc := range []struct {
		comes  func(path string)
		mode   byte
		holder bool
		atLast bool // whether the other lock is made only when the ticket gets its permits
	}{{simple, exclusive, true, false}, {queue, permit, true, false}, {inQueue, permit, false, false},
		{queue, permit, false, true}} {
		path, own := fmt.Sprintf("/stays-%d", i), byte(60+i)
		create(path, 0)
		if tc.mode == permit {
			setData(path, string(recipe.Record{Limit: 1}.Encode()))
		}
		if tc.holder {
			must.Equal(t, s.Take(ctx, request(own+10, path, tc.mode)).Code, http.StatusCreated)
		}
		shows := func() {
			a := s.Show(ctx, request(own, path, tc.mode), true)
			expect.Equal(t, a.Code, http.StatusAccepted, "what another request shows, %d", i)
		}
		if tc.atLast {
			n.next(&n.before, func() {
				tc.comes(path)
				n.next(&n.before, shows)
			})
		} else {
			n.next(&n.opens, func() { tc.comes(path) })
			n.next(&n.before, shows)
		}
		expect.Equal(t, s.Take(ctx, request(own, path, tc.mode)).Code, http.StatusConflict, "%d", i)
		n.mu.Lock()
		expect.That(t, n.opens == nil && n.before == nil, "a request did not come, %d", i)
		n.mu.Unlock()
	}
}

// A request touches its ticket, and the ticket ends at the same time. Then the server must not remember when
// the ticket was heard from.
func TestTicketThatEndsWhileItIsConfirmed(t *testing.T) {
	t.Parallel()
	s, n := startNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for secret := range byte(3) {
		was := s.Confirmed()
		must.Equal(t, s.Take(ctx, request(secret, "/brief", exclusive)).Code, http.StatusCreated)
		must.Equal(t, s.Confirmed(), was+1, "confirmed tickets")
		n.next(&n.renews, func() {
			expect.Equal(t, s.Give(ctx, request(secret, "/brief", exclusive)).Code, http.StatusNoContent)
		})
		expect.Equal(t, s.Take(ctx, request(secret, "/brief", exclusive)).Code, http.StatusGone)
		expect.Equal(t, s.Confirmed(), was, "confirmed tickets after the end of one")
	}
}

type outcome chan state.Outcome

func (o outcome) Done(out *state.Outcome, _ *state.State) { o <- *out }
