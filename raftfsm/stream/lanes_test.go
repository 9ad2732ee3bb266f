package stream

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The requests of a session stay in order, and none is lost or added, in whatever order they are put and
// taken.
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
			got := binary.BigEndian.Uint32(b[8:])
			must.Equal(t, got, taken[session], "seed %d: got", seed)
			must.Equal(t, p.size, len(b), "seed %d: p.size", seed)
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

// Sessions that send much share the stream evenly. A session with one small request does not wait for them.
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
	for range 60 { // take only a part of the requests
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
	// A session without waiting requests goes first with its next request. If it sends one request after
	// another, it does so only once.
	for range 100 {
		ls.add(300, pending{size: len(small)}, small)
		ls.next()
	}
	expect.That(t, ls.by[300] != nil || len(ls.old) == 0,
		"a session whose lane runs empty is forgotten at once, and goes first again")
}

// A lane that never runs empty gives up room that it no longer needs. Room for a long request is not kept.
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
	expect.That(t, cap(l.queue) <= 100, "room for %d requests, want at most 100", cap(l.queue))
	expect.That(t, cap(l.buf) <= 10_000, "room for %d bytes, want at most 10000", cap(l.buf))
	for size, kept := range map[int]bool{100: true, 1 << 20: false} {
		l := &lane{session: 1, buf: make([]byte, 0, size)}
		ls := lanes{by: map[int64]*lane{1: l}}
		ls.forget(l)
		expect.That(t, ls.by[1] == nil,
			"room is kept behind a request of %d bytes: %v: want ls.by[1] == nil",
			size, ls.spare != nil)
		expect.Equal(t, ls.spare != nil, kept,
			"room is kept behind a request of %d bytes: ls.spare != nil", size)
	}
	var fair lanes
	share := make([]byte, laneShare)
	fair.add(1, pending{size: len(share)}, share)
	fair.add(2, pending{size: 1}, []byte("x"))
	p, _ := fair.next()
	expect.Equal(t, p.size, laneShare, "the first newcomer, whose request is as long as its share")
	expect.That(t, !fair.waits(1), "sessions that wait: want !fair.waits(1)")
	expect.That(t, fair.waits(2), "sessions that wait: want fair.waits(2)")
	expect.That(t, !fair.waits(3), "sessions that wait: want !fair.waits(3)")
}
