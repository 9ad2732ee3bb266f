package leading

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/followers"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/raftfsm/stream"
	"github.com/zlockd/zlockd/test/applied"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// While a server applies an entry, it holds the lock of its state. So a leader divides very many acts among
// several entries.
func TestActsGoIntoSeveralEntries(t *testing.T) {
	t.Parallel()
	var q actQueue
	for range 2*actsInEntry + 50 {
		q.add(state.Request{Op: state.OpReap, Body: []byte("/x")})
	}
	for _, want := range []uint32{actsInEntry, actsInEntry, 50} {
		entry, more := q.take(nil)
		bl, rest, err := entries.NextBlock(entry)
		must.OK(t, err)
		expect.Equal(t, bl.Count, want, "acts in the entry")
		expect.Equal(t, len(rest), 0, "bytes after the block of acts")
		expect.Equal(t, more, want != 50, "more acts wait")
	}
}

// Acts are the leader's own requests. They fill at most half an entry, and a longer act gets an entry of its
// own. Before them come the servers' requests to open a stream, each only once.
func TestActsFillHalfAnEntryAtTheMost(t *testing.T) {
	t.Parallel()
	var q actQueue
	add := func(path int) (size int) {
		r := state.Request{Op: state.OpReap, Body: make([]byte, path)}
		q.add(r)
		return len(r.Append(nil))
	}
	overhead := add(1) - 1
	_, _ = q.take(nil)
	const half = entries.BatchBytes / 2
	third := half/3 - overhead
	// These three fill half an entry exactly.
	waits := add(third) + add(third) + add(half-2*(third+overhead)-overhead)
	waits += add(1) + add(half) + add(1)
	wish := applied.OpenStream()
	open := entries.Block{Origin: 2, Count: 1, Requests: wish.Append(nil)}
	q.addOpen(open)
	q.addOpen(open)
	expect.Equal(t, q.reaping(), waits, "bytes that wait")
	for i, want := range []uint32{3, 1, 1, 1} {
		entry, more := q.take([]byte("begins"))
		entry = entry[len("begins"):]
		if i == 0 {
			for range 2 {
				bl, rest, err := entries.NextBlock(entry)
				must.OK(t, err)
				expect.Equal(t, bl.Origin, 2, "origin of a request for a stream")
				expect.That(t, bytes.Equal(bl.Requests, open.Requests), "a block of other requests: %+v", bl)
				entry = rest
			}
		}
		bl, rest, err := entries.NextBlock(entry)
		must.OK(t, err)
		expect.Equal(t, bl.Count, want, "acts in entry %d", i)
		expect.Equal(t, bl.Origin, 0, "origin of the acts in entry %d", i)
		expect.Equal(t, len(rest), 0, "bytes after the acts in entry %d", i)
		expect.Equal(t, more, i < 3, "more acts wait after entry %d", i)
		waits -= len(bl.Requests)
		expect.Equal(t, q.reaping(), waits, "bytes that wait")
	}
	entry, more := q.take(nil)
	expect.Equal(t, len(entry), 0, "bytes of an entry without acts")
	expect.That(t, !more, "acts wait in an empty queue")
}

