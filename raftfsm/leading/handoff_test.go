package leading

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/apply"
	"github.com/zlockd/zlockd/raftfsm/consensus"
	"github.com/zlockd/zlockd/raftfsm/elect"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// heard is a transport that counts the news of commits.
type heard struct {
	raft.Transport
	times atomic.Int64
}

func (*heard) EncodePeer(raft.ServerID, raft.ServerAddress) []byte { return nil }

func (h *heard) AppendEntries(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest,
	*raft.AppendEntriesResponse) error {
	h.times.Add(1)
	return nil
}

// newsOf returns the news of server 1, which leads term 5. Server 2 has stored all entries.
func newsOf(t *testing.T, f *apply.FSM, to *heard) *followers.News {
	var ran sync.WaitGroup
	stored := new(followers.Stored)
	stored.Note(2, state.Position{Index: 1 << 40, Term: 5})
	news := followers.NewNews(followers.Leader{ID: 1, Term: 5, Leads: func() bool { return true }, State: f,
		Raft: &consensus.Raft{Raft: &elect.Raft{ID: 1, Trans: to}}, Stored: stored, Go: ran.Go,
		Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { news.Close(); ran.Wait() })
	return news
}

// passing() returns the handoff of a term in which an entry takes 3 ms, and the transport to follower 2. The
// follower has stored the last entry, and may be told of it.
func passing(t *testing.T) (*handoff, *heard) {
	a := applied.New()
	tm := termOf(t, a)
	follower := new(heard)
	tm.news = newsOf(t, a.FSM, follower)
	tm.news.Follow([]raft.Server{{ID: "2"}})
	applied.At(a.FSM, 9, 5)
	s := tm.o.State.Stream
	s.SetClosed(false)
	s.Open(1)
	tm.reader = s.Rewind()
	return &handoff{t: tm, took: 3 * time.Millisecond}, follower
}

// toldAtOnce reports whether the follower is told of the next entry's commit at once, and not later.
func toldAtOnce(tm *Term, follower *heard) bool {
	time.Sleep(time.Minute)
	before := follower.times.Load()
	applied.At(tm.o.State, tm.o.State.Index()+1, 5)
	tm.news.Tell()
	synctest.Wait()
	return follower.times.Load() > before
}

// A follower whose request is in an entry hears of its commit at once. If the leader acts by itself, every
// follower hears of the commit at once.
func TestEntryNotesWhoAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, follower := passing(t)
		l := &followers.Link{}
		must.That(t, h.t.links.Add(l), "the link is not taken")
		expect.That(t, toldAtOnce(h.t, follower), "the follower is not told as the term begins")
		h.t.fill(nil)
		expect.That(t, !toldAtOnce(h.t, follower), "the follower is told of an entry of others")
		l.Push(entries.Block{Origin: 2, Count: 1})
		h.t.fill(nil)
		expect.That(t, toldAtOnce(h.t, follower), "the follower is not told of its own request")
		h.t.acts.add(state.Request{Op: state.OpBarrier})
		h.t.fill(nil)
		expect.That(t, toldAtOnce(h.t, follower), "the follower is not told of the leader's act")
		expect.That(t, !toldAtOnce(h.t, follower), "the follower is told of the entry after the leader's act")
	})
}

var (
	queues = &state.Request{Op: jute.OpCreate, Body: applied.Create("/lock/n-",
		jute.FlagEphemeralSequential)}
	creates = &state.Request{Op: jute.OpCreate, Body: applied.Create("/lock/n-",
		jute.FlagPersistentSequential)}
	deletes = &state.Request{Op: jute.OpDelete, Body: jute.AppendInt(jute.AppendString(nil, "/lock/n-1"), -1)}
)

// fill() does the batcher's work on the waiting requests. It returns the number of requests in the entry that
// it makes, and how long the creates among them waited.
func (h *handoff) fill(now ...*state.Request) (requests int, waited time.Duration) {
	for _, r := range now {
		h.t.o.State.Stream.Put(&state.Request{Op: r.Op, Body: r.Body}, nil)
	}
	began := time.Now()
	h.t.requests = 0
	h.join(h.t.fill(entries.Begin(nil, 0)))
	return h.t.requests, time.Since(began)
}

