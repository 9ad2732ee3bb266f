package reached

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Every place that `make sim` edits occurs exactly once in the source files of the servers.
func TestStatesHaveTheirPlaces(t *testing.T) {
	var names []string
	for _, s := range States {
		b := must.Get(os.ReadFile("../../../" + s.File))(t)
		expect.Equal(t, strings.Count(s.Place, "@"), 1, "marks in the place of %q", s.Name)
		place := strings.Replace(s.Place, "@", "", 1)
		expect.Equal(t, strings.Count(string(b), place), 1, "places of %q", s.Name)
		expect.That(t, !slices.Contains(names, s.Name), "two states have the name %q", s.Name)
		names = append(names, s.Name)
	}
	for line := range strings.Lines(string(must.Get(os.ReadFile("reached.txt"))(t))) {
		expect.That(t, slices.Contains(names, strings.TrimSpace(line)), "reached.txt has no state %q", line)
	}
	expect.That(t, len(States) <= len(counts), "%d states, and room for %d", len(States), len(counts))
}

func TestCountsTellWhatWasReached(t *testing.T) {
	At(1)
	At(1)
	got := Counts()
	if expect.Equal(t, len(got), 1, "counts: length of got %v", got) {
		expect.Equal(t, got[States[1].Name], 2, "counts")
	}
}