// An entry holds a limited number of requests and bytes. The servers with requests share it, and each may use
// what the others leave.
func TestServersShareAnEntry(t *testing.T) {
	t.Parallel()
	filled := func(own, linked, size int) (entry []byte, mine, others int) {
		h, _ := passing(t)
		l := &followers.Link{Greeting: peer.Greeting{From: 2}}
		must.That(t, h.t.links.Add(l), "the link is not taken")
		for i := range linked {
			bl := entries.Block{Origin: 2, Birth: 1, First: uint64(i + 1), Count: 1}
			r := state.Request{Session: 2, Op: jute.OpSync, Body: make([]byte, size)}
			bl.Requests = r.Append(nil)
			l.Push(bl)
		}
		for range own {
			must.OK(t, h.t.o.State.Stream.Put(&state.Request{Session: 1, Op: jute.OpSync, Body: make([]byte,
				size)},
				nil))
		}
		entry = h.t.fill(entries.Begin(nil, 0))
		for rest := entry[entries.HeaderSize:]; len(rest) > 0; {
			bl, next, err := entries.NextBlock(rest)
			must.OK(t, err)
			must.OK(t, bl.Check())
			if rest = next; bl.Origin == 1 {
				mine += int(bl.Count)
			} else {
				others += int(bl.Count)
			}
		}
		expect.Equal(t, h.t.requests, mine+others, "requests in the entry")
		return entry, mine, others
	}
	for _, c := range []struct{ own, linked, mine, others int }{
		{0, 0, 0, 0}, {5, 0, 5, 0}, {0, 5, 0, 5}, {5, 7, 5, 7},
		{2000, 0, stream.BatchRequests, 0}, {0, 2000, 0, stream.BatchRequests},
		{2000, 2000, stream.BatchRequests / 2, stream.BatchRequests / 2},
		{2000, 100, stream.BatchRequests - 100, 100}, {100, 2000, 100, stream.BatchRequests - 100},
	} {
		_, mine, others := filled(c.own, c.linked, 1)
		expect.Equal(t, fmt.Sprint(mine, others), fmt.Sprint(c.mine, c.others), "%d of its own, %d linked",
			c.own,
			c.linked)
	}
	const long = stream.BatchBytes / 10
	for _, c := range [][2]int{{100, 0}, {0, 100}, {100, 100}} {
		entry, mine, others := filled(c[0], c[1], long)
		expect.That(t, len(entry) > stream.BatchBytes*7/10 && len(entry) <= stream.BatchBytes+2*long,
			"the entry has %d bytes, want %d to %d", len(entry), stream.BatchBytes*7/10, stream.BatchBytes+2*long)
		if c[0] == c[1] {
			expect.That(t, mine >= 4, "%d requests of this server, want 4 or more", mine)
			expect.That(t, others >= 4, "%d requests of the other server, want 4 or more", others)
		}
	}
	// A request too large for any share gets an entry of its own.
	_, mine, others := filled(1, 1, 2*stream.BatchBytes)
	expect.Equal(t, mine+others, 1, "long requests")
}

// A leader that proposes a session's request has heard from the session: its deadline begins again.
func TestProposedRequestsTouchTheirSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := passing(t)
		for id := range int64(4) {
			h.t.deadlines.Touch(id, 10_000)
		}
		time.Sleep(time.Hour)
		for _, id := range []int64{1, 2} {
			must.OK(t, h.t.o.State.Stream.Put(&state.Request{Session: id, Op: jute.OpSync}, nil))
		}
		r := state.Request{Session: 3, Op: jute.OpSync}
		l := &followers.Link{}
		must.That(t, h.t.links.Add(l), "the link is not taken")
		l.Push(entries.Block{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: r.Append(nil)})
		h.t.fill(entries.Begin(nil, 0))
		for id, left := range h.t.deadlines.All() {
			expect.Equal(t, left > 0, id != 0, "session %d has time left", id)
		}
	})
}

// An entry takes blocks of a server until these fill the server's share of the entry.
func TestLinkTakesItsShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ share, want int }{{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}} {
		h, _ := passing(t)
		l := &followers.Link{}
		must.That(t, h.t.links.Add(l), "the link is not taken")
		for range 4 {
			l.Push(entries.Block{Origin: 3, Count: 2})
		}
		e := filling{t: h.t, requests: stream.BatchRequests}
		e.link(l, c.share, 1<<10)
		taken := 4
		for _, waits := l.Pop(); waits; _, waits = l.Pop() {
			taken--
		}
		expect.Equal(t, taken, c.want, "blocks of two requests in a share of %d", c.share)
	}
}