// After a lock was passed on, its next owner will soon delete its node, too. A create that comes before that
// delete waits for it, so that one entry can hold both, but no longer than an entry takes. While it
// waits, the leader tells the followers of the previous entry. No other request waits.
func TestCreateWaitsForTheNextOwnersDelete(t *testing.T) {
	t.Parallel()
	const entry = 3 * time.Millisecond
	for name, c := range map[string]struct {
		due      bool
		now      []*state.Request
		later    *state.Request // a request that comes after 1 ms
		requests int
		waited   time.Duration
	}{
		"the next owner comes":                {true, []*state.Request{queues}, deletes, 2, entry / 3},
		"a second create comes":               {true, []*state.Request{queues}, queues, 2, entry},
		"no other request comes":              {true, []*state.Request{queues}, nil, 1, entry},
		"the delete is there":                 {true, []*state.Request{queues, deletes}, queues, 2, 0},
		"nothing was passed on":               {false, []*state.Request{queues}, deletes, 1, 0},
		"the node does not end with a client": {true, []*state.Request{creates}, deletes, 1, 0},
		"many creates": {true, []*state.Request{queues, queues, queues, queues, queues}, deletes, 5,
			0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, follower := passing(t)
				h.due = c.due
				if c.later != nil {
					time.AfterFunc(entry/3, func() {
						h.t.o.State.Stream.Put(&state.Request{Op: c.later.Op,
							Body: c.later.Body}, nil)
					})
				}
				requests, waited := h.fill(c.now...)
				expect.Equal(t, fmt.Sprint(requests, waited), fmt.Sprint(c.requests, c.waited))
				synctest.Wait()
				expect.Equal(t, follower.times.Load() == 1, c.waited > 0,
					"the follower was told of the entry before")
			})
		})
	}
}

// The wait of a create ends when a request comes from another server, or when the term ends. If entries take
// long, the wait has a limit.
func TestWhatEndsTheWaitOfACreate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, follower := passing(t)
		h.due = true
		l := &followers.Link{}
		h.t.links.Add(l)
		time.AfterFunc(time.Millisecond, func() {
			l.Push(entries.Block{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: deletes.Append(nil)})
			h.t.wake()
		})
		requests, waited := h.fill(queues)
		expect.Equal(t, fmt.Sprint(requests, waited), "2 1ms")
		expect.That(t, toldAtOnce(h.t, follower),
			"server 2, whose request is in the entry, is not told of its commit")

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

// If no request comes during the wait of a create, the wait was in vain. After two such waits, the next eight
// hand-offs have no wait; after one more, the next sixteen have none. After a wait that was not in vain, the
// count starts again.
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
		time.AfterFunc(time.Millisecond, func() {
			h.t.o.State.Stream.Put(&state.Request{Op: deletes.Op, Body: deletes.Body}, nil) // Put writes to its request
		})
		h.fill(queues)
		h.due = true
		_, waited := h.fill(queues)
		expect.That(t, waited > 0, "after a wait that was not in vain the next create does not wait")
		expect.Equal(t, h.rest, 0, "hand-offs that go without a wait")
	})
}

// The limit of a create's wait is the average time of recent entries, so one slow entry changes it little.
func TestEntriesAreTimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := passing(t)
		h.took = 0
		a := &applied.State{FSM: h.t.o.State, Last: h.t.o.State.Index()}
		a.Entry(applied.NewSession())
		client := a.Sessions()[0]
		do := func(op jute.OpCode, body []byte) {
			a.Entry(state.Request{Session: client.ID, Gen: client.Gen, Op: op, Body: body})
		}
		for _, path := range []string{"/lock", "/lock/1", "/lock/2", "/lock/3", "/lock/4"} {
			do(jute.OpCreate, applied.Create(path, 0))
		}
		for i, c := range []struct{ takes, took time.Duration }{
			{8 * time.Millisecond, 8 * time.Millisecond}, {16 * time.Millisecond, 9 * time.Millisecond},
			{time.Millisecond, 8 * time.Millisecond},
		} {
			time.Sleep(time.Second)
			h.proposed()
			time.Sleep(c.takes)
			do(jute.OpDelete, jute.AppendInt(jute.AppendString(nil, fmt.Sprint("/lock/", i+1)), -1))
			h.applied()
			expect.Equal(t, h.took, c.took)
			expect.That(t, h.due, "a delete beside siblings passes nothing on")
			expect.That(t, !a.PassedOn(), "the same hand-off is due again")
		}
		h.applied()
		expect.That(t, !h.due, "a hand-off is due")
	})
}

// An execution trace has a mark for the wait of a create.
func TestTraceShowsTheWaitOfACreate(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("a trace is recorded already")
	}
	var recorded bytes.Buffer
	must.OK(t, trace.Start(&recorded))
	defer trace.Stop()
	h, _ := passing(t)
	h.due = true
	h.fill(queues)
	trace.Stop()
	expect.That(t, bytes.Contains(recorded.Bytes(), []byte("1 creates wait for the next owner of a lock")),
		"the trace lacks the wait")
}
