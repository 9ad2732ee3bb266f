//go:build exact

package sim

import (
	"cmp"
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

var shrinkFlag = flag.Int("sim.shrink", 0, "how many runs may be made to cut a failing seed to the faults "+
	"and requests that matter; 0: none")

// TestShrinkAFailure reduces a failing run to a few faults and requests with which it still fails in the same
// way. If any of these is left out, too, the run passes, unless the limit of runs ended the search.
func TestShrinkAFailure(t *testing.T) {
	if *shrinkFlag == 0 || *aloneFlag {
		t.Skip("it takes minutes: make sim-shrink SEED=...")
	}
	s := &shrinking{campaign: &campaign{t: t, test: "TestSimHistoriesG1ToG22"},
		known: map[string]bool{}}
	r, text, ok := s.child(s.command(*seedFlag))
	must.That(t, !ok, "seed %d passes", *seedFlag)
	s.sign = signOf(text)
	if len(r.Drawn) == 0 { // the run ended before its report; assume more faults than any run draws
		many := 1
		if *longFlag {
			many = 20
		}
		r.Drawn = map[string]int{"f": 150 * many}
		for k := range 6 {
			r.Drawn[fmt.Sprint(k)] = 4000 * many
		}
		for k := range turnCallers + turnLockers + turnDrawers {
			r.Drawn[fmt.Sprintf("t%d", k)] = 1000 * many
		}
	}
	faults, requests := itemsOf(r)
	whole := slices.Concat(faults, requests)
	t.Logf("seed %d fails with %q, with %d faults and %d requests", *seedFlag, s.sign, len(faults),
		len(requests))
	for before := 0; before != len(faults)+len(requests); {
		before = len(faults) + len(requests)
		faults = s.cut(faults, func(list []item) []item { return slices.Concat(list, requests) })
		requests = s.cut(requests, func(list []item) []item { return slices.Concat(faults, list) })
		if s.runs >= *shrinkFlag {
			break
		}
	}
	few := selected(slices.Concat(faults, requests))
	_, text, ok = s.child(s.with(few))
	must.That(t, !ok, "what is left does not fail again")
	must.Equal(t, signOf(text), s.sign, "sign of")
	t.Logf("%d of %d faults and %d of %d requests are left after %d runs: -sim.only %q\n%s", len(faults),
		r.Drawn["f"], len(requests), len(whole)-r.Drawn["f"], s.runs, few, text)
}

// itemsOf lists the faults and requests of a run. Requests that are made at about the same time are
// neighbors.
func itemsOf(r report) (faults, requests []item) {
	for group, n := range r.Drawn {
		for number := range n {
			if i := (item{group, number}); group == "f" {
				faults = append(faults, i)
			} else {
				requests = append(requests, i)
			}
		}
	}
	slices.SortFunc(requests, func(a, b item) int {
		return cmp.Or(cmp.Compare(float64(a.number)/float64(r.Drawn[a.group]),
			float64(b.number)/float64(r.Drawn[b.group])), strings.Compare(a.group, b.group))
	})
	return faults, requests
}

var signs = regexp.MustCompile(`(?m)\b[GRK]\d+: |^panic: .*|calls \S+ \d+ times within a second$`)
var digits = regexp.MustCompile(`\d+`)

// signOf returns how a run fails: the first broken guarantee, or the panic.
func signOf(text string) string {
	sign := signs.FindString(text)
	if strings.HasPrefix(sign, "calls") {
		return "calls"
	}
	if strings.HasPrefix(sign, "panic") {
		return digits.ReplaceAllString(sign, "")
	}
	return sign
}

// shrinking is the search that reduces the run of one seed.
type shrinking struct {
	*campaign
	sign string
	runs int

	mu    sync.Mutex
	known map[string]bool // whether the run of a selection failed, by selection
}

// fails() reports whether a run fails. It makes the run unless the result is known.
func (s *shrinking) fails(only string) bool {
	s.mu.Lock()
	fails, known := s.known[only]
	s.mu.Unlock()
	if known {
		return fails
	}
	_, text, ok := s.child(s.with(only))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.known[only] = !ok && signOf(text) == s.sign
	return s.known[only]
}

// with() returns the command of the run with the selected faults and requests.
func (s *shrinking) with(only string) []string {
	return append(s.command(*seedFlag), "-sim.only", only)
}

// cut() removes parts from the list while the run still fails: first halves, then smaller and smaller parts,
// and in the end single items. It makes as many runs in parallel as there are processors.
func (s *shrinking) cut(list []item, whole func([]item) []item) []item {
	without := func(from, size int) []item {
		return slices.Concat(list[:from], list[min(from+size, len(list)):])
	}
	for size := len(list); size > 0; size /= 2 {
		for from := 0; from < len(list) && s.runs < *shrinkFlag; {
			var starts []int
			for k := from; k < len(list) && len(starts) < runtime.NumCPU(); k += size {
				starts = append(starts, k)
			}
			fails := make([]bool, len(starts))
			var wg sync.WaitGroup
			for i, k := range starts {
				wg.Go(func() { fails[i] = s.fails(selected(whole(without(k, size)))) })
			}
			wg.Wait()
			if i := slices.Index(fails, true); i >= 0 {
				list, from = without(starts[i], size), starts[i]
				s.t.Logf("%d are left after %d runs", len(list), s.runs)
			} else {
				from = starts[len(starts)-1] + size
			}
		}
	}
	return list
}
