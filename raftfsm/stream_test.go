package raftfsm

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/peer"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A stream that never runs empty takes no more than what is in it, and half as much again.
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

// A reader that has not noticed that another has taken its place wakes for nothing, and wakes the other
// reader for every request.
func TestRequestsWakeTheNewestReader(t *testing.T) {
	s := newStream()
	s.setClosed(false)
	s.open(1)
	former := s.rewind()
	reader := s.rewind()
	<-reader // it begins
	for range 2 {
		for len(former) > 0 {
			<-former
		}
		must.OK(t, s.put(&state.Request{Body: []byte("x")}, nil))
		expect.Equal(t, len(former), 0, "the former reader is woken")
		select {
		case <-reader:
		default:
			t.Error("the reader is not woken")
		}
		expect.Equal(t, s.take(former, 1, 1, 100, nil).Count, 0, "the former reader takes a request")
		expect.Equal(t, s.take(reader, 1, 1, 100, nil).Count, 1, "the reader takes no request")
	}
}

// What a stream keeps does not grow with the requests that have passed, whether it runs empty or not.
func TestStreamForgetsWhatHasPassed(t *testing.T) {
	for _, under := range []int{0, 10} {
		s := newStream()
		s.setClosed(false)
		s.open(1)
		put := func() { must.OK(t, s.put(&state.Request{Body: make([]byte, 100)}, nil)) }
		for range under {
			put()
		}
		reader := s.rewind()
		for seq := uint64(1); seq <= 30_000; {
			put()
			bl := s.take(reader, 1, 1, 1<<20, nil)
			for range bl.Count {
				s.applied(1, seq)
				seq++
			}
		}
		n, b := cap(s.pending), cap(s.buf)
		expect.That(t, n <= 4096 && b <= 4<<20, "%d under way: room for %d requests, %d bytes", under, n, b)
	}
}

// The requests that wait for the log are bounded, in requests and in bytes; a session that has
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

// A stream returns the requests as they were put, with their
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

// Each session's requests stay in order, none is lost and none is made up,
// however they are added and taken.
func TestLanesKeepTheOrderOfEachSession(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var ls lanes
		added, taken := map[int64]uint32{}, map[int64]uint32{}
		total := 0
		for range 2000 {
			if ls.count == 0 || r.IntN(100) < 52 {
				session := int64(r.IntN(5))
				size := 16 + r.IntN(200)
				if session == 4 {
					size = r.IntN(3 * laneShare)
				}
				b := make([]byte, size+12)
				binary.BigEndian.PutUint64(b, uint64(session))
				binary.BigEndian.PutUint32(b[8:], added[session])
				added[session]++
				ls.add(session, pending{size: len(b)}, b)
				total += len(b)
				continue
			}
			p, b := ls.next()
			session := int64(binary.BigEndian.Uint64(b))
			if got := binary.BigEndian.Uint32(b[8:]); got != taken[session] || p.size != len(b) {
				t.Fatalf("seed %d: session %d gives request %d, want %d", seed, session, got, taken[session])
			}
			taken[session]++
			total -= len(b)
		}
		left := 0
		for s := range added {
			left += int(added[s] - taken[s])
		}
		for s := range added {
			must.Equal(t, ls.waits(s), added[s] > taken[s], "seed %d: session %d waits", seed, s)
		}
		must.That(t, ls.count == left && ls.bytes == total,
			"seed %d: %d requests of %d bytes are left, want %d of %d", seed, ls.count, ls.bytes, left, total)
	}
}

