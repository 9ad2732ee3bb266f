package followers

import (
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// linkFrom adds the link of a server to a term, and returns the other end of its connection.
func linkFrom(t *testing.T, ls *Links, id uint32) (*Link, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	l := &Link{Conn: here, Greeting: peer.Greeting{From: id, Version: peer.Version, Release: fmt.Sprint("9.",
		id),
		Shown: peer.Shown{Start: 3}}}
	must.That(t, ls.Add(l), "the link of server %d is not taken", id)
	return l, there
}

// A link holds a limited number and size of blocks that wait. Push waits until a block is taken, or until the
// term ends.
func TestWhatWaitsOnALinkIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, most int }{
		"blocks": {1, linkQueue}, "bytes": {1 << 20, linkQueueByte >> 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			var ls Links
			l, _ := linkFrom(t, &ls, 2)
			expect.Equal(t, len(ls.Waiting()), 0, "links with blocks")
			bl := entries.Block{Origin: 2, Count: 1, Requests: make([]byte, c.size)}
			pushed, over := 0, make(chan struct{})
			go func() {
				defer close(over)
				for l.Push(bl) {
					pushed++
				}
			}()
			synctest.Wait()
			expect.Equal(t, pushed, c.most, "%s that wait", name)
			expect.Equal(t, len(ls.Waiting()), 1, "links with blocks")
			for taken := 1; taken <= 2; taken++ {
				_, ok := l.Pop()
				expect.That(t, ok, "no block is there")
				synctest.Wait()
				expect.Equal(t, pushed, c.most+taken, "%s pushed, %d taken", name, taken)
			}
			ls.Close()
			<-over
			expect.Equal(t, pushed, c.most+2, "%s pushed at the end of the term", name)
		})
	}
	var ls Links
	l, _ := linkFrom(t, &ls, 2)
	_, ok := l.Pop()
	expect.That(t, !ok, "a block comes from an empty link")
}

// same() returns the empty incarnation that the links of these tests have.
func same(uint32) string { return "" }

// A server was replaced, but the link of the old server may still be open. What it reports does not count for
// the new server. The leader closes it as soon as the old server is removed.
func TestLinkOfAReplacedServerSaysNothingOfTheNewOne(t *testing.T) {
	t.Parallel()
	var ls Links
	old, there := linkFrom(t, &ls, 2)
	old.Incarnation = "old"
	old.SetApplied(7000)
	known := func(uint32) string { return "new" }
	expect.Equal(t, len(ls.Far(known)), 0, "links of the new server")
	fresh, other := linkFrom(t, &ls, 2)
	fresh.Incarnation = "new"
	fresh.SetApplied(3)
	expect.Equal(t, fresh.Applied(), 3)
	expect.Equal(t, ls.Progress(known)[2], 3, "entries that the new server has applied")
	ls.Cut(2)
	for name, c := range map[string]net.Conn{"old": there, "new": other} {
		expect.Is(t, expect.Err(c.Read(make([]byte, 1))), io.EOF, "the link of the %s server", name)
	}
}

// What a server reports over its link counts for a limited time, and no longer than the link lives.
func TestLeaderKnowsWhatItsLinksTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ls Links
		two, other := linkFrom(t, &ls, 2)
		three, _ := linkFrom(t, &ls, 3)
		expect.Equal(t, len(ls.Far(same)), 0, "servers that have told nothing yet")
		two.SetApplied(7)
		two.SetFull("little room")
		for _, c := range []struct {
			wait  time.Duration
			heard int64 // ms since the server's report
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
			p := ls.Far(same)[2]
			must.That(t, p.Heard != nil, "%+v", p)
			expect.Equal(t, fmt.Sprint(p.Applied, *p.Heard, p.Version, p.Starts), fmt.Sprint(7, c.heard,
				"9.2", 3))
			expect.Equal(t, ls.Full(), c.full)
			at, known := ls.Progress(same)[2]
			expect.Equal(t, known, !c.late, "its progress is known after %d ms", c.heard)
			if known {
				expect.Equal(t, at, 7, "progress")
			}
		}
		two.SetFull("")
		expect.Equal(t, ls.Full(), "", "a server without a word of its disk")
		expect.Equal(t, ls.LeastVersion(), peer.Version)
		three.Version = peer.Version + 1
		expect.Equal(t, ls.LeastVersion(), peer.Version)
		two.Version = peer.Version - 1
		expect.Equal(t, ls.LeastVersion(), peer.Version-1)
		ls.Remove(two)
		expect.Equal(t, ls.LeastVersion(), peer.Version)
		expect.Equal(t, len(ls.Far(same)), 0, "servers that have told something")
		if expect.Equal(t, len(ls.links), 1, "links that are left: len(ls.links)") {
			expect.Equal(t, ls.links[0], three, "links that are left: ls.links[0]")
		}
		expect.Is(t, expect.Err(other.Read(make([]byte, 1))), io.EOF, "its connection")
	})
}
