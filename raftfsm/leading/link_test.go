package leading

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/form"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A leader notes what a server sends over its link: how much room its disk has, its requests, and its
// sessions. It answers only while it leads.
func TestLeaderAnswersWhatALinkTells(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	a := applied.New()
	applied.At(a.FSM, 9, 1)
	tm := termOf(t, a)
	tm.o.Raft, tm.ctx = raftOf(t, a.FSM), ctx
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	l := &followers.Link{Conn: here, Greeting: peer.Greeting{From: 2, Version: peer.Version}}
	must.That(t, tm.links.Add(l), "the link is not taken")
	var sent bytes.Buffer
	w := bufio.NewWriter(&sent)
	receive := func(typ byte, payload []byte) error { return tm.receive(l, w, typ, payload) }

	must.OK(t, receive(peer.LinkFull, bytes.Repeat([]byte{'x'}, 300)))
	expect.Equal(t, tm.links.Full(), "server 2: "+strings.Repeat("x", 200), "what is kept of a long reason")

	request := state.Request{Op: jute.OpSync, Session: 1, Body: jute.AppendString(nil, "/")}
	bl := entries.Block{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: request.Append(nil)}
	must.OK(t, receive(peer.LinkBlock, bl.Append(nil)))
	expect.Equal(t, len(tm.work), 1, "the batcher is told of the block")
	expect.Equal(t, len(tm.links.Waiting()), 1, "links with a block")

	tm.deadlines.Touch(5, 10_000)
	tm.deadlines.Touch(6, 10_000)
	touches := peer.Touches{Number: 41, Applied: 4, Heard: []state.Touch{{Session: 5}}}
	time.Sleep(50 * time.Millisecond) // less time could not be told apart in the deadlines
	must.OK(t, receive(peer.LinkTouches, touches.Append(nil)))
	left := tm.deadlines.All()
	expect.That(t, left[5] > left[6], "the session is not touched: %v", left)
	expect.Equal(t, tm.Progress()[2], 4)
	typ, payload, err := peer.ReadMessage(bufio.NewReader(&sent))
	must.OK(t, err)
	ack, err := peer.ParseTouches(payload)
	must.OK(t, err)
	expect.Equal(t, typ, peer.LinkAck)
	expect.Equal(t, ack.Number, 41, "the number of the touches")
	expect.Equal(t, ack.Applied, 9, "how far the leader is")

	sent.Reset()
	end()
	expect.Equal(t, receive(peer.LinkTouches, touches.Append(nil)), ErrNotLeading, "the term is over")
	must.OK(t, tm.o.Raft.Shutdown().Error())
	tm.ctx = t.Context()
	expect.Equal(t, receive(peer.LinkTouches, touches.Append(nil)), ErrNotLeading, "raft does not lead")
	expect.Equal(t, sent.Len(), 0, "bytes of answers")
	tm.links.Close()
	expect.Equal(t, receive(peer.LinkBlock, bl.Append(nil)), net.ErrClosed)
	// Without a term ServeLink returns at once.
	(&Leader{o: *tm.o}).ServeLink(t.Context(), here, &peer.Greeting{From: 2})
}

// A link to an elected server waits until the server's term begins. The links end with the term, and the
// leader accepts no more blocks: the servers send them to the next leader.
func TestLinksBeginAndEndWithTheTerm(t *testing.T) {
	t.Parallel()
	a := applied.New()
	tm := termOf(t, a)
	tm.o.Raft = raftOf(t, a.FSM)
	l := &Leader{o: *tm.o}
	l.o.Promises = must.Get(form.LoadPromises(memoryDisk(t), tm.o.Log))(t)
	time.AfterFunc(20*time.Millisecond, func() { l.term.Store(tm) })
	here, there := net.Pipe()
	defer here.Close()
	served := make(chan struct{})
	go func() {
		l.ServeLink(t.Context(), there, &peer.Greeting{From: 2, Version: peer.Version, Incarnation: "b"})
		there.Close()
		close(served)
	}()
	here.SetDeadline(time.Now().Add(20 * time.Second))
	w := bufio.NewWriter(here)
	must.OK(t, peer.WriteMessage(w, peer.LinkTouches, (&peer.Touches{Number: 1, Applied: 4}).Append(nil)))
	must.OK(t, w.Flush())
	typ, _, err := peer.ReadMessage(bufio.NewReader(here))
	must.OK(t, err)
	must.Equal(t, typ, peer.LinkAck, "the answer over the link")
	tm.links.Close()
	must.Equal(t, expect.Err(here.Read(make([]byte, 1))), io.EOF, "the link goes on")
	<-served
	expect.Equal(t, l.o.Promises.Of("b").Index, 4, "what is remembered of the server")
	late, other := net.Pipe()
	defer other.Close()
	in := &followers.Link{Conn: late}
	expect.That(t, !tm.links.Add(in), "a link that comes after the end is taken")
	expect.That(t, !in.Push(entries.Block{}), "a block that comes after the end is taken")
}
