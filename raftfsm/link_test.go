package raftfsm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/signal"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// linkFrom adds the link of a server to a term, and returns the other end of its connection.
func linkFrom(t *testing.T, ls *linkSet, id uint32) (*inLink, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	l := &inLink{c: here, Greeting: peer.Greeting{From: id, Version: peer.Version, Release: fmt.Sprint("9.", id),
		Shown: peer.Shown{Start: 3}}}
	must.That(t, ls.add(l), "the link of server %d is not taken", id)
	return l, there
}

// What waits on a link is bounded in blocks and in bytes. The other server waits until this server takes a
// block, or its term ends.
func TestWhatWaitsOnALinkIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, most int }{
		"blocks": {1, linkQueue}, "bytes": {1 << 20, linkQueueByte >> 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			var ls linkSet
			l, _ := linkFrom(t, &ls, 2)
			expect.Equal(t, len(ls.waiting()), 0, "links with blocks")
			bl := state.Block{Origin: 2, Count: 1, Requests: make([]byte, c.size)}
			pushed, over := 0, make(chan struct{})
			go func() {
				defer close(over)
				for l.push(bl) {
					pushed++
				}
			}()
			synctest.Wait()
			expect.Equal(t, pushed, c.most, "%s that wait", name)
			expect.Equal(t, len(ls.waiting()), 1, "links with blocks")
			for taken := 1; taken <= 2; taken++ {
				_, ok := l.pop()
				expect.That(t, ok, "no block is there")
				synctest.Wait()
				expect.Equal(t, pushed, c.most+taken, "%s pushed, %d taken", name, taken)
			}
			ls.closeAll()
			<-over
			expect.Equal(t, pushed, c.most+2, "%s pushed at the end of the term", name)
		})
	}
	var ls linkSet
	l, _ := linkFrom(t, &ls, 2)
	_, ok := l.pop()
	expect.That(t, !ok, "a block comes from an empty link")
}

// same is a cluster that knows every server by the directory that its link names.
func same(uint32) string { return "" }

// A server that was replaced may still hold its link. What that says is not told of the new server, and the link
// is closed as soon as the server is removed.
func TestLinkOfAReplacedServerSaysNothingOfTheNewOne(t *testing.T) {
	t.Parallel()
	var ls linkSet
	old, there := linkFrom(t, &ls, 2)
	old.Incarnation, old.applied, old.heard = "old", 7000, time.Now()
	known := func(uint32) string { return "new" }
	expect.Equal(t, len(ls.far(known)), 0, "links of the new server")
	fresh, other := linkFrom(t, &ls, 2)
	fresh.Incarnation, fresh.applied, fresh.heard = "new", 3, time.Now()
	expect.Equal(t, ls.progress(known)[2], 3, "entries that the new server has applied")
	ls.cut(2)
	for name, c := range map[string]net.Conn{"old": there, "new": other} {
		expect.Is(t, expect.Err(c.Read(make([]byte, 1))), io.EOF, "the link of the %s server", name)
	}
}

// What a server tells over its link holds for a while, and ends with the link.
func TestLeaderKnowsWhatItsLinksTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ls linkSet
		two, other := linkFrom(t, &ls, 2)
		three, _ := linkFrom(t, &ls, 3)
		expect.Equal(t, len(ls.far(same)), 0, "servers that have told nothing yet")
		two.applied, two.heard = 7, time.Now()
		two.full, two.fullAt = "little room", time.Now()
		for _, c := range []struct {
			wait  time.Duration
			heard int64 // ms ago
			full  string
			late  bool
		}{
			{0, 0, "server 2: little room", false},
			{fullFor - 1, fullFor.Milliseconds() - 1, "server 2: little room", false},
			{1, fullFor.Milliseconds(), "", false},
			{4999*time.Millisecond - fullFor, 4999, "", false},
			{time.Millisecond, 5000, "", true},
		} {
			time.Sleep(c.wait)
			p := ls.far(same)[2]
			must.That(t, p.Heard != nil, "%+v", p)
			expect.Equal(t, fmt.Sprint(p.Applied, *p.Heard, p.Version, p.Starts), fmt.Sprint(7, c.heard, "9.2", 3))
			expect.Equal(t, ls.full(), c.full)
			at, known := ls.progress(same)[2]
			expect.That(t, known != c.late,
				"progress %d, known: %v: want known != c.late", at, known)
			expect.That(t, c.late || at == 7,
				"progress %d, known: %v: want c.late || at == 7", at, known)
		}
		two.fullAt = time.Now()
		two.full = ""
		expect.Equal(t, ls.full(), "", "a server without a word of its disk")
		expect.Equal(t, ls.leastVersion(), peer.Version)
		three.Version = peer.Version + 1
		expect.Equal(t, ls.leastVersion(), peer.Version)
		two.Version = peer.Version - 1
		expect.Equal(t, ls.leastVersion(), peer.Version-1)
		ls.remove(two)
		expect.Equal(t, ls.leastVersion(), peer.Version)
		expect.Equal(t, len(ls.far(same)), 0, "servers that have told something")
		if expect.Equal(t, len(ls.links), 1, "links that are left: len(ls.links)") {
			expect.Equal(t, ls.links[0], three, "links that are left: ls.links[0]")
		}
		expect.Is(t, expect.Err(other.Read(make([]byte, 1))), io.EOF, "its connection")
	})
}

