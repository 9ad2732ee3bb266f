package metrics

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// `at` is the time of the values.
var at = time.Date(2026, 11, 21, 1, 23, 56, 0, time.UTC)

func TestBucketsHoldTheirValues(t *testing.T) {
	last := -1
	for v := int64(0); v < 1<<39; v += 1 + v/50 {
		b := bucketOf(v)
		must.That(t, b >= last && b < buckets, "%d falls into bucket %d after %d", v, b, last)
		last = b
		if d := math.Abs(float64(valueOf(b) - v)); d > 0.07*float64(v) {
			t.Fatalf("%d is remembered as %d", v, valueOf(b))
		}
	}
	expect.Equal(t, bucketOf(math.MaxInt64), buckets-1, "the greatest value falls into bucket")
}

func TestRecorderMatchesTheSortedValues(t *testing.T) {
	var r Recorder
	rnd := rand.New(rand.NewPCG(1, 2))
	var all []float64
	sum := 0.0
	for range 20000 {
		v := int64(math.Exp(rnd.NormFloat64()*1.5 + 7)) // µs
		r.Observe(v)
		all = append(all, float64(v)/1000)
		sum += float64(v) / 1000
	}
	slices.Sort(all)
	s := r.Value(at, Micro)
	expect.Equal(t, s.Count, 20000, "count")
	expect.Equal(t, s.Min, all[0], "min")
	expect.Equal(t, s.Max, all[len(all)-1], "max")
	expect.That(t, math.Abs(s.Sum-sum) <= 1, "got %+v", s)
	for q, got := range map[float64]float64{0.5: s.P50, 0.9: s.P90, 0.95: s.P95, 0.99: s.P99, 0.999: s.P999} {
		want := all[int(q*20000)]
		expect.That(t, math.Abs(got-want) <= 0.08*want, "quantile %v is %v, not %v", q, got, want)
	}
}

func TestQuantilesForgetAfterTwoWindows(t *testing.T) {
	var r Recorder
	now := at
	for range 100 {
		r.Observe(1000)
	}
	r.Value(now, 1)
	now = now.Add(window)
	r.Value(now, 1)
	r.Observe(10)
	s := r.Value(now, 1)
	expect.That(t, s.P50 >= 900, "the median is %v, want 900 or more: the window before still counts", s.P50)
	now = now.Add(window)
	r.Value(now, 1)
	s = r.Value(now, 1)
	expect.Equal(t, s.P99, 10, "a quantile is of the last windows")
	expect.Equal(t, s.Max, 1000, "the maximum is of all values")
	expect.Equal(t, s.Count, 101, "the count is of all values")
	r.Reset()
	expect.Equal(t, r.Value(now, 1), Summary{}, "after reset")
}

func TestRecorderTakesMany(t *testing.T) {
	var r Recorder
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				r.Observe(int64(g*1000 + i))
				if i%100 == 0 {
					r.Value(at.Add(time.Duration(i)*time.Minute), 1)
				}
			}
		})
	}
	wg.Wait()
	s := r.Value(at, 1)
	expect.Equal(t, s.Count, 8000, "count")
	expect.Equal(t, s.Min, 0, "minimum")
	expect.Equal(t, s.Max, 7999, "maximum")
}

func TestObservingDoesNotAllocate(t *testing.T) {
	var m Set
	m.ReadLatency.ObserveTime(time.Millisecond)
	m.Reads.Observe("/app/x", 1)
	n := testing.AllocsPerRun(100, func() {
		m.ReadLatency.ObserveTime(3 * time.Millisecond)
		m.Responses.Observe(77)
		m.Reads.Observe("/app/deeper/still", 12)
	})
	expect.Equal(t, n, 0, "allocations")
}

// A long name is not kept, and does not use up one of the maxNamespaces places.
func TestLongNamespacesAreCountedTogether(t *testing.T) {
	var n Namespaces
	long := "/" + strings.Repeat("x", maxNamespace+1)
	n.Observe(long, 1)
	n.Observe("/short/path", 1)
	n.Observe(long+"/below", 1)
	n.Observe("/"+long[2:], 1) // this name is just short enough to be kept
	got := n.Values(time.Now())
	if expect.Equal(t, len(got), 3, "length of got %v", got) {
		expect.Equal(t, got[otherNamespaces].Count, 2, "count")
		expect.Equal(t, got["short"].Count, 1, "count")
		expect.Equal(t, got[long[2:]].Count, 1, "count")
	}
}

func TestTheRootIsInNoNamespace(t *testing.T) {
	var n Namespaces
	n.Observe("/", 1)
	n.Observe("", 1)
	n.Observe("/a/b", 1)
	expect.Equal(t, fmt.Sprint(slices.Sorted(maps.Keys(n.Values(time.Now())))), "[a]", "namespaces")
}