// A session with one small request does not wait for those that send much, and those share alike.
func TestLanesAreFair(t *testing.T) {
	var ls lanes
	big, small := make([]byte, 300_000), make([]byte, 100)
	for s := range int64(40) {
		for range 5 {
			ls.add(s, pending{size: len(big)}, big)
		}
	}
	for range 500 {
		ls.add(100, pending{size: len(small)}, small)
	}
	gave := map[int]int{}
	for range 60 { // some way into it
		p, _ := ls.next()
		gave[p.size]++
	}
	expect.That(t, gave[100] != 0 && gave[300_000] <= 1,
		"of the first requests %d are small and %d large", gave[100], gave[300_000])
	ls.add(200, pending{size: len("innocent")}, []byte("innocent"))
	for before := 0; ; {
		p, b := ls.next()
		if bytes.Equal(b, []byte("innocent")) {
			break
		}
		before += p.size
		must.That(t, before <= 2*laneShare, "a newcomer waits for %d bytes of others", before)
	}
	// A newcomer that sends one at a time is a newcomer once.
	for range 100 {
		ls.add(300, pending{size: len(small)}, small)
		ls.next()
	}
	expect.That(t, ls.by[300] != nil || len(ls.old) == 0,
		"who empties his lane is forgotten at once, and first again")
}

// A stream that one session has filled still takes a request of every other, and gives it a number soon.
func TestStreamLetsOthersIn(t *testing.T) {
	s := newStream()
	s.open(1)
	s.setClosed(false)
	reader := s.rewind()
	big := state.Request{Session: 1, Op: jute.OpSetData, Body: make([]byte, 1<<20)}
	filled := make(chan error, 1)
	go func() { // blocks when the stream is full
		for range 200 {
			if err := s.put(&big, nil); err != nil {
				filled <- err
				return
			}
		}
		filled <- nil
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		waiters := s.waiters
		s.mu.Unlock()
		if waiters > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the stream takes everything")
		}
	}
	for i := range int64(50) {
		must.OK(t, s.put(&state.Request{Session: 2 + i, Op: jute.OpCreate, Body: []byte("x")}, nil))
	}
	seq, small, ahead := uint64(1), 0, 0
	for small < 50 {
		bl := s.take(reader, 1, batchRequests, batchBytes, nil)
		must.That(t, bl.Count != 0, "%d of 50 small requests came", small)
		rest := bl.Requests
		for range bl.Count {
			session, next := state.PeekRequest(rest)
			if session == 1 {
				ahead++
			} else {
				small++
			}
			rest = next
			s.applied(1, seq)
			seq++
		}
	}
	expect.That(t, ahead <= 6, "%d requests of 1 MiB went before the others", ahead)
	s.setClosed(true)
	expect.Equal(t, <-filled, ErrClosed, "the one that filled it")
	n := len(s.drain())
	expect.That(t, n != 0 && s.len() == 0, "%d drained, %d left", n, s.len())
}

// BenchmarkStream measures a request through the stream, alone and behind others.
func BenchmarkStream(b *testing.B) {
	for _, waiting := range []int{0, 2 * windowRequests} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			s := newStream()
			s.open(1)
			s.setClosed(false)
			reader := s.rewind()
			r := state.Request{Op: jute.OpSetData, Body: make([]byte, 120)}
			for i := range waiting {
				r.Session = int64(i % 64)
				s.put(&r, nil)
			}
			var buf []byte
			seq := uint64(1)
			b.ReportAllocs()
			for i := range b.N {
				r.Session = int64(i % 64)
				s.put(&r, nil)
				buf = s.take(reader, 1, 1, batchBytes, buf[:0]).Requests
				s.applied(1, seq)
				seq++
			}
		})
	}
}

