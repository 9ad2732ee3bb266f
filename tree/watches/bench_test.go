package watches

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/race"
)

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A watch takes at most 200 bytes, on many paths and on one. Once watches are gone, nearly all of their
// memory is given back.
func TestMemoryPerWatch(t *testing.T) {
	race.Alone(t)
	n := 460_000
	if testing.Short() {
		n /= 4
	}
	measure := func(name string, conns, limit int, path func(int) string) {
		before := heap()
		w := New[int]()
		for i := range n {
			w.Add(i%conns, path(i), Kind(i%2))
		}
		each := int(heap()-before) / n
		t.Logf("%s: %d bytes a watch, Bytes says %d", name, each, w.Bytes()/int64(n))
		expect.That(t, each <= limit, "%s: %d bytes a watch, limit %d", name, each, limit)
		start, longest := time.Now(), time.Duration(0)
		for c := range conns {
			at := time.Now()
			for more := w.Drop(c); more; more = w.Sweep(4096) {
				longest = max(longest, time.Since(at))
				at = time.Now()
			}
			longest = max(longest, time.Since(at))
		}
		took := time.Since(start)
		left := int(heap()-before) / 1024
		t.Logf("%s: dropped in %v, longest step %v, %d KB left", name, took, longest, left)
		expect.That(t, left <= 2048, "%s: %d KB left of nothing", name, left)
		runtime.KeepAlive(w)
	}
	// Paths of 34 bytes, such as /locks/service-0001/lock-000000001
	lock := func(i int) string { return fmt.Sprintf("/locks/service-%04d/lock-%09d", i%1000, i) }
	measure("own paths, 1000 connections", 1000, 200, lock)
	measure("own paths, one connection", 1, 200, lock)
	// 300 bytes, because the memory of the connections is included
	measure("one path, own connections", n, 300, func(int) string { return "/herd" })
}

func benchFire(b *testing.B, w *Table[int], e *Event) {
	told := 0
	for b.Loop() {
		w.Fire(e.Type, e.Path, func(int) { told++ })
	}
	b.ReportMetric(float64(told)/float64(b.N), "told/op")
}

func BenchmarkFire(b *testing.B) {
	many := New[int]()
	for i := range 1_000_000 {
		many.Add(i%1000, fmt.Sprintf("/locks/service-%04d/lock-%09d", i%1000, i), Persistent)
	}
	b.Run("nobody", func(b *testing.B) {
		benchFire(b, many, &Event{Type: jute.EventDataChanged, Path: "/locks/service-0001/lock-x"})
	})
	b.Run("one of a million", func(b *testing.B) {
		benchFire(b, many, &Event{Type: jute.EventDataChanged, Path: "/locks/service-0001/lock-000000001"})
	})
	b.Run("recursive at 10 levels", func(b *testing.B) {
		w := New[int]()
		path := ""
		for range 10 {
			path += "/level"
			w.Add(1, path, Recursive)
		}
		benchFire(b, w, &Event{Type: jute.EventDataChanged, Path: path})
	})
	b.Run("herd of 100000", func(b *testing.B) {
		w := New[int]()
		for i := range 100_000 {
			w.Add(i, "/herd", Persistent)
		}
		benchFire(b, w, &Event{Type: jute.EventDataChanged, Path: "/herd"})
	})
}

func BenchmarkAddAndFireOneShot(b *testing.B) {
	w := New[int]()
	e := &Event{Type: jute.EventDataChanged, Path: "/locks/a"}
	for b.Loop() {
		w.Add(1, "/locks/a", Data)
		w.Fire(e.Type, e.Path, func(int) {})
	}
}

func BenchmarkHerdOneShot(b *testing.B) {
	const n = 100_000
	w := New[int]()
	e := &Event{Type: jute.EventDataChanged, Path: "/herd"}
	for b.Loop() {
		for i := range n {
			w.Add(i, "/herd", Data)
		}
		w.Fire(e.Type, e.Path, func(int) {})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/watch")
}
