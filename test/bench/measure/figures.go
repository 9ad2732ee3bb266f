package measure

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// Machine describes the machine of the figures, with its load.
func Machine() string {
	model, cores := "unknown processor", 0
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			model = strings.TrimSpace(v)
			cores++
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d × %s, Linux %s, load at the start %s", cores, model,
		strings.TrimSpace(string(release)), Load())
}

// Load returns the machine's load average over a minute.
func Load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(b), " ")
	return cmp.Or(one, "unknown")
}

// Median returns the median of a list, NaN of an empty one.
func Median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 0:
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[n/2]
}
