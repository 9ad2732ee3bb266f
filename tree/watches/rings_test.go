package watches

import (
	"fmt"
	"maps"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// A map that was large frees memory when it is small, and keeps its entries.
func TestMapsOfWatchesShrink(t *testing.T) {
	for _, x := range []struct {
		peak, left int
		shrinks    bool
	}{
		{shrinkMany, shrinkFew, true}, {shrinkMany, shrinkFew + 1, false}, {shrinkMany - 1, 1, false},
		{shrinkMany + 5, 0, true},
	} {
		var s shrinkMap[int]
		for i := range x.peak {
			s.set(i, uint32(i))
		}
		must.Equal(t, s.peak, x.peak)
		for i := x.left; i < x.peak; i++ {
			s.remove(i)
		}
		want := map[int]uint32{}
		for i := range x.left {
			want[i] = uint32(i)
		}
		expect.That(t, maps.Equal(s.m, want), "%d entries are left of %d, not %d", len(s.m), x.peak, x.left)
		if x.shrinks {
			expect.That(t, s.peak <= shrinkFew, "a map of %d entries has not shrunk from %d", x.left, x.peak)
		} else {
			expect.Equal(t, s.peak, x.peak, "%d entries are left", x.left)
		}
	}
}

// A slab gives out each number once, and never 0. It frees chunks in which all items are gone, except the
// chunk that it is filling.
func TestSlabGivesChunksBack(t *testing.T) {
	var s slab[int]
	chunks := func() (n int) {
		for _, c := range s.chunks {
			if c != nil {
				n++
			}
		}
		return n
	}
	const all = 5*chunkSize - 1 // 5 chunks
	out := map[uint32]bool{}
	for i := range all {
		id := s.get()
		must.That(t, id != 0, "%d is handed out: want id != 0", id)
		must.That(t, !out[id], "%d is handed out: want !out[id]", id)
		must.That(t, id < s.end(), "%d is handed out: want id < s.end()", id)
		must.Equal(t, *s.at(id), 0, "%d is handed out: *s.at(id)", id)
		must.Equal(t, s.peek(id), s.at(id), "%d is handed out: s.peek(id)", id)
		out[id] = true
		*s.at(id) = i
	}
	must.Equal(t, chunks(), 5, "%d chunks, %d in use: chunks()", chunks(), s.used)
	must.Equal(t, s.used, all, "%d chunks, %d in use: s.used", chunks(), s.used)
	must.Equal(t, s.end(), 5*chunkSize,
		"%d chunks, %d in use: s.end()", chunks(), s.used)
	for at := range uint32(5) {
		for id := at * chunkSize; id < (at+1)*chunkSize; id++ {
			if id > 0 {
				s.put(id)
			}
		}
		expect.Equal(t, chunks(), 5-int(at), "chunks without the first %d", at+1)
	}
	expect.Equal(t, s.used, 0)
	for range 2 * chunkSize {
		id := s.get()
		must.That(t, *s.at(id) == 0, "an item that was in use is handed out as it was")
	}
}

// A path with many records has an index of them; a path with few is searched.
func TestPathsWithManyRecordsAreIndexed(t *testing.T) {
	w := New[int]()
	for n := range 20 {
		w.Add(n, "/a", Kind(n%4))
		p := w.byPath.m["/a"]
		expect.Equal(t, w.paths.at(p).status == pathIndexed, n >= indexAbove, "%d records", n+1)
		expect.Equal(t, len(w.big[p]), map[bool]int{true: n + 1, false: 0}[n >= indexAbove], "%d records", n+1)
		for other := range n + 1 {
			r, looked := w.find(w.byConn.m[other], p)
			must.That(t, r != 0, "record %d of %d: want r != 0", other, n+1)
			must.Equal(t, w.records.at(r).conn, w.byConn.m[other],
				"record %d of %d: w.records.at(r).conn", other, n+1)
			must.That(t, n < indexAbove || looked == 0, "record %d of %d: %d are looked at", other, n+1, looked)
		}
		checkWatches(t, w)
	}
	for n := range 20 {
		must.That(t, w.Remove(n, "/a", jute.WatcherAny), "record %d", n)
		checkWatches(t, w)
	}
	expect.Equal(t, len(w.big), 0, "indexes of paths that are gone")
	expect.Equal(t, w.Bytes(), 0)
}

// Bytes counts each path, record and connection once.
func TestBytesOfWatches(t *testing.T) {
	w := New[string]()
	w.Add("a", "/path", Data)
	expect.Equal(t, w.Bytes(), 5+28+80+96)
	w.Add("a", "/path", Recursive)
	expect.Equal(t, w.Bytes(), 5+28+80+96, "another kind at the same path")
	w.Add("b", "/path", Child)
	expect.Equal(t, w.Bytes(), 5+2*28+80+2*96, "another connection")
	w.Add("b", "/longer-path", Child)
	expect.Equal(t, w.Bytes(), 5+12+3*28+2*80+2*96, "another path")
	w.Drop("b")
	expect.Equal(t, w.Bytes(), 5+28+80+96)
}

// Drop and Sweep remove at most the number of records that they are asked to, and report whether some are
// left.
func TestSweepsAreBounded(t *testing.T) {
	for _, x := range []struct {
		n    int
		more bool
	}{{1, false}, {dropAtOnce - 1, false}, {dropAtOnce, false}, {dropAtOnce + 1, true}} {
		w := New[string]()
		for i := range x.n {
			w.Add("gone", fmt.Sprint("/", i), Kind(i%4))
		}
		expect.Equal(t, w.Drop("gone"), x.more, "the drop of %d", x.n)
		expect.Equal(t, w.records.used, max(0, x.n-dropAtOnce), "records are left of %d", x.n)
		checkWatches(t, w)
		expect.That(t, !w.Sweep(1), "one sweeps the rest of %d", x.n)
		expect.Equal(t, w.records.used, 0, "something is left of %d: w.records.used", x.n)
		expect.Equal(t, w.conns.used, 0, "something is left of %d: w.conns.used", x.n)
		expect.Equal(t, w.paths.used, 0, "something is left of %d: w.paths.used", x.n)
	}
	w := New[string]()
	for _, conn := range []string{"a", "b"} {
		for i := range dropAtOnce + 10 {
			w.Add(conn, fmt.Sprint("/", i), Data)
		}
	}
	expect.That(t, w.Drop("a"), "too many to drop at once: want w.Drop(\"a\")")
	expect.That(t, w.Drop("b"), "too many to drop at once: want w.Drop(\"b\")")
	left := w.records.used
	expect.Equal(t, left, 2*10, "records of two that are dropped")
	for left > 0 {
		expect.Equal(t, w.Sweep(3), left > 3, "%d are left", left)
		left = max(0, left-3)
		must.Equal(t, w.records.used, left)
	}
	checkWatches(t, w)
}

// Scan ends when it has passed as many pairs as were asked for, but never in the middle of a path.
func TestScanStopsInTime(t *testing.T) {
	w := New[string]()
	for i := range 10 {
		for c := range 3 {
			w.Add(fmt.Sprint(c), fmt.Sprint("/", i), Data)
		}
	}
	for most, want := range map[int]int{1: 3, 3: 3, 4: 6, 6: 6, 29: 30, 30: 30, 31: 30} {
		n := 0
		next := w.Scan(0, most, func(string, string) { n++ })
		expect.That(t, n == want && (next == 0) == (n == 30), "%d pairs of up to %d, then from %d", n, most, next)
	}
	order := ""
	w.WatchersAt("/3", 2, func(conn string) { order += conn })
	expect.Equal(t, order, "01")
}