// Clients of one server that send as much as it takes do not keep those of
// another waiting, under any leader, nor another client of their own server.
func TestClientsOfOneServerDoNotStarveOthers(t *testing.T) {
	c := newTrio(t, false, nil)
	leader := c.mustLead()
	follower := leader%3 + 1
	innocent := map[int]state.Outcome{}
	for _, id := range []int{leader, follower} {
		innocent[id] = openSession(t, c.nodes[id], 300_000)
	}
	for _, busy := range []int{leader, follower} {
		for _, size := range []int{300_000, 100} {
			if testing.Short() && (size == 100 || busy != leader) {
				continue // the longer forms run in CI
			}
			t.Run(fmt.Sprintf("busy=%d of leader %d, %d bytes", busy, leader, size), func(t *testing.T) {
				stop := make(chan struct{})
				var wg sync.WaitGroup
				for k := range 16 {
					s := openSession(t, c.nodes[busy], 300_000).Session
					path := fmt.Sprintf("/busy-%d-%d-%d", busy, size, k)
					if o, err := propose(c.nodes[busy], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
						Body: createBody(path, 0)}); err != nil || o.Code != jute.OK {
						t.Fatal(o, err)
					}
					body := jute.AppendInt(jute.AppendBuffer(jute.AppendString(nil, path), make([]byte, size)), -1)
					depth := 1
					if size < 1000 {
						depth = 100
					}
					for range depth {
						wg.Go(func() {
							for {
								select {
								case <-stop:
									return
								default:
								}
								if _, err := propose(c.nodes[busy], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpSetData,
									Body: body}); err != nil {
									return
								}
							}
						})
					}
				}
				// The cost of a request is measured in entries, not in time: how many the
				// leader put before it once it was asked for. A follower may be behind, so
				// the leader's index counts at the start.
				for _, id := range []int{leader, follower} {
					s := innocent[id].Session
					for k, slow := 0, 0; k < 5; {
						time.Sleep(20 * time.Millisecond)
						before := c.nodes[leader].fsm.index.Load()
						o, err := propose(c.nodes[id], state.Request{Session: s.ID, Gen: s.Gen, Op: jute.OpCreate,
							Body: createBody(fmt.Sprintf("/innocent-%d-%d-%d-%d-%d", busy, size, id, k, slow), 0)})
						must.That(t, err == nil && o.Code == jute.OK, "%v %v", o, err)
						entries := c.nodes[id].fsm.index.Load() - before
						if entries <= 40 {
							k++
							continue
						}
						// Between the request and each look others may run for long, but not each time.
						must.That(t, slow < 5, "a create at server %d took %d log entries of others", id, entries)
						slow++
					}
				}
				close(stop)
				wg.Wait()
			})
		}
	}
}

// The request for a stream is repeated sooner than it is applied, and before it
// come those of an earlier life of the server. It must not be given up for that.
func TestG22StreamOpensHoweverLateRequestsAreApplied(t *testing.T) {
	for _, late := range []int{1, 3} {
		s := newStream()
		births := map[int64]uint32{}
		var queue []int64
		for i := range late {
			queue = append(queue, -int64(i+1)) // of the earlier life
		}
		for range 20 {
			s.opening(state.Member{ID: 1}, crand.Reader)
			queue = append(queue, s.nonce)
			nonce := queue[0]
			queue = queue[1:]
			if births[nonce] == 0 {
				births[nonce] = uint32(len(births) + 1)
			}
			s.told(nonce, births[nonce])
		}
		if s.birthNow() == 0 {
			t.Errorf("requests that are applied %d rounds late: the stream is never opened, %d nonces", late,
				len(births))
		}
	}
}

// All of an entry is applied while the state is locked, so a great many nodes or sessions that end
// together go into several.
func TestActsGoIntoSeveralEntries(t *testing.T) {
	var q actQueue
	for range 2*actsInEntry + 50 {
		q.add(state.Request{Op: state.OpReap, Body: []byte("/x")})
	}
	for _, want := range []uint32{actsInEntry, actsInEntry, 50} {
		entry, more := q.take(nil)
		bl, rest, err := state.NextBlock(entry)
		must.OK(t, err)
		expect.That(t, bl.Count == want && len(rest) == 0 && more == (want != 50), "%d acts, more: %v", bl.Count,
			more)
	}
}

