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
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A server that sends what nobody can read must hear of it: its link ends, and
// it sends its requests again over another one. Passed over, they would be lost.
func TestLinkThatBringsNonsenseIsClosed(t *testing.T) {
	n, _ := start(t, Options{})
	eventually(t, "a leader", func() bool { return n.term.Load() != nil && n.raft.Leads() })
	request := state.Request{Op: jute.OpSync, Session: 1, Body: jute.AppendString(nil, "/")}
	block := func(tune func(*state.Block)) []byte {
		bl := state.Block{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: request.Append(nil)}
		tune(&bl)
		return bl.Append(nil)
	}
	good := block(func(*state.Block) {})
	for name, m := range map[string]struct {
		typ     byte
		payload []byte
	}{
		"half a block":               {peer.LinkBlock, good[:len(good)-1]},
		"a block and a byte":         {peer.LinkBlock, append(bytes.Clone(good), 0)},
		"nothing":                    {peer.LinkBlock, nil},
		"another server's block":     {peer.LinkBlock, block(func(bl *state.Block) { bl.Origin = 3 })},
		"the leader's own account":   {peer.LinkBlock, block(func(bl *state.Block) { bl.Origin = 0 })},
		"fewer requests than it has": {peer.LinkBlock, block(func(bl *state.Block) { bl.Count = 0 })},
		"half a request": {
			peer.LinkBlock, block(func(bl *state.Block) { bl.Requests = bl.Requests[:len(bl.Requests)-1] })},
		"half a touch":       {peer.LinkTouches, make([]byte, 17)},
		"an ack":             {peer.LinkAck, make([]byte, 16)},
		"an unknown message": {99, nil},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			served := make(chan struct{})
			go func() { n.serveLink(there, &peer.Greeting{From: 2, Version: peer.Version}); close(served) }()
			here.SetDeadline(time.Now().Add(20 * time.Second))
			w := bufio.NewWriter(here)
			// First what is in order, which is answered: the link stands.
			touches := peer.Touches{Number: 41}
			must.OK(t, peer.WriteMessage(w, peer.LinkTouches, touches.Append(nil)))
			must.OK(t, w.Flush())
			typ, payload, err := peer.ReadMessage(bufio.NewReader(here))
			if ack, aerr := peer.ParseAck(payload); err != nil || aerr != nil || typ != peer.LinkAck ||
				ack.Number != 41 {
				t.Fatalf("answer %d %x, %v", typ, payload, err)
			}
			must.OK(t, peer.WriteMessage(w, m.typ, m.payload))
			w.Flush()
			must.Equal(t, expect.Err(here.Read(make([]byte, 1))), io.EOF, "the link goes on")
			<-served
		})
	}
	expect.Equal(t, len(n.term.Load().links.links), 0, "links that ended are still there")
}

// A leader that stands still takes nothing from its links and does not break
// them. When another leads, who was sending goes on there.
func TestLinkThatTakesNoMoreEndsWithTheLeadership(t *testing.T) {
	t.Parallel()
	var still stillNet
	c := newTrio(t, false, func(o *Options) {
		if o.ID == 3 {
			still.tune(o)
		}
	})
	c.leadBut(3)
	var from uint32
	eventually(t, "a link to another leader", func() bool {
		from = c.nodes[3].linked.Load()
		return from != 0 && from != 3 && int(from) == c.leader()
	})
	still.takesNothing(func(p peer.Purpose, addr string) bool {
		return p == peer.Link &&
			addr == c.opts[3].Peers[from]
	})
	time.Sleep(2 * c.nodes[3].o.touchEvery()) // it has something to say by then
	next := 3 - from
	must.OK(t, c.nodes[1].Lead(t.Context(), next))
	eventually(t, "a link to the new leader", func() bool { return c.nodes[3].linked.Load() == next })
	c.create(3, "/through-the-new-leader")
}
