package metrics

// Latency holds the times of requests in milliseconds.
type Latency struct {
	Min, Max int64
	Avg      float64
}

// Sizes holds the last, the smallest and the largest of a series of sizes. All are -1 before the first one.
type Sizes struct{ Last, Min, Max int64 }

// Summary is the distribution of a measured value. Times are in milliseconds.
type Summary struct {
	Count                    int64
	Sum, Min, Max            float64
	P50, P90, P95, P99, P999 float64
}

// Avg returns the mean, or zero before the first value.
func (s *Summary) Avg() float64 {
	if s.Count == 0 {
		return 0
	}
	return s.Sum / float64(s.Count)
}