// The acts of a leader fill half an entry at the most; one that is longer goes alone. The wishes of servers
// to open their streams come first, and once.
func TestActsFillHalfAnEntryAtTheMost(t *testing.T) {
	var q actQueue
	add := func(path int) (size int) {
		r := state.Request{Op: state.OpReap, Body: make([]byte, path)}
		q.add(r)
		return len(r.Append(nil))
	}
	overhead := add(1) - 1
	_, _ = q.take(nil)
	const half = state.BatchBytes / 2
	third := half/3 - overhead
	waits := add(third) + add(third) + add(half-2*(third+overhead)-overhead) // which fill a half
	waits += add(1) + add(half) + add(1)
	wish := openStream()
	open := state.Block{Origin: 2, Count: 1, Requests: wish.Append(nil)}
	q.addOpen(open)
	q.addOpen(open)
	expect.Equal(t, q.reaping(), waits, "bytes that wait")
	for i, want := range []uint32{3, 1, 1, 1} {
		entry, more := q.take([]byte("begins"))
		entry = entry[len("begins"):]
		if i == 0 {
			for range 2 {
				bl, rest, err := state.NextBlock(entry)
				must.OK(t, err)
				expect.That(t, bl.Origin == 2 && bytes.Equal(bl.Requests, open.Requests), "%+v", bl)
				entry = rest
			}
		}
		bl, rest, err := state.NextBlock(entry)
		must.OK(t, err)
		expect.That(t, bl.Count == want && bl.Origin == 0 && len(rest) == 0 && more == (i < 3),
			"%d acts, %d bytes, more: %v",
			bl.Count, len(rest), more)
		waits -= len(bl.Requests)
		expect.Equal(t, q.reaping(), waits, "bytes that wait")
	}
	entry, more := q.take(nil)
	expect.That(t, len(entry) == 0 && !more, "%d bytes of nothing, more: %v", len(entry), more)
}

// waits is a waiter that notes what came of its request.
type waits struct{ unknown, done int }

func (w *waits) Done(o *state.Outcome, _ *state.State) {
	w.done++
	if o.Unknown {
		w.unknown++
	}
}

// opened is a stream that takes requests, under birth 1.
func opened(t *testing.T, requests int, w state.Waiter) (*stream, reader) {
	t.Helper()
	s := newStream()
	s.setClosed(false)
	s.open(1)
	for range requests {
		must.OK(t, s.put(&state.Request{Body: []byte("x")}, w))
	}
	return s, s.rewind()
}

// A request leaves the stream by its own outcome: in order, once, and under the birth that it was numbered
// under.
func TestOutcomesOfOthersTakeNoRequest(t *testing.T) {
	var w waits
	s, by := opened(t, 2, &w)
	for i, c := range []struct {
		birth uint32
		seq   uint64
		takes bool
	}{{2, 1, false}, {0, 1, false}, {1, 0, false}, {1, 2, false}, {2, 2, false}, {1, 1, true}, {1, 1, false},
		{1, 2, true}, {1, 3, false}} {
		before := s.len()
		got := s.applied(c.birth, c.seq)
		expect.That(t, (got != nil) == c.takes && (before-s.len() == 1) == c.takes,
			"outcome %d takes a request: %v", i,
			got != nil)
	}
	// The reader goes on behind what was applied without it.
	must.OK(t, s.put(&state.Request{Body: []byte("y")}, &w))
	bl := s.take(by, 7, 10, 100, nil)
	expect.Equal(t, fmt.Sprint(bl.Origin, bl.Birth, bl.First, bl.Count), "7 1 3 1")
	expect.Equal(t, s.take(by, 7, 10, 100, nil).Count, 0, "requests that are left")
	again := s.rewind()
	bl = s.take(again, 7, 10, 100, nil)
	expect.Equal(t, fmt.Sprint(bl.First, bl.Count), "3 1", "for the next reader")
	s.open(2)
	select {
	case <-again:
	default:
		t.Error("the reader is not told of a birth")
	}
	bl = s.take(again, 7, 10, 100, nil)
	expect.Equal(t, fmt.Sprint(bl.Birth, bl.First, bl.Count), "2 1 1", "under the next birth")
}

