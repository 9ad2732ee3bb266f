package raftfsm

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// linkTo runs a link of this server to itself as the leader. It returns the leader's end of the connection,
// and a channel that gets the link's error.
func (n *Node) linkTo(t *testing.T) (net.Conn, chan error) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	must.OK(t, there.SetDeadline(time.Now().Add(time.Minute)))
	ended := make(chan error, 1)
	n.fsm.Stream.Leave() // a stream has one owner at a time, and here the link must have it
	go func() { ended <- n.runLink(here, n.id) }()
	return there, ended
}

// A server tells its leader whether its disk has little free space, what it has applied, and which sessions
// it heard from. It ends a link that brings nonsense.
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
			expect.Equal(t, typ, peer.LinkFull, "%s: the first message", name)
			expect.Equal(t, string(payload), low, "%s: why the disk is low", name)
			typ, payload, err = peer.ReadMessage(r)
			must.OK(t, err)
		}
		touches, err := peer.ParseTouches(payload)
		must.OK(t, err)
		expect.Equal(t, typ, peer.LinkTouches, "%s: typ", name)
		expect.That(t, touches.Applied > 0, "%s: no entry is applied", name)
		expect.That(t, touches.Applied <= n.fsm.Index(),
			"%s: entry %d is reported as applied, and %d is the last", name,
			touches.Applied, n.fsm.Index())
		if expect.Equal(t, len(touches.Heard), 1, "%s: len(touches.Heard)", name) {
			expect.Equal(t, touches.Heard[0].Session, 77, "%s: touches.Heard[0].Session", name)
		}
		before := time.Now()
		ack := peer.Touches{Number: touches.Number, Applied: n.fsm.Index()}
		must.OK(t, peer.WriteMessage(w, peer.LinkAck, ack.Append(nil)))
		must.OK(t, c.answer(w))
		go func() { _, _ = io.Copy(io.Discard, r) }() // reads the server's touches
		must.OK(t, w.Flush())
		err = <-ended
		must.Fails(t, err)
		expect.Has(t, err.Error(), c.ends)
		must.OK(t, n.Acknowledged(t.Context(), func(sent time.Time) bool {
			return !sent.IsZero() && sent.Before(before.Add(time.Hour))
		}))
	}
}

// allEar is an observer that reports one session on each new link.
type allEar struct{ watcher }

func (*allEar) Heard(b []state.Touch, all bool) []state.Touch {
	if all {
		b = append(b, state.Touch{Session: 77})
	}
	return b
}
