package observe

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Clients choose names, and must not choose how much is kept of them.
func TestNamesAreBounded(t *testing.T) {
	var r Recent
	for i := range 3 * maxNames {
		r.Add(fmt.Sprint("/", i), Count{Requests: 1}, time.Second)
	}
	r.Add(strings.Repeat("x", maxName+1), Count{Requests: 1}, time.Second)
	if counts, _ := r.Counts(time.Second); len(counts) != maxNames {
		t.Errorf("%d names", len(counts))
	}
}

// What was counted is known for one window more, and no longer.
func TestCountsAreOfTheLastMinutes(t *testing.T) {
	var r Recent
	r.Add("a", Count{2, 10}, 0)
	r.Add("a", Count{1, 5}, window+time.Second)
	if counts, over := r.Counts(window + 2*time.Second); counts["a"] != (Count{3, 15}) ||
		over != window+2*time.Second {
		t.Errorf("%v over %v", counts, over)
	}
	if counts, _ := r.Counts(4 * window); len(counts) != 0 {
		t.Errorf("%v after a window without a request", counts)
	}
}