// A snapshot hides the outcomes of some requests, of all, or of more than the stream has; the rest goes on
// with its numbers.
func TestSnapshotHidesOutcomes(t *testing.T) {
	for _, c := range []struct {
		last    uint64
		unknown int
		next    uint64
	}{{0, 0, 1}, {1, 1, 2}, {2, 2, 3}, {3, 3, 4}, {4, 3, 5}, {9, 3, 10}} {
		var w waits
		s, by := opened(t, 3, &w)
		expect.Equal(t, s.take(by, 1, 1, 100, nil).Count, 1)
		unknown := s.skipTo(c.last)
		expect.Equal(t, len(unknown), c.unknown, "outcomes up to %d", c.last)
		expect.Equal(t, s.len(), 3-c.unknown, "requests that are left behind %d", c.last)
		must.OK(t, s.put(&state.Request{Body: []byte("y")}, &w))
		by = s.rewind()
		bl := s.take(by, 1, 10, 1000, nil)
		expect.Equal(t, fmt.Sprint(bl.First, bl.Count), fmt.Sprint(c.next, 4-c.unknown), "behind %d", c.last)
		expect.That(t, s.applied(1, c.next) != nil, "the outcome of request %d", c.next)
	}
}

// A stream lives under the birth that was given to its own request for one; when that is taken away it asks
// again.
func TestBirthsOfAStream(t *testing.T) {
	for _, c := range []struct {
		name   string
		is     uint32 // the birth it lives under
		own    bool   // the request was its own
		birth  uint32
		again  bool
		then   uint32
		opened bool
	}{
		{"its first", 0, true, 5, false, 5, true},
		{"another life's first", 0, false, 5, false, 0, false},
		{"told again", 5, true, 5, false, 5, false},
		{"its next", 5, true, 6, false, 6, true},
		{"another life's", 5, false, 6, true, 0, false},
		{"taken away", 5, false, 0, true, 0, false},
		{"taken away by its own number", 5, true, 0, true, 0, false},
		{"taken away, and it had none", 0, true, 0, false, 0, false},
	} {
		s := newStream()
		s.setClosed(false)
		bl := s.opening(state.Member{ID: 3}, crand.Reader)
		expect.That(t, bl.Origin == 3 && bl.Birth == 0 && bl.Count == 1 && bl.Check() == nil, "%+v", bl)
		nonce := s.nonce
		s.opening(state.Member{ID: 3}, crand.Reader)
		expect.That(t, nonce != 0 && s.nonce == nonce, "%s: another request", c.name)
		if s.birth = c.is; !c.own {
			nonce++
		}
		for len(s.opened) > 0 {
			<-s.opened
		}
		expect.Equal(t, s.told(nonce, c.birth), c.again, "%s: it asks again", c.name)
		expect.Equal(t, s.birthNow(), c.then, "%s", c.name)
		expect.Equal(t, len(s.opened) == 1, c.opened, "%s: it is news", c.name)
		expect.Equal(t, s.nonce == 0, c.again, "%s: it asks with another number", c.name)
	}
}

