package raftfsm

import (
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The longest request, sent through a follower: over the link, into the log of
// every server, and from there after a restart. One byte more is refused before
// it is anywhere.
func TestLongestRequestIsReadBackByEveryServer(t *testing.T) {
	if testing.Short() {
		t.Skip("some 64 MiB in three servers")
	}
	c := newTrio(t, false, func(o *Options) { o.HeartbeatTimeout = time.Second })
	here := c.leader()%3 + 1
	s := openSession(t, c.nodes[here], 30_000).Session
	overhead := len(createBody("/big", 0)) - len("data")
	create := func(size int) state.Request {
		body := jute.AppendBuffer(jute.AppendString(nil, "/big"), make([]byte, size-overhead))
		body = jute.AppendInt(jute.AppendACL(body, jute.WorldAnyone), 0)
		return state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate, Body: body}
	}
	// Without identities a request can be longer by theirs.
	small := create(1000)
	longest := state.MaxRequest - (len(small.Append(nil)) - 1000)
	expect.Fails(t, expect.Err(propose(c.nodes[here], create(longest+1))),
		"a request too long for a log entry was taken")
	w := &call{make(chan state.Outcome, 1)}
	must.OK(t, c.nodes[here].Propose(create(longest), w))
	select {
	case o := <-w.ch:
		must.Equal(t, o.Code, jute.OK, "the longest request")
	case <-time.After(2 * time.Minute): // a busy machine moves so much slowly
		t.Fatal("the longest request was never applied")
	}
	stop(t, c.nodes[here])
	c.start(here)
	if t.Failed() {
		return
	}
	eventually(t, "it serves again", c.seen[here].serving.Load)
	expect.That(t, c.has(here, "/big"), "the restarted server has lost it")
	c.sameDigest()
}
