package metrics

import (
	"math"
	"runtime/metrics"
)

// GCPauses returns how long the garbage collector has stopped the process, in milliseconds. Of all figures of
// Go this is the most similar to ZooKeeper's jvm_pause_time_ms.
func GCPauses() Summary {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return Summary{}
	}
	h := sample[0].Value.Float64Histogram()
	var s Summary
	var counts [buckets]uint64
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		low, high := max(h.Buckets[i], 0)*1000, h.Buckets[i+1]*1000
		if math.IsInf(high, 1) {
			high = low
		}
		if s.Count == 0 {
			s.Min = low
		}
		middle := (low + high) / 2
		s.Count, s.Sum, s.Max = s.Count+int64(n), s.Sum+middle*float64(n), high
		counts[bucketOf(int64(middle*Micro))] += n
	}
	s.setQuantiles(&counts, uint64(s.Count), Micro)
	return s
}