// A goroutine that waits for room goes on when a quarter of the stream is free, in requests and in bytes, and
// not before; and when the stream closes.
func TestWhoWaitsForRoomGoesOnAtThreeQuarters(t *testing.T) {
	for name, size := range map[string]int{"requests": 1, "bytes": 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			s, by := opened(t, 0, nil)
			body := make([]byte, size)
			full := func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.full(1)
			}
			for !full() {
				must.OK(t, s.put(&state.Request{Session: 1, Body: body}, nil))
			}
			most := s.len()
			went := make(chan error, 2)
			put := func() { went <- s.put(&state.Request{Session: 1, Body: body}, nil) }
			go put()
			synctest.Wait()
			must.Equal(t, len(went), 0, "%s: it does not wait", name)
			left := func() (requests, bytes int) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.lenLocked(), len(s.buf) - s.bufHead + s.lanes.bytes
			}
			for seq := uint64(1); len(went) == 0; {
				requests, bytes := left()
				must.That(t, requests >= streamMaxRequests*3/4 || bytes >= streamMaxBytes*3/4,
					"%s: it waits beside %d of %d requests, %d bytes", name, requests, most, bytes)
				bl := s.take(by, 1, 1, 1, nil)
				must.Equal(t, bl.Count, 1, "%s: nothing is taken", name)
				s.applied(1, seq)
				seq++
				synctest.Wait()
				if requests, bytes = left(); len(went) == 1 {
					must.That(t, requests <= streamMaxRequests*3/4 && bytes <= streamMaxBytes*3/4+2*size,
						"%s: it goes on beside %d requests, %d bytes", name, requests, bytes)
				}
			}
			expect.OK(t, <-went)
			expect.Equal(t, s.waiters, 0, "%s: goroutines that wait", name)
			for !full() {
				must.OK(t, s.put(&state.Request{Session: 1, Body: body}, nil))
			}
			go put()
			synctest.Wait()
			must.Equal(t, len(went), 0, "%s: it does not wait", name)
			s.setClosed(true)
			expect.Equal(t, <-went, ErrClosed)
			requests, _ := left()
			expect.Equal(t, len(s.drain()), requests, "%s: requests that are left", name)
			expect.Equal(t, s.len(), 0)
		})
	}
}

// A request that no log entry can hold is refused, and so is each while the stream is closed. What a request
// leaves behind is the caller's.
func TestRequestsThatAStreamRefuses(t *testing.T) {
	s, by := opened(t, 0, nil)
	expect.Fails(t, s.put(&state.Request{Body: make([]byte, state.MaxRequest+1)}, nil),
		"a request that is too long")
	r := &state.Request{Body: []byte("x"), IDs: []jute.ID{{Scheme: "digest", ID: "a"}}}
	must.OK(t, s.put(r, nil))
	expect.Equal(t, s.len(), 1)
	s.setClosed(true)
	expect.Equal(t, s.put(&state.Request{Body: []byte("x")}, nil), ErrClosed)
	expect.Equal(t, s.len(), 1)
	bl := s.take(by, 1, 10, 1000, nil)
	want := state.Request{Body: []byte("x"), IDs: []jute.ID{{Scheme: "digest", ID: "a"}}}
	expect.List(t, bl.Requests, want.Append(nil))
}

// A burst of long requests leaves no long buffer behind; a short one is used again.
func TestStreamLetsALongBufferGo(t *testing.T) {
	for size, kept := range map[int]bool{100: true, 2 << 20: false} {
		s, _ := opened(t, 0, nil)
		must.OK(t, s.put(&state.Request{Body: make([]byte, size)}, nil))
		s.applied(1, 1)
		expect.That(t, (cap(s.buf) > 0) == kept, "a buffer of %d bytes behind a request of %d", cap(s.buf), size)
	}
}

