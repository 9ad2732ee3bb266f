package admin

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlockd/zlockd/raftfsm/status"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

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
	s := r.Value(at, micro)
	if s.Count != 20000 || s.Min != all[0] || s.Max != all[len(all)-1] || math.Abs(s.Sum-sum) > 1 {
		t.Errorf("got %+v", s)
	}
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
	expect.That(t, s.P50 >= 900, "the window before is forgotten: %+v", s)
	now = now.Add(window)
	r.Value(now, 1)
	if s := r.Value(now, 1); s.P99 != 10 || s.Max != 1000 || s.Count != 101 {
		t.Errorf("quantiles of the last window, count and extremes of all: %+v", s)
	}
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
	expect.That(t, s.Count == 8000 && s.Min == 0 && s.Max == 7999, "got %+v", s)
}

func TestObservingDoesNotAllocate(t *testing.T) {
	var m Metrics
	m.ReadLatency.ObserveTime(time.Millisecond)
	m.Reads.Observe("/app/x", 1)
	n := testing.AllocsPerRun(100, func() {
		m.ReadLatency.ObserveTime(3 * time.Millisecond)
		m.Responses.Observe(77)
		m.Reads.Observe("/app/deeper/still", 12)
	})
	expect.Equal(t, n, 0, "allocations")
}

// A long name is not kept, and takes no name's place.
func TestLongNamespacesAreCountedTogether(t *testing.T) {
	var n Namespaces
	long := "/" + strings.Repeat("x", maxNamespace+1)
	n.Observe(long, 1)
	n.Observe("/short/path", 1)
	n.Observe(long+"/below", 1)
	n.Observe("/"+long[2:], 1) // just short enough
	got := n.values(time.Now())
	if len(got) != 3 || got[otherNamespaces].Count != 2 || got["short"].Count != 1 || got[long[2:]].Count != 1 {
		t.Errorf("%v", got)
	}
}

// A client may name paths that are no text, and an embedding program show two certificates for one use: no
// sample of a name that is taken withholds the others.
func TestSamplesOfOneNameDoNotSpoilTheMetrics(t *testing.T) {
	var m Metrics
	s := Status{Now: at}
	for _, path := range []string{"/\xff/x", "/\xfe/y", "/\xff\xfe", "/app\xff", "/app"} {
		m.Writes.Observe(path, 1)
	}
	m.Fill(&s, NeedMetrics)
	s.Measure("twice", "Twice.", 1)
	s.Measure("twice", "Twice.", 2)
	w := get(t, newAdmin(t, &fake{status: s}, "").Handler(), "/metrics")
	expect.Equal(t, w.Code, 200)
	for _, line := range []string{"write_per_namespace_count{key=\"\uFFFD\"} 3",
		"write_per_namespace_count{key=\"app\uFFFD\"} 1", "write_per_namespace_count{key=\"app\"} 1",
		"zlockd_twice 1"} {
		expect.Has(t, w.Body.String(), "\n"+line+"\n")
	}
}

func TestTheRootIsInNoNamespace(t *testing.T) {
	var n Namespaces
	n.Observe("/", 1)
	n.Observe("", 1)
	n.Observe("/a/b", 1)
	expect.Equal(t, fmt.Sprint(slices.Sorted(maps.Keys(n.values(time.Now())))), "[a]", "namespaces")
}

func TestNamespacesAreBounded(t *testing.T) {
	var n Namespaces
	for i := range 1000 {
		n.Observe(fmt.Sprintf("/app%d/x", i), 1)
	}
	got := n.values(at)
	expect.That(t, len(got) == maxNamespaces && got[otherNamespaces].Count == 1000-maxNamespaces+1,
		"%d names, %d others", len(got), got[otherNamespaces].Count)
	// A reset gives the names' places back.
	n.Reset()
	expect.Equal(t, len(n.values(at)), 0, "names behind a reset")
	n.Observe("/fresh/x", 7)
	got = n.values(at)
	expect.That(t, len(got) == 1 && got["fresh"].Count == 1 && got["fresh"].Sum == 7, "%v", got)
}

// TestEveryMeasuredNameIsShown guards against a name that is counted under a spelling that no page shows.
func TestEveryMeasuredNameIsShown(t *testing.T) {
	var m Metrics
	s := &Status{Now: at}
	m.Fill(s, NeedMetrics)
	for name := range s.Counters {
		expect.That(t, slices.Contains(counterNames, name), "counter %s is not shown", name)
	}
	for name := range s.Summaries {
		expect.That(t, slices.Contains(basicNames, name) || slices.Contains(advancedNames, name),
			"summary %s is not shown", name)
	}
	for name := range s.Keyed {
		_, ok := keyedNames[name]
		expect.That(t, ok, "family %s is not shown", name)
	}
	expect.Equal(t, s.Responses, Sizes{-1, -1, -1}, "sizes before the first")
	m.Responses.Observe(5)
	m.Responses.Observe(3)
	m.PacketsSent.Add(2)
	m.Fill(s, 0)
	expect.That(t, s.Responses == (Sizes{3, 3, 5}) && s.Sent == 2, "%+v", s)
	m.Reset()
	m.Fill(s, 0)
	expect.That(t, s.Responses == (Sizes{-1, -1, -1}) && s.Sent == 0, "after reset: %+v", s)
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

func TestMemoryOfControlGroups(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"none": {nil, math.MaxUint64},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"},
			math.MaxUint64},
		"its own": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n",
			"sys/fs/cgroup/a/memory.max": "max\n"}, 1000},
		"its parent": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n",
			"sys/fs/cgroup/a/memory.max": "900\n"}, 900},
		"container": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "500\n"}, 500},
		"version 1": {map[string]string{"proc/self/cgroup": "3:cpu:/x\n2:memory,hugetlb:/y\n",
			"sys/fs/cgroup/memory/y/memory.limit_in_bytes": "700\n"}, 700},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		}
		expect.Equal(t, groupMemory(root), c.want, "%s", name)
	}
	expect.That(t, UsableMemory() != 0, "the memory of this machine is not known")
}

// A leader's learners are those that it hears from, as ZooKeeper's are those that are connected.
func TestMembersThatAreDownDoNotFollow(t *testing.T) {
	s := ensemble()
	s.Members[0].Applied = 0
	s.Members = append(s.Members, status.Member{ID: 4, Progress: status.Progress{Applied: 9}},
		status.Member{ID: 5})
	want := map[string]float64{"learners": 2, "followers": 1, "quorum_size": 3}
	for _, g := range s.gauges() {
		if v, asked := want[g.name]; asked {
			expect.Equal(t, g.value, v, "%s", g.name)
			delete(want, g.name)
		}
	}
	expect.Equal(t, len(want), 0, "gauges that are missing: %v", want)
}
