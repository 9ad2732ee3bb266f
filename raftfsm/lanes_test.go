package raftfsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/raftfsm/state"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

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

// A session with one small request does not wait for those that send much, and
// those share alike.
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
	expect.That(t, ls.by[300] != nil || ls.old.head == nil,
		"who empties his lane is forgotten at once, and first again")
}

// A stream that somebody has filled still takes a request of everybody else,
// and gives it a number soon.
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

// BenchmarkStream measures a request through the stream, alone and behind
// others.
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