// A leader notes what comes over a link, and says so only while it leads.
func TestLeaderAnswersWhatALinkTells(t *testing.T) {
	t.Parallel()
	n, _ := start(t, Options{})
	newAsker(t, n)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	tm := &term{n: n, ctx: ctx, tracker: newTracker(), work: signal.New()}
	l, _ := linkFrom(t, &tm.links, 2)
	var sent bytes.Buffer
	w := bufio.NewWriter(&sent)
	receive := func(typ byte, payload []byte) error { return tm.receive(l, w, typ, payload) }

	must.OK(t, receive(peer.LinkFull, bytes.Repeat([]byte{'x'}, 300)))
	expect.Equal(t, tm.links.full(), "server 2: "+strings.Repeat("x", 200), "what is kept of a long reason")

	request := state.Request{Op: jute.OpSync, Session: 1, Body: jute.AppendString(nil, "/")}
	bl := state.Block{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: request.Append(nil)}
	must.OK(t, receive(peer.LinkBlock, bl.Append(nil)))
	if expect.Equal(t, len(tm.work), 1, "the block is not proposed soon: len(tm.work)") {
		expect.Equal(t, len(tm.links.waiting()), 1,
			"the block is not proposed soon: len(tm.links.waiting())")
	}

	tm.tracker.touch(5, 10_000)
	tm.tracker.start = tm.tracker.start.Add(-time.Hour) // an hour passes
	touches := peer.Touches{Number: 41, Applied: 4, Heard: []state.Touch{{Session: 5}}}
	least := n.fsm.index.Load() // the leader goes on by itself
	must.OK(t, receive(peer.LinkTouches, touches.Append(nil)))
	expect.That(t, tm.tracker.deadlines()[5] > 0, "the session is not touched")
	expect.Equal(t, tm.progress()[2], 4)
	typ, payload, err := peer.ReadMessage(bufio.NewReader(&sent))
	must.OK(t, err)
	ack, err := peer.ParseTouches(payload)
	must.OK(t, err)
	expect.Equal(t, typ, peer.LinkAck)
	expect.Equal(t, ack.Number, 41, "the number of the touches")
	expect.That(t, ack.Applied >= least && ack.Applied <= n.fsm.index.Load(), "the leader is at entry %d", ack.Applied)

	sent.Reset()
	end()
	expect.Equal(t, receive(peer.LinkTouches, touches.Append(nil)), errNotLeading, "the term is over")
	n.Abort()
	tm.ctx = t.Context()
	expect.Equal(t, receive(peer.LinkTouches, touches.Append(nil)), errNotLeading, "raft does not lead")
	expect.Equal(t, sent.Len(), 0, "bytes of answers")
	tm.links.closeAll()
	expect.Equal(t, receive(peer.LinkBlock, bl.Append(nil)), net.ErrClosed)
	host{n}.ServeLink(l.c, &peer.Greeting{From: 2}) // returns at once
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
		expect.That(t, touches.Applied > 0 && touches.Applied <= n.fsm.index.Load(),
			"%s: message %d %+v: want touches.Applied > 0 && touches.Applied <= n.fsm.index.Load()",
			name, typ, touches)
		if expect.Equal(t, len(touches.Heard), 1, "%s: len(touches.Heard)", name) {
			expect.Equal(t, touches.Heard[0].Session, 77, "%s: touches.Heard[0].Session", name)
		}
		before := time.Now()
		ack := peer.Touches{Number: touches.Number, Applied: n.fsm.index.Load()}
		must.OK(t, peer.WriteMessage(w, peer.LinkAck, ack.Append(nil)))
		must.OK(t, c.answer(w))
		go func() { _, _ = io.Copy(io.Discard, r) }() // its touches
		must.OK(t, w.Flush())
		err = <-ended
		must.Fails(t, err)
		expect.Has(t, err.Error(), c.ends)
		n.serving.mu.Lock()
		acked := n.serving.lastAck
		n.serving.mu.Unlock()
		expect.That(t, !acked.IsZero(), "acked %v: want !acked.IsZero()", acked)
		expect.That(t, acked.Before(before.Add(time.Hour)),
			"acked %v: want acked.Before(before.Add(time.Hour))", acked)
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
