package stream

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/raftfsm/state/entries"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The buffer of a stream that never runs empty has at most three times the size of its requests.
func TestStreamOfLargeRequestsStaysSmall(t *testing.T) {
	s := New()
	s.SetClosed(false)
	s.Open(1)
	const large, under = 300_000, 10
	put := func() {
		must.OK(t, s.Put(&state.Request{Body: make([]byte, large)}, nil))
	}
	for range under {
		put()
	}
	reader := s.Rewind()
	for seq := uint64(1); seq <= 900; {
		put()
		bl := s.Take(reader, 1, 1, 1, nil)
		for range bl.Count {
			s.Applied(1, seq)
			seq++
		}
	}
	n := cap(s.buf)
	expect.That(t, n <= 3*under*large, "%d MiB for %d requests of %d bytes", n>>20, under, large)
}

// When a new reader has replaced another one, requests wake only the new reader.
func TestRequestsWakeTheNewestReader(t *testing.T) {
	s := New()
	s.SetClosed(false)
	s.Open(1)
	former := s.Rewind()
	reader := s.Rewind()
	must.Equal(t, len(reader), 1, "wake-ups of a reader that begins")
	<-reader
	for range 2 {
		for len(former) > 0 {
			<-former
		}
		must.OK(t, s.Put(&state.Request{Body: []byte("x")}, nil))
		expect.Equal(t, len(former), 0, "the former reader is woken")
		select {
		case <-reader:
		default:
			t.Error("the reader is not woken")
		}
		expect.Equal(t, s.Take(former, 1, 1, 100, nil).Count, 0, "the former reader takes a request")
		expect.Equal(t, s.Take(reader, 1, 1, 100, nil).Count, 1, "the reader takes no request")
	}
}

// A stream needs no more memory after 30,000 requests than after a few, whether it becomes empty in between
// or always holds some requests.
func TestStreamForgetsWhatHasPassed(t *testing.T) {
	for _, under := range []int{0, 10} {
		s := New()
		s.SetClosed(false)
		s.Open(1)
		put := func() { must.OK(t, s.Put(&state.Request{Body: make([]byte, 100)}, nil)) }
		for range under {
			put()
		}
		reader := s.Rewind()
		for seq := uint64(1); seq <= 30_000; {
			put()
			bl := s.Take(reader, 1, 1, 1<<20, nil)
			for range bl.Count {
				s.Applied(1, seq)
				seq++
			}
		}
		n, b := cap(s.pending), cap(s.buf)
		expect.That(t, n <= 4096, "%d under way: room for %d requests, want at most 4096", under, n)
		expect.That(t, b <= 4<<20, "%d under way: room for %d bytes, want at most %d", under, b, 4<<20)
	}
}

// The waiting requests of one session are limited in number and bytes. All other sessions together may have
// as many waiting requests again.
func TestWhatWaitsForTheLogIsBounded(t *testing.T) {
	for name, size := range map[string]int{"requests": 1, "bytes": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			s := New()
			s.SetClosed(false)
			s.Open(1)
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
					must.OK(t, s.Put(&state.Request{Session: session, Body: make([]byte, size)}, nil))
				}
			}
			most = min(maxRequests, maxBytes/size)
			n := put(1)
			expect.That(t, n <= most+1, "one session has %d requests waiting, want at most %d", n, most+1)
			expect.That(t, n >= most*9/10, "one session has %d requests waiting, want at least %d", n, most*9/10)
			expect.That(t, !full(2), "another session finds no room for its first request")
			n = 0
			for other := int64(2); !full(other); other++ {
				if n++; n > 3*most {
					t.Fatal("any number of sessions find room")
				}
				must.OK(t, s.Put(&state.Request{Session: other, Body: make([]byte, size)}, nil))
			}
			expect.That(t, n <= most+1, "%d other sessions find room, for %d is meant", n, most)
		})
	}
}

// A stream returns requests as they were put. It keeps a set of identities once if several requests share it.
func TestStreamKeepsIdentitiesOnce(t *testing.T) {
	s := New()
	s.SetClosed(false)
	s.Open(1)
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
		must.OK(t, s.Put(&r, nil))
	}
	n := len(s.buf)
	expect.That(t, n <= 100_000, "%d bytes for 1000 small requests", n)
	const most = 100 << 10
	reader := s.Rewind()
	var got []byte
	for seq := 0; ; {
		bl := s.Take(reader, 1, 100, most, nil)
		if bl.Count == 0 {
			break
		}
		must.OK(t, bl.Check())
		expect.That(t, len(bl.Requests) <= most, "a block has %d bytes, want at most %d", len(bl.Requests), most)
		expect.That(t, bl.Count <= 100, "a block has %d requests, want at most 100", bl.Count)
		seq += int(bl.Count)
		if bl.Count < 100 && seq < len(sizes) && len(bl.Requests)+sizes[seq] <= most {
			t.Errorf("a block of %d requests in %d bytes had room for %d more", bl.Count, len(bl.Requests), sizes[seq])
		}
		got = append(got, bl.Requests...)
	}
	expect.List(t, got, all, "what is taken differs from what was put")
}

