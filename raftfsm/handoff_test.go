package raftfsm

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/session"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// passing is a term in which entries take 3 ms, and follower 2 may be told of the entry applied last.
func passing(t *testing.T) (*handoff, *nudged) {
	tm := &term{n: &Node{id: 1, fsm: newFSM(1, "c", new(watcher), nil)}, ctx: t.Context(), tracker: newTracker(),
		work: signal.New(), number: 5}
	tm.nudger = newNudger(tm)
	tm.nudger.leads = func() bool { return true }
	follower := &nudged{ch: make(chan state.Position, 1)}
	tm.nudger.followers["2"] = follower
	tm.n.fsm.index.Store(9)
	tm.n.fsm.term.Store(5)
	s := tm.n.fsm.stream
	s.SetClosed(false)
	s.Open(1)
	tm.reader = s.Rewind()
	return &handoff{t: tm, took: 3 * time.Millisecond}, follower
}

var (
	queues  = &state.Request{Op: jute.OpCreate, Body: createBody("/lock/n-", jute.FlagEphemeralSequential)}
	creates = &state.Request{Op: jute.OpCreate, Body: createBody("/lock/n-", jute.FlagPersistentSequential)}
	deletes = &state.Request{Op: jute.OpDelete, Body: jute.AppendInt(jute.AppendString(nil, "/lock/n-1"), -1)}
)

// fill is what the batcher does with what waits. The result is how many requests its entry has, and
// how long their creates waited.
func (h *handoff) fill(now ...*state.Request) (requests int, waited time.Duration) {
	for _, r := range now {
		h.t.n.fsm.stream.Put(&state.Request{Op: r.Op, Body: r.Body}, nil)
	}
	began := time.Now()
	h.t.requests = 0
	h.join(h.t.fill(state.BeginEntry(nil, 0)))
	return h.t.requests, time.Since(began)
}

// A create that comes before the next owner's delete shares its entry, for which the followers hear
// of the entry before. Nothing else waits, and a create no longer than an entry takes.
func TestCreateWaitsForTheNextOwnersDelete(t *testing.T) {
	t.Parallel()
	const entry = 3 * time.Millisecond
	for name, c := range map[string]struct {
		due      bool
		now      []*state.Request
		later    *state.Request // after 1 ms
		requests int
		waited   time.Duration
	}{
		"the next owner comes":                {true, []*state.Request{queues}, deletes, 2, entry / 3},
		"a second create comes":               {true, []*state.Request{queues}, queues, 2, entry},
		"no other request comes":              {true, []*state.Request{queues}, nil, 1, entry},
		"the delete is there":                 {true, []*state.Request{queues, deletes}, queues, 2, 0},
		"nothing was passed on":               {false, []*state.Request{queues}, deletes, 1, 0},
		"the node does not end with a client": {true, []*state.Request{creates}, deletes, 1, 0},
		"many creates":                        {true, []*state.Request{queues, queues, queues, queues, queues}, deletes, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, follower := passing(t)
				h.due = c.due
				if c.later != nil {
					time.AfterFunc(entry/3, func() { h.t.n.fsm.stream.Put(&state.Request{Op: c.later.Op, Body: c.later.Body}, nil) })
				}
				requests, waited := h.fill(c.now...)
				expect.Equal(t, fmt.Sprint(requests, waited), fmt.Sprint(c.requests, c.waited))
				expect.Equal(t, len(follower.ch) == 1, c.waited > 0, "the follower was told of the entry before")
			})
		})
	}
}

// A request of another server's client ends the wait as well, and so does the end of the term. Where
// entries take long, it is short.
func TestWhatEndsTheWaitOfACreate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := passing(t)
		h.due = true
		l := &inLink{}
		h.t.links.add(l)
		time.AfterFunc(time.Millisecond, func() {
			l.push(state.Block{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: deletes.Append(nil)})
			h.t.wake()
		})
		requests, waited := h.fill(queues)
		expect.Equal(t, fmt.Sprint(requests, waited), "2 1ms")
		expect.That(t, h.t.nudger.asked[2], "server 2, whose request is in the entry, is not told of its commit")

		h.due = true
		h.took = time.Hour
		_, waited = h.fill(queues)
		expect.Equal(t, waited, handoffWait)

		ctx, cancel := context.WithCancel(h.t.ctx)
		h.t.ctx, h.due = ctx, true
		time.AfterFunc(time.Millisecond, cancel)
		_, waited = h.fill(queues)
		expect.Equal(t, waited, time.Millisecond)
	})
}

// A client without a successor soon waits no more: after two waits in vain, eight hand-offs, then
// twice as many.
func TestWaitsInVainEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := passing(t)
		pattern := ""
		for range 40 {
			h.due = true
			if _, waited := h.fill(queues); waited > 0 {
				pattern += "W"
			} else {
				pattern += "-"
			}
		}
		expect.Equal(t, pattern, "WW--------W----------------W------------")
		h.rest, h.due = 0, true
		time.AfterFunc(time.Millisecond, func() { h.t.n.fsm.stream.Put(deletes, nil) })
		h.fill(queues)
		h.due = true
		_, waited := h.fill(queues)
		expect.That(t, waited > 0,
			"after a hand-off the next is not waited for: want waited > 0")
		expect.Equal(t, h.rest, 0, "after a hand-off the next is not waited for: h.rest")
	})
}

// A leader notes that a node was deleted beside others; the last in line passes nothing on.
func TestDeletesBesideOthersPassOn(t *testing.T) {
	t.Parallel()
	f := newFSM(1, "c", new(watcher), func(err error) { t.Error(err) })
	index := uint64(0)
	apply := func(r state.Request) bool {
		f.state.Sessions().All(func(s session.Session) { r.Session, r.Gen = s.ID, s.Gen })
		index++
		f.Apply(logged(index, state.Block{Count: 1, Requests: r.Append(nil)}))
		return f.passedOn.Swap(false)
	}
	create := func(path string) bool { return apply(state.Request{Op: jute.OpCreate, Body: createBody(path, 0)}) }
	remove := func(path string) bool {
		return apply(state.Request{Op: jute.OpDelete, Body: jute.AppendInt(jute.AppendString(nil, path), -1)})
	}
	body := state.SessionBody{Timeout: 10_000, Owner: 1, Addr: "10.0.0.1"}
	apply(state.Request{Op: state.OpCreateSession, Body: body.Append(nil)})
	for _, path := range []string{"/a", "/a/1", "/a/2", "/a/3"} {
		must.That(t, !create(path), "creating %s passed something on", path)
	}
	expect.That(t, !remove("/a/1"), "noted by a server that does not lead")
	f.tracker.Store(newTracker())
	expect.That(t, remove("/a/2"), "not noted")
	expect.That(t, !remove("/a/3"), "the last one passes nothing on")
	expect.That(t, !remove("/a/3"), "a delete that fails passes nothing on")
	create("/a/4")
	apply(state.Request{Op: jute.OpCreate, Body: createBody("/a/5", jute.FlagEphemeral)})
	expect.That(t, !apply(state.Request{Op: jute.OpCloseSession}), "a client that is gone does not queue again")
}