// An entry holds so many requests and bytes. Servers share it, and what one leaves of its share the others
// take.
func TestServersShareAnEntry(t *testing.T) {
	filled := func(own, linked, size int) (entry []byte, mine, others int) {
		h, _ := passing(t)
		l := &inLink{Greeting: peer.Greeting{From: 2}}
		for i := range linked {
			bl := state.Block{Origin: 2, Birth: 1, First: uint64(i + 1), Count: 1}
			r := state.Request{Session: 2, Op: jute.OpSync, Body: make([]byte, size)}
			bl.Requests = r.Append(nil)
			l.queue = append(l.queue, bl)
		}
		must.That(t, h.t.links.add(l), "the link is not taken")
		for range own {
			must.OK(t, h.t.n.fsm.stream.put(&state.Request{Session: 1, Op: jute.OpSync, Body: make([]byte, size)},
				nil))
		}
		entry = h.t.fill(state.BeginEntry(nil, 0))
		for rest := entry[state.EntryHeaderSize:]; len(rest) > 0; {
			bl, next, err := state.NextBlock(rest)
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
		{2000, 0, batchRequests, 0}, {0, 2000, 0, batchRequests},
		{2000, 2000, batchRequests / 2, batchRequests / 2},
		{2000, 100, batchRequests - 100, 100}, {100, 2000, 100, batchRequests - 100},
	} {
		_, mine, others := filled(c.own, c.linked, 1)
		expect.Equal(t, fmt.Sprint(mine, others), fmt.Sprint(c.mine, c.others), "%d of its own, %d linked", c.own,
			c.linked)
	}
	const long = batchBytes / 10
	for _, c := range [][2]int{{100, 0}, {0, 100}, {100, 100}} {
		entry, mine, others := filled(c[0], c[1], long)
		expect.That(t, len(entry) > batchBytes*7/10 && len(entry) <= batchBytes+2*long, "an entry of %d bytes",
			len(entry))
		if c[0] == c[1] {
			expect.That(t, mine >= 4 && others >= 4, "%d requests of its own, %d linked", mine, others)
		}
	}
	// A request too large for any share goes, alone.
	_, mine, others := filled(1, 1, 2*batchBytes)
	expect.Equal(t, mine+others, 1, "long requests")
}

// A proposed request is word of its session.
func TestProposedRequestsTouchTheirSessions(t *testing.T) {
	h, _ := passing(t)
	for id := range int64(4) {
		h.t.tracker.touch(id, 10_000)
	}
	h.t.tracker.start = h.t.tracker.start.Add(-time.Hour) // an hour passes
	for _, id := range []int64{1, 2} {
		must.OK(t, h.t.n.fsm.stream.put(&state.Request{Session: id, Op: jute.OpSync}, nil))
	}
	r := state.Request{Session: 3, Op: jute.OpSync}
	l := &inLink{queue: []state.Block{{Origin: 2, Birth: 1, First: 1, Count: 1, Requests: r.Append(nil)}}}
	must.That(t, h.t.links.add(l), "the link is not taken")
	h.t.fill(state.BeginEntry(nil, 0))
	for id, left := range h.t.tracker.deadlines() {
		expect.Equal(t, left > 0, id != 0, "session %d has time left", id)
	}
}

// A lane gives the room of what was taken back while it never runs empty, and a request may be as long as its
// lane's credit.
func TestLanesStaySmall(t *testing.T) {
	var ls lanes
	b := make([]byte, 100)
	for range 10 {
		ls.add(1, pending{size: len(b)}, b)
	}
	for range 10_000 {
		ls.add(1, pending{size: len(b)}, b)
		ls.next()
	}
	l := ls.by[1]
	expect.That(t, cap(l.queue) <= 100 && cap(l.buf) <= 10_000, "room for %d requests, %d bytes", cap(l.queue),
		cap(l.buf))
	for size, kept := range map[int]bool{100: true, 1 << 20: false} {
		l := &lane{session: 1, buf: make([]byte, 0, size)}
		ls := lanes{by: map[int64]*lane{1: l}}
		ls.forget(l)
		expect.That(t, ls.by[1] == nil && (ls.spare != nil) == kept,
			"room is kept behind a request of %d bytes: %v", size,
			ls.spare != nil)
	}
	var fair lanes
	share := make([]byte, laneShare)
	fair.add(1, pending{size: len(share)}, share)
	fair.add(2, pending{size: 1}, []byte("x"))
	p, _ := fair.next()
	expect.Equal(t, p.size, laneShare, "the first newcomer, whose request is as long as its share")
	expect.That(t, !fair.waits(1) && fair.waits(2) && !fair.waits(3), "sessions that wait")
}