func TestNamespacesAreBounded(t *testing.T) {
	var n Namespaces
	for i := range 1000 {
		n.Observe(fmt.Sprintf("/app%d/x", i), 1)
	}
	got := n.Values(at)
	if expect.Equal(t, len(got), maxNamespaces, "length of got %v", got) {
		expect.Equal(t, got[otherNamespaces].Count, 1000-maxNamespaces+1, "count")
	}
	// A reset frees the places of all names.
	n.Reset()
	expect.Equal(t, len(n.Values(at)), 0, "names after a reset")
	n.Observe("/fresh/x", 7)
	got = n.Values(at)
	if expect.Equal(t, len(got), 1, "length of got %v", got) {
		expect.Equal(t, got["fresh"].Count, 1, "count")
		expect.Equal(t, got["fresh"].Sum, 7, "sum")
	}
}

// A name that has had no request for ten minutes gives its place to a new one. Names with requests keep
// theirs, however many new names come.
func TestQuietNamespacesGiveTheirPlacesUp(t *testing.T) {
	var n Namespaces
	observe := func(path string, now time.Time) {
		if name := nameOf(path); !n.known(name, 1, func() time.Time { return now }) {
			n.add(name, now).Observe(1)
		}
	}
	for i := range maxNamespaces {
		observe(fmt.Sprintf("/made-up%d/x", i), at)
	}
	for minute := range 15 {
		now := at.Add(time.Duration(minute) * time.Minute)
		for i := range maxNamespaces - 2 { // one of the names has no further request
			observe(fmt.Sprintf("/made-up%d/x", i), now)
		}
		observe("/app/x", now)
		_, has := n.Values(now)["app"]
		expect.Equal(t, has, minute >= 10, "the new name has a place after %d minutes", minute)
	}
	got := n.Values(at)
	expect.Equal(t, len(got), maxNamespaces, "names: %v", got)
	_, still := got["made-up30"]
	expect.That(t, !still, "the quiet name still has its place")
}

// The name of a request that may yet fail takes no place.
func TestNamesOfFailedRequestsTakeNoPlace(t *testing.T) {
	var n Namespaces
	expect.Equal(t, n.ObserveKnown("/x/y", 5), "x", "a name to be counted later")
	expect.Equal(t, len(n.Values(at)), 0, "names before a request has succeeded")
	n.ObserveNew("x", 5)
	expect.Equal(t, n.ObserveKnown("/x/z", 7), "", "a name to be counted later, of a known one")
	expect.Equal(t, n.ObserveKnown("/", 7), "", "a name to be counted later, of the root")
	long := n.ObserveKnown("/"+strings.Repeat("n", 1<<20), 7)
	expect.Equal(t, long, otherNamespaces, "a name to be counted later, of a long one")
	got := n.Values(at)
	expect.Equal(t, got["x"].Count, 2, "count")
	expect.Equal(t, len(got), 1, "names: %v", got)
}

func BenchmarkObserve(b *testing.B) {
	var r Recorder
	b.RunParallel(func(p *testing.PB) {
		for i := int64(0); p.Next(); i++ {
			r.Observe(i & 4095)
		}
	})
}

// A bucket stands for the middle of the values that are counted in it.
func TestBucketsStandForTheirMiddle(t *testing.T) {
	last, low := 0, int64(0)
	for v := int64(1); v < 1<<16; v++ {
		b := bucketOf(v)
		if b == last {
			continue
		}
		must.Equal(t, b, last+1, "%d is in bucket %d, behind %d", v, b, last)
		got, want := valueOf(last), low+(v-low)/2
		expect.Equal(t, got, want, "bucket %d of %d to %d stands for %d", last, low, v-1, got)
		last, low = b, v
	}
}

func TestPausesOfTheCollectorAreMeasured(t *testing.T) {
	runtime.GC()
	before := GCPauses()
	for range 20 {
		runtime.GC()
	}
	s := GCPauses()
	mean := s.Sum / float64(s.Count)
	expect.That(t, before.Count > 0, "no pause was measured before")
	expect.That(t, s.Count >= before.Count+20, "%d pauses, and %d before 20 more collections", s.Count, before.Count)
	expect.That(t, s.Sum > before.Sum, "the sum is %v, and was %v", s.Sum, before.Sum)
	expect.That(t, s.Min <= before.Min, "the minimum is %v, and was %v", s.Min, before.Min)
	expect.That(t, s.Max >= before.Max, "the maximum is %v, and was %v", s.Max, before.Max)
	expect.That(t, s.Min < mean, "the minimum is %v, and the mean %v", s.Min, mean)
	expect.That(t, mean < s.Max, "the mean is %v, and the maximum %v", mean, s.Max)
	expect.That(t, s.Min <= s.P50*1.1, "the minimum is %v, and the median %v", s.Min, s.P50)
	expect.That(t, s.P50 <= s.P99, "the median is %v, and the 99th percentile %v", s.P50, s.P99)
	expect.That(t, s.P99 <= s.Max*1.1, "the 99th percentile is %v, and the maximum %v", s.P99, s.Max)
}
