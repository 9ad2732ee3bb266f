package raftfsm

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
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A leader notes what comes over a link, and says so only while it leads.
func TestLeaderAnswersWhatALinkTells(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	newAsker(t, n)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	tm := &term{n: n, ctx: ctx, tracker: applied.New().Lead(), work: signal.New()}
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
	bl := state.Block{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: request.Append(nil)}
	must.OK(t, receive(peer.LinkBlock, bl.Append(nil)))
	if expect.Equal(t, len(tm.work), 1, "the block is not proposed soon: len(tm.work)") {
		expect.Equal(t, len(tm.links.Waiting()), 1,
			"the block is not proposed soon: len(tm.links.Waiting())")
	}

	tm.tracker.Touch(5, 10_000)
	tm.tracker.Touch(6, 10_000)
	touches := peer.Touches{Number: 41, Applied: 4, Heard: []state.Touch{{Session: 5}}}
	least := n.fsm.Index()            // the leader goes on by itself
	time.Sleep(50 * time.Millisecond) // deadlines are this exact
	must.OK(t, receive(peer.LinkTouches, touches.Append(nil)))
	left := tm.tracker.All()
	expect.That(t, left[5] > left[6], "the session is not touched: %v", left)
	expect.Equal(t, tm.progress()[2], 4)
	typ, payload, err := peer.ReadMessage(bufio.NewReader(&sent))
	must.OK(t, err)
	ack, err := peer.ParseTouches(payload)
	must.OK(t, err)
	expect.Equal(t, typ, peer.LinkAck)
	expect.Equal(t, ack.Number, 41, "the number of the touches")
	expect.That(t, ack.Applied >= least && ack.Applied <= n.fsm.Index(), "the leader is at entry %d",
		ack.Applied)

	sent.Reset()
	end()
	expect.Equal(t, receive(peer.LinkTouches, touches.Append(nil)), errNotLeading, "the term is over")
	n.Abort()
	tm.ctx = t.Context()
	expect.Equal(t, receive(peer.LinkTouches, touches.Append(nil)), errNotLeading, "raft does not lead")
	expect.Equal(t, sent.Len(), 0, "bytes of answers")
	tm.links.Close()
	expect.Equal(t, receive(peer.LinkBlock, bl.Append(nil)), net.ErrClosed)
	host{n}.ServeLink(l.Conn, &peer.Greeting{From: 2}) // returns at once
}

// linkTo runs this server's link to a leader, itself, whose end of the connection it returns with what the
// link returns.
func (n *Node) linkTo(t *testing.T) (net.Conn, chan error) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	must.OK(t, there.SetDeadline(time.Now().Add(time.Minute)))
	ended := make(chan error, 1)
	go func() { ended <- n.runLink(here, n.id) }()
	return there, ended
}

// A server tells its leader whether its disk is low and how far it is, and ends a link over which nonsense
// comes.
func TestServerTellsItsLeaderOverTheLink(t *testing.T) {
	t.Parallel()
	ear := &allEar{}
	n := must.Get(Start(t.Context(), Options{Observer: ear, Logger: quietLog(t, 1), DiskReserve: -1,
		Fatal: func(err error) { t.Error(err) }}))(t)
	t.Cleanup(func() { stop(t, n) })
	newAsker(t, n)
	low := "little room"
	for name, c := range map[string]struct {
		why    string
		answer func(w *bufio.Writer) error
		ends   string
	}{
		"an unknown message": {"", func(w *bufio.Writer) error {
			return peer.WriteMessage(w, peer.LinkBlock, make([]byte, 16))
		}, "unknown message on a link"},
		"half an ack": {low, func(w *bufio.Writer) error {
			return peer.WriteMessage(w, peer.LinkAck, make([]byte, 17))
		}, "bad touches on a link"},
	} {
		n.upkeep.NoteDisk(c.why)
		there, ended := n.linkTo(t)
		r, w := bufio.NewReader(there), bufio.NewWriter(there)
		typ, payload, err := peer.ReadMessage(r)
		must.OK(t, err)
		if c.why != "" {
			expect.That(t, typ == peer.LinkFull && string(payload) == low, "%s: message %d %q", name, typ, payload)
			typ, payload, err = peer.ReadMessage(r)
			must.OK(t, err)
		}
		touches, err := peer.ParseTouches(payload)
		must.OK(t, err)
		expect.Equal(t, typ, peer.LinkTouches, "%s: typ", name)
		expect.That(t, touches.Applied > 0 && touches.Applied <= n.fsm.Index(),
			"%s: message %d %+v: want touches.Applied > 0 && touches.Applied <= n.fsm.Index()",
			name, typ, touches)
		if expect.Equal(t, len(touches.Heard), 1, "%s: len(touches.Heard)", name) {
			expect.Equal(t, touches.Heard[0].Session, 77, "%s: touches.Heard[0].Session", name)
		}
		before := time.Now()
		ack := peer.Touches{Number: touches.Number, Applied: n.fsm.Index()}
		must.OK(t, peer.WriteMessage(w, peer.LinkAck, ack.Append(nil)))
		must.OK(t, c.answer(w))
		go func() { _, _ = io.Copy(io.Discard, r) }() // its touches
		must.OK(t, w.Flush())
		err = <-ended
		must.Fails(t, err)
		expect.Has(t, err.Error(), c.ends)
		must.OK(t, n.Acknowledged(t.Context(), func(sent time.Time) bool {
			return !sent.IsZero() && sent.Before(before.Add(time.Hour))
		}))
	}
}

// allEar is an observer that tells of one session on each new link.
type allEar struct{ watcher }

func (*allEar) Heard(b []state.Touch, all bool) []state.Touch {
	if all {
		b = append(b, state.Touch{Session: 77})
	}
	return b
}