// A stream that one session has filled still takes a request of each other session, and soon numbers it.
func TestStreamLetsOthersIn(t *testing.T) {
	s := New()
	s.Open(1)
	s.SetClosed(false)
	reader := s.Rewind()
	big := state.Request{Session: 1, Op: jute.OpSetData, Body: make([]byte, 1<<20)}
	filled := make(chan error, 1)
	go func() { // waits while the stream is full
		for range 200 {
			if err := s.Put(&big, nil); err != nil {
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
		must.OK(t, s.Put(&state.Request{Session: 2 + i, Op: jute.OpCreate, Body: []byte("x")}, nil))
	}
	seq, small, ahead := uint64(1), 0, 0
	for small < 50 {
		bl := s.Take(reader, 1, BatchRequests, BatchBytes, nil)
		must.That(t, bl.Count != 0, "%d of 50 small requests came", small)
		rest := bl.Requests
		for range bl.Count {
			session, next := entries.PeekRequest(rest)
			if session == 1 {
				ahead++
			} else {
				small++
			}
			rest = next
			s.Applied(1, seq)
			seq++
		}
	}
	expect.That(t, ahead <= 6, "%d requests of 1 MiB went before the others", ahead)
	s.SetClosed(true)
	expect.Equal(t, <-filled, ErrClosed, "the one that filled it")
	n := len(s.Drain())
	expect.That(t, n != 0 && s.Len() == 0, "%d drained, %d left", n, s.Len())
}

// BenchmarkStream measures a request's way through the stream, alone and after others.
func BenchmarkStream(b *testing.B) {
	for _, waiting := range []int{0, 2 * windowRequests} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			s := New()
			s.Open(1)
			s.SetClosed(false)
			reader := s.Rewind()
			r := state.Request{Op: jute.OpSetData, Body: make([]byte, 120)}
			for i := range waiting {
				r.Session = int64(i % 64)
				s.Put(&r, nil)
			}
			var buf []byte
			seq := uint64(1)
			b.ReportAllocs()
			for i := range b.N {
				r.Session = int64(i % 64)
				s.Put(&r, nil)
				buf = s.Take(reader, 1, 1, BatchBytes, buf[:0]).Requests
				s.Applied(1, seq)
				seq++
			}
		})
	}
}

// waits is a waiter that counts the outcomes of its requests.
type waits struct{ unknown, done int }

func (w *waits) Done(o *state.Outcome, _ *state.State) {
	w.done++
	if o.Unknown {
		w.unknown++
	}
}

// opened() returns a stream with birth 1 that takes requests.
func opened(t *testing.T, requests int, w state.Waiter) (*Stream, Reader) {
	t.Helper()
	s := New()
	s.SetClosed(false)
	s.Open(1)
	for range requests {
		must.OK(t, s.Put(&state.Request{Body: []byte("x")}, w))
	}
	return s, s.Rewind()
}

// A request leaves the stream only by its own outcome. Outcomes come in the order of the requests. Each
// counts once, and only with the birth under which the request was numbered.
func TestOutcomesOfOthersTakeNoRequest(t *testing.T) {
	var w waits
	s, by := opened(t, 2, &w)
	for i, c := range []struct {
		birth uint32
		seq   uint64
		takes bool
	}{{2, 1, false}, {0, 1, false}, {1, 0, false}, {1, 2, false}, {2, 2, false}, {1, 1, true}, {1, 1, false},
		{1, 2, true}, {1, 3, false}} {
		before := s.Len()
		got := s.Applied(c.birth, c.seq)
		if expect.Equal(t, got != nil, c.takes, "outcome %d takes a request: got != nil", i) {
			expect.Equal(t, before-s.Len() == 1, c.takes,
				"outcome %d takes a request: before-s.Len() == 1", i)
		}
	}
	// The reader continues after the requests that were applied before it took them.
	must.OK(t, s.Put(&state.Request{Body: []byte("y")}, &w))
	bl := s.Take(by, 7, 10, 100, nil)
	expect.Equal(t, fmt.Sprint(bl.Origin, bl.Birth, bl.First, bl.Count), "7 1 3 1")
	expect.Equal(t, s.Take(by, 7, 10, 100, nil).Count, 0, "requests that are left")
	again := s.Rewind()
	bl = s.Take(again, 7, 10, 100, nil)
	expect.Equal(t, fmt.Sprint(bl.First, bl.Count), "3 1", "for the next reader")
	s.Open(2)
	select {
	case <-again:
	default:
		t.Error("the reader is not told of a birth")
	}
	bl = s.Take(again, 7, 10, 100, nil)
	expect.Equal(t, fmt.Sprint(bl.Birth, bl.First, bl.Count), "2 1 1", "under the next birth")
}

