package raftfsm

import (
	"bytes"
	"fmt"
	"runtime/trace"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// An execution trace has a mark for each step of a write, and for the wait of a create.
func TestTraceShowsTheStepsOfAWrite(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("a trace is recorded already")
	}
	c := newTrio(t, false, nil)
	lead := c.mustLead()
	n := c.nodes[lead%3+1]
	s := openSession(t, n, 60_000).Session
	body := createBody("/traced", 0)
	var recorded bytes.Buffer
	must.OK(t, trace.Start(&recorded))
	defer trace.Stop()
	o := served(t, n, state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: body})
	h, _ := passing(t)
	h.due = true
	h.fill(queues)
	trace.Stop()
	must.Equal(t, o.Code, jute.OK)
	for _, step := range []string{
		fmt.Sprintf("session 0x%x: create, %d bytes, goes into this server's stream", s.ID, len(body)),
		"are taken, in a block",
		"all that was taken is sent to server ",
		"bytes are given to raft",
		"is applied",
		"1 creates wait for the next owner of a lock",
	} {
		expect.That(t, bytes.Contains(recorded.Bytes(), []byte(step)), "the trace lacks %q", step)
	}
}
