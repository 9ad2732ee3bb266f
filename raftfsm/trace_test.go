package raftfsm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
)

// inOrder fails the test unless the hops pass these places, in this order, and
// time does not run backwards.
func inOrder(t *testing.T, hops []Hop, places ...string) {
	t.Helper()
	at := 0
	for i, h := range hops {
		if i > 0 && h.At.Before(hops[i-1].At) {
			t.Errorf("%q is before %q", h.Where, hops[i-1].Where)
		}
		if at < len(places) && strings.Contains(h.Where, places[at]) {
			at++
		}
	}
	if at < len(places) {
		t.Errorf("the trace does not pass %q in its place: %v", places[at], hops)
	}
}

// followed waits until somebody is followed at n.
func followed(t *testing.T, n *Node) {
	t.Helper()
	eventually(t, "a trace begins", func() bool { return n.fsm.stream.trace.Load() != nil })
}

// TestTraceFollowsARequestOfItsOwn: where it leads and where it follows.
func TestTraceFollowsARequestOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newTrio(t, true, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	// Leadership may move; the trace of a moment without it is taken again.
	eventually(t, "a trace of the leader", func() bool {
		n := c.nodes[max(c.leader(), 1)]
		hops, err := n.Trace(ctx, 0)
		if err != nil || len(hops) < 8 || !strings.Contains(hops[2].Where, "given to raft") {
			t.Log(hops, err)
			return false
		}
		inOrder(t, hops, "goes into this server's stream", "taken as number", "given to raft", "in this server's log", "a majority has it",
			"on this server's disk", "the state is locked", "applied: OK", "its outcome is told")
		return true
	})
	eventually(t, "a trace of a follower", func() bool {
		lead := c.leader()
		hops, err := c.nodes[lead%3+1].Trace(ctx, 0)
		if err != nil || len(hops) < 8 || !strings.Contains(hops[2].Where, "sent to server") {
			t.Log(hops, err)
			return false
		}
		inOrder(t, hops, "goes into this server's stream", "taken as number", "sent to server", "written and synced: entry", "a majority has it", "applied: OK")
		return true
	})
}

// connLike is a waiter as a connection is one.
type connLike struct {
	began time.Time
	done  chan struct{} // closed when sent is set
	sent  func()
}

func (c *connLike) Arrived() time.Time { return c.began }

func (c *connLike) WhenSent(f func()) {
	c.sent = f
	close(c.done)
}

func (c *connLike) Done(*state.Outcome) {}

// TestTraceFollowsASession: its next request, whatever others ask for, from its
// connection to its connection; and one trace at a time.
func TestTraceFollowsASession(t *testing.T) {
	n, w := start(t, Options{})
	eventually(t, "serving", w.serving.Load)
	s, other := openSession(t, n, 10000).Session, openSession(t, n, 10000).Session
	type result struct {
		hops []Hop
		err  error
	}
	got := make(chan result, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		hops, err := n.Trace(ctx, s.ID)
		got <- result{hops, err}
	}()
	followed(t, n)
	if _, err := n.Trace(ctx, 0); !errors.Is(err, ErrTracing) {
		t.Errorf("a second trace: %v", err)
	}
	if _, err := propose(n, state.Request{Session: other.ID, Gen: other.Gen, Op: jute.OpCreate, Body: createBody("/other", 0)}); err != nil {
		t.Fatal(err)
	}
	conn := &connLike{began: time.Now(), done: make(chan struct{})}
	if err := n.Propose(state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody("/followed", 0)}, conn); err != nil {
		t.Fatal(err)
	}
	<-conn.done
	again, err := propose(n, state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: createBody("/followed", 0)})
	if err != nil || again.Code != jute.NodeExists {
		t.Fatal(again, err)
	}
	conn.sent()
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	inOrder(t, r.hops, "read from the connection", "create", "taken as number", "given to raft", "in this server's log", "a majority has it",
		"applied: OK", "in the outbox", "the operating system has the reply")
	if n.fsm.stream.trace.Load() != nil {
		t.Error("it is still followed")
	}
}

// TestTraceOfASilentSessionEnds without a hop, and leaves nothing behind.
func TestTraceOfASilentSessionEnds(t *testing.T) {
	n, w := start(t, Options{})
	eventually(t, "serving", w.serving.Load)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	hops, err := n.Trace(ctx, 0x4711)
	if len(hops) > 0 || err == nil || !strings.Contains(err.Error(), "session 0x4711 asked for no change here") {
		t.Errorf("%v, %v", hops, err)
	}
	if hops, err = n.Trace(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	inOrder(t, hops, "an empty request", "applied: OK")
}