// A snapshot hides the outcomes of some requests, of all, or of more than the stream has. The other requests
// keep their numbers.
func TestSnapshotHidesOutcomes(t *testing.T) {
	for _, c := range []struct {
		last    uint64
		unknown int
		next    uint64
	}{{0, 0, 1}, {1, 1, 2}, {2, 2, 3}, {3, 3, 4}, {4, 3, 5}, {9, 3, 10}} {
		var w waits
		s, by := opened(t, 3, &w)
		expect.Equal(t, s.Take(by, 1, 1, 100, nil).Count, 1)
		unknown := s.SkipTo(c.last)
		expect.Equal(t, len(unknown), c.unknown, "outcomes up to %d", c.last)
		expect.Equal(t, s.Len(), 3-c.unknown, "requests that are left behind %d", c.last)
		must.OK(t, s.Put(&state.Request{Body: []byte("y")}, &w))
		by = s.Rewind()
		bl := s.Take(by, 1, 10, 1000, nil)
		expect.Equal(t, fmt.Sprint(bl.First, bl.Count), fmt.Sprint(c.next, 4-c.unknown), "behind %d", c.last)
		expect.That(t, s.Applied(1, c.next) != nil, "the outcome of request %d", c.next)
	}
}

// A goroutine that waits for room in the stream goes on when a quarter of it is free, both in requests and in
// bytes. It also goes on when the stream closes.
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
				must.OK(t, s.Put(&state.Request{Session: 1, Body: body}, nil))
			}
			most := s.Len()
			went := make(chan error, 2)
			put := func() { went <- s.Put(&state.Request{Session: 1, Body: body}, nil) }
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
				must.That(t, requests >= maxRequests*3/4 || bytes >= maxBytes*3/4,
					"%s: it waits beside %d of %d requests, %d bytes", name, requests, most, bytes)
				bl := s.Take(by, 1, 1, 1, nil)
				must.Equal(t, bl.Count, 1, "%s: nothing is taken", name)
				s.Applied(1, seq)
				seq++
				synctest.Wait()
				if requests, bytes = left(); len(went) == 1 {
					must.That(t, requests <= maxRequests*3/4 && bytes <= maxBytes*3/4+2*size,
						"%s: it goes on beside %d requests, %d bytes", name, requests, bytes)
				}
			}
			expect.OK(t, <-went)
			expect.Equal(t, s.waiters, 0, "%s: goroutines that wait", name)
			for !full() {
				must.OK(t, s.Put(&state.Request{Session: 1, Body: body}, nil))
			}
			go put()
			synctest.Wait()
			must.Equal(t, len(went), 0, "%s: it does not wait", name)
			s.SetClosed(true)
			expect.Equal(t, <-went, ErrClosed)
			requests, _ := left()
			expect.Equal(t, len(s.Drain()), requests, "%s: requests that are left", name)
			expect.Equal(t, s.Len(), 0)
		})
	}
}

// A stream refuses a request that is too long for an entry, and every request while the stream is closed.
// After Put the caller may change its request.
func TestRequestsThatAStreamRefuses(t *testing.T) {
	s, by := opened(t, 0, nil)
	expect.Fails(t, s.Put(&state.Request{Body: make([]byte, entries.MaxRequest+1)}, nil),
		"a request that is too long")
	r := &state.Request{Body: []byte("x"), IDs: []jute.ID{{Scheme: "digest", ID: "a"}}}
	must.OK(t, s.Put(r, nil))
	expect.Equal(t, s.Len(), 1)
	s.SetClosed(true)
	expect.Equal(t, s.Put(&state.Request{Body: []byte("x")}, nil), ErrClosed)
	expect.Equal(t, s.Len(), 1)
	bl := s.Take(by, 1, 10, 1000, nil)
	want := state.Request{Body: []byte("x"), IDs: []jute.ID{{Scheme: "digest", ID: "a"}}}
	expect.List(t, bl.Requests, want.Append(nil))
}

// A burst of long requests leaves no long buffer behind. A short buffer is used again.
func TestStreamLetsALongBufferGo(t *testing.T) {
	for size, kept := range map[int]bool{100: true, 2 << 20: false} {
		s, _ := opened(t, 0, nil)
		must.OK(t, s.Put(&state.Request{Body: make([]byte, size)}, nil))
		s.Applied(1, 1)
		expect.That(t, (cap(s.buf) > 0) == kept, "a buffer of %d bytes behind a request of %d", cap(s.buf), size)
	}
}

// If this server is elected while a link is set up, the link must not read the stream. When the term is over,
// links can read it again.
func TestLateLinkTakesNothingFromATerm(t *testing.T) {
	s := New()
	s.Open(1)
	s.SetClosed(false)
	reader := s.Lead()
	must.That(t, s.Rewind() == nil, "a link reads beside the term")
	must.OK(t, s.Put(&state.Request{Op: state.OpBarrier}, nil))
	<-reader
	must.Equal(t, s.Take(reader, 1, 10, 1000, nil).Count, 1, "requests that the term takes")
	s.Leave()
	link := s.Rewind()
	must.Equal(t, s.Take(link, 1, 10, 1000, nil).Count, 1, "requests that the next link takes")
}
