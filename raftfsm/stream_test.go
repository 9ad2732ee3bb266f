package raftfsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A stream that never runs empty takes no more than what is in it, and half as
// much again.
func TestStreamOfLargeRequestsStaysSmall(t *testing.T) {
	s := newStream()
	s.setClosed(false)
	s.open(1)
	const large, under = 300_000, 10
	put := func() {
		must.OK(t, s.put(&state.Request{Body: make([]byte, large)}, nil))
	}
	for range under {
		put()
	}
	reader := s.rewind()
	for seq := uint64(1); seq <= 900; {
		put()
		bl := s.take(reader, 1, 1, 1, nil)
		for range bl.Count {
			s.applied(1, seq)
			seq++
		}
	}
	n := cap(s.buf)
	expect.That(t, n <= 3*under*large, "%d MiB for %d requests of %d bytes", n>>20, under, large)
}

// What waits for the log is bounded, in requests and in bytes; a session that has
// nothing waiting finds room for as much again.
func TestWhatWaitsForTheLogIsBounded(t *testing.T) {
	for name, size := range map[string]int{"requests": 1, "bytes": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			s := newStream()
			s.setClosed(false)
			s.open(1)
			var most int
			full := func(session int64) bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.full(session)
			}
			put := func(session int64) int {
				for n := 0; ; n++ {
					if full(session) {
						return n
					}
					must.That(t, n <= 3*most, "it is never full")
					must.OK(t, s.put(&state.Request{Session: session, Body: make([]byte, size)}, nil))
				}
			}
			most = min(streamMaxRequests, streamMaxBytes/size)
			if n := put(1); n > most+1 || n < most*9/10 {
				t.Errorf("one session has %d requests waiting, %d are meant", n, most)
			}
			expect.That(t, !full(2), "another session finds no room for its first request")
			n := 0
			for other := int64(2); !full(other); other++ {
				if n++; n > 3*most {
					t.Fatal("any number of sessions find room")
				}
				must.OK(t, s.put(&state.Request{Session: other, Body: make([]byte, size)}, nil))
			}
			expect.That(t, n <= most+1, "%d other sessions find room, for %d is meant", n, most)
		})
	}
}

// What is taken from a stream are the requests as they were put, with their
// identities, which the stream itself keeps once.
func TestStreamKeepsIdentitiesOnce(t *testing.T) {
	s := newStream()
	s.setClosed(false)
	s.open(1)
	long := []jute.ID{{Scheme: "ip", ID: "10.0.0.1"}, {Scheme: "digest", ID: strings.Repeat("x", 16<<10)}}
	short := []jute.ID{{Scheme: "digest", ID: "y"}}
	var all []byte
	var sizes []int
	for i := range 1000 {
		r := state.Request{Session: int64(i), Gen: 1, Op: jute.OpDelete, Body: fmt.Append(nil, "body ", i)}
		switch i % 7 {
		case 1, 2:
			r.IDs = long
		case 3:
			r.IDs = short
		}
		at := len(all)
		all = r.Append(all)
		sizes = append(sizes, len(all)-at)
		must.OK(t, s.put(&r, nil))
	}
	n := len(s.buf)
	expect.That(t, n <= 100_000, "%d bytes for 1000 small requests", n)
	const most = 100 << 10
	reader := s.rewind()
	var got []byte
	for seq := 0; ; {
		bl := s.take(reader, 1, 100, most, nil)
		if bl.Count == 0 {
			break
		}
		must.OK(t, bl.Check())
		expect.That(t, len(bl.Requests) <= most && bl.Count <= 100,
			"a block of %d requests in %d bytes", bl.Count, len(bl.Requests))
		seq += int(bl.Count)
		if bl.Count < 100 && seq < len(sizes) && len(bl.Requests)+sizes[seq] <= most {
			t.Errorf("a block of %d requests in %d bytes had room for %d more", bl.Count, len(bl.Requests), sizes[seq])
		}
		got = append(got, bl.Requests...)
	}
	expect.List(t, got, all, "what is taken differs from what was put")
}
