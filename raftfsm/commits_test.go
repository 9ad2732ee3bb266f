package raftfsm

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// If a follower sends requests that the leader cannot read, the leader ends the link. The follower then sends
// the requests again over another link. Otherwise they would be lost.
func TestLinkThatBringsNonsenseIsClosed(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	eventually(t, "a leader", func() bool { return n.leader.Term() != nil && n.raft.Leads() })
	request := state.Request{Op: jute.OpSync, Session: 1, Body: jute.AppendString(nil, "/")}
	block := func(tune func(*entries.Block)) []byte {
		bl := entries.Block{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: request.Append(nil)}
		tune(&bl)
		return bl.Append(nil)
	}
	good := block(func(*entries.Block) {})
	for name, m := range map[string]struct {
		typ     byte
		payload []byte
	}{
		"half a block":               {peer.LinkBlock, good[:len(good)-1]},
		"a block and a byte":         {peer.LinkBlock, append(bytes.Clone(good), 0)},
		"nothing":                    {peer.LinkBlock, nil},
		"another server's block":     {peer.LinkBlock, block(func(bl *entries.Block) { bl.Origin = 3 })},
		"the leader's own account":   {peer.LinkBlock, block(func(bl *entries.Block) { bl.Origin = 0 })},
		"fewer requests than it has": {peer.LinkBlock, block(func(bl *entries.Block) { bl.Count = 0 })},
		"half a request": {
			peer.LinkBlock, block(func(bl *entries.Block) { bl.Requests = bl.Requests[:len(bl.Requests)-1] })},
		"half a touch":       {peer.LinkTouches, make([]byte, 17)},
		"an ack":             {peer.LinkAck, make([]byte, 16)},
		"an unknown message": {99, nil},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			served := make(chan struct{})
			go func() { host{n}.ServeLink(there, &peer.Greeting{From: 2, Version: peer.Version}); close(served) }()
			here.SetDeadline(time.Now().Add(20 * time.Second))
			w := bufio.NewWriter(here)
			// A valid message is answered first: the link works.
			touches := peer.Touches{Number: 41}
			must.OK(t, peer.WriteMessage(w, peer.LinkTouches, touches.Append(nil)))
			must.OK(t, w.Flush())
			typ, payload, err := peer.ReadMessage(bufio.NewReader(here))
			ack, aerr := peer.ParseTouches(payload)
			must.OK(t, err, "answer %d %x, %v", typ, payload, err)
			must.OK(t, aerr, "answer %d %x, %v", typ, payload, err)
			must.Equal(t, typ, peer.LinkAck, "answer %d %x, %v: typ", typ, payload, err)
			must.Equal(t, ack.Number, 41, "answer %d %x, %v: ack.Number", typ, payload, err)
			must.OK(t, peer.WriteMessage(w, m.typ, m.payload))
			w.Flush()
			must.Equal(t, expect.Err(here.Read(make([]byte, 1))), io.EOF, "the link goes on")
			<-served
		})
	}
	expect.Equal(t, len(n.leader.Term().Far()), 0, "links that ended are still there")
}

// A leader that stands still reads nothing, but its links do not break. When another server is elected, the
// followers leave these links, and send their requests to the new leader.
func TestLinkThatTakesNoMoreEndsWithTheLeadership(t *testing.T) {
	t.Parallel()
	var still stillNet
	c := newTrio(t, false, func(o *Options) {
		brisk(o)
		if o.ID == 3 {
			still.tune(o)
		}
	})
	// A busy machine may refuse a hand-over, and may elect another server at any time.
	lead := func(next uint32) {
		if now := c.leader(); now != 0 && uint32(now) != next {
			_ = c.nodes[now].Lead(t.Context(), next)
		}
	}
	var from uint32
	eventually(t, "a link to another leader", func() bool {
		if c.leader() == 3 {
			lead(1)
		}
		from = c.nodes[3].linked.Load()
		return from != 0 && from != 3 && int(from) == c.leader()
	})
	still.takesNothing(func(p peer.Purpose, addr string) bool {
		return p == peer.Link &&
			addr == c.opts[3].Peers[from]
	})
	time.Sleep(2 * c.nodes[3].o.touchEvery()) // by then the server has a message to send
	next := 3 - from
	eventually(t, "a link to the new leader", func() bool {
		lead(next)
		return c.nodes[3].linked.Load() == next
	})
	c.create(3, "/through-the-new-leader")
}
