// Ledger writes the table of simulated runs in docs/robustness.md from test/sim/ledger.jsonl, to which make sim
// and make farm append:
//
//	go run ./test/sim/ledger
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/zlockd/zlockd/test/sim/reached"
)

const (
	source = "test/sim/ledger.jsonl"
	page   = "docs/robustness.md"
	begin  = "<!-- ledger: go run ./test/sim/ledger writes this table -->\n"
	end    = "<!-- end of the ledger -->\n"
)

// commit sums up the runs of one commit.
type commit struct {
	Date              string
	Commit            string
	Seeds             int
	Hours             float64
	Answered, Unknown int
	Faults, Reached   map[string]int
	Found             []uint64
}

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

func write() error {
	lines, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("%w: run make sim or make farm first, and this at the top of the repository", err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, marked := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !marked || !ended {
		return fmt.Errorf("%s lacks the two comments that the table stands between", page)
	}
	made, err := table(lines)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(before+begin+made+end+after), 0o644)
}

// table has a row for each commit, in the order of their first runs.
func table(lines []byte) (string, error) {
	var list []*commit
	kinds, states := map[string]int{}, map[string]int{}
	for line := range bytes.Lines(lines) {
		var e commit
		if err := json.Unmarshal(line, &e); err != nil {
			return "", fmt.Errorf("%s: %w", source, err)
		}
		at := slices.IndexFunc(list, func(c *commit) bool { return c.Commit == e.Commit })
		if at < 0 {
			at = len(list)
			list = append(list, &commit{Commit: e.Commit, Faults: map[string]int{}})
		}
		c := list[at]
		c.Date, c.Seeds, c.Hours = e.Date, c.Seeds+e.Seeds, c.Hours+e.Hours
		c.Found = append(c.Found, e.Found...)
		c.Answered, c.Unknown = c.Answered+e.Answered, c.Unknown+e.Unknown
		for kind, n := range e.Faults {
			c.Faults[kind] += n
			kinds[kind] += n
		}
		for state, n := range e.Reached {
			states[state] += n
		}
	}
	var b strings.Builder
	b.WriteString("\n| last run | commit | seeds | simulated hours | requests judged | unknown | faults | " +
		"seeds that failed |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range list {
		faults := 0
		for _, n := range c.Faults {
			faults += n
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %.1f | %d | %.1f %% | %d | %s |\n", c.Date, c.Commit, c.Seeds,
			c.Hours, c.Answered, 100*float64(c.Unknown)/float64(max(1, c.Answered+c.Unknown)), faults,
			strings.Trim(fmt.Sprint(c.Found), "[]"))
	}
	b.WriteString("\nFaults that took effect:")
	for i, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&b, "%s %s %d", map[bool]string{true: ","}[i > 0], kind, kinds[kind])
	}
	b.WriteString(".\n\n")
	writeStates(&b, states)
	return b.String(), nil
}

// writeStates tells which rare states were reached.
func writeStates(b *strings.Builder, visits map[string]int) {
	seen := 0
	var never []string
	for _, s := range reached.States {
		if visits[s.Name] > 0 {
			seen++
		} else {
			never = append(never, s.Name)
		}
	}
	fmt.Fprintf(b, "%d of %d rare states were reached (`test/sim/reached`)", seen, len(reached.States))
	if len(never) > 0 {
		fmt.Fprintf(b, "; not yet: %s", strings.Join(never, "; "))
	}
	b.WriteString(".\n\n")
}
