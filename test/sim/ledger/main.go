// Ledger writes the tables of simulated runs and of their findings in docs/robustness.md. It reads
// test/sim/ledger.jsonl, to which make sim and make farm append, and test/sim/findings.jsonl, to which an
// engineer adds a line for each seed that failed:
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
	found  = "test/sim/findings.jsonl"
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
	Ways              map[int]int
	Profile           string
	Longest           struct{ Session, Server, Watch float64 } // hours
}

// profiles are the kinds of runs that the ledger has, with the text of the page about each kind.
var profiles = []struct{ name, about string }{
	{"", "Busy minutes: each seed is some six minutes with all clients at work and a fault every few seconds."},
	{"long", "Long days: each seed is six to 24 hours with clients that rest for minutes, groups of faults " +
		"with quiet times between them, and nights."},
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
	told, err := os.ReadFile(found)
	if err != nil {
		return err
	}
	findings, err := findings(told)
	if err != nil {
		return err
	}
	made += findings + "\n"
	return os.WriteFile(page, []byte(before+begin+made+end+after), 0o644)
}

// table() returns the table, with a part for each profile.
func table(lines []byte) (string, error) {
	states := map[string]int{}
	var b strings.Builder
	for _, p := range profiles {
		made, err := part(lines, p.name, states)
		if err != nil {
			return "", err
		}
		if made != "" {
			b.WriteString("\n" + wrap(p.about) + made)
		}
	}
	b.WriteString("\n" + wrap(told(states)))
	return b.String(), nil
}

// part() returns the part of one profile. The part has a row for each commit, in the order of the commits'
// first runs. The function counts in `states` the rare states that these runs reached.
func part(lines []byte, profile string, states map[string]int) (string, error) {
	var list []*commit
	kinds := map[string]int{}
	var longest commit
	for line := range bytes.Lines(lines) {
		var e commit
		if err := json.Unmarshal(line, &e); err != nil {
			return "", fmt.Errorf("%s: %w", source, err)
		}
		if e.Profile != profile {
			continue
		}
		at := slices.IndexFunc(list, func(c *commit) bool { return c.Commit == e.Commit })
		if at < 0 {
			at = len(list)
			list = append(list, &commit{Commit: e.Commit, Faults: map[string]int{}, Ways: map[int]int{}})
		}
		c := list[at]
		c.Date, c.Seeds, c.Hours = e.Date, c.Seeds+e.Seeds, c.Hours+e.Hours
		c.Found = append(c.Found, e.Found...)
		for ways, n := range e.Ways {
			c.Ways[ways] += n
		}
		c.Answered, c.Unknown = c.Answered+e.Answered, c.Unknown+e.Unknown
		longest.Longest.Session = max(longest.Longest.Session, e.Longest.Session)
		longest.Longest.Server = max(longest.Longest.Server, e.Longest.Server)
		longest.Longest.Watch = max(longest.Longest.Watch, e.Longest.Watch)
		for kind, n := range e.Faults {
			c.Faults[kind] += n
			kinds[kind] += n
		}
		for state, n := range e.Reached {
			states[state] += n
		}
	}
	if len(list) == 0 {
		return "", nil
	}
	var b strings.Builder
	b.WriteString("\n| last run | commit | seeds | simulated hours | ways 0, 1, 2, 3 | requests judged | " +
		"unknown | faults | seeds that failed |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range list {
		faults := 0
		for _, n := range c.Faults {
			faults += n
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %.1f | %s | %d | %.1f %% | %d | %s |\n", c.Date, c.Commit,
			c.Seeds, c.Hours, waysOf(c.Ways), c.Answered,
			100*float64(c.Unknown)/float64(max(1, c.Answered+c.Unknown)), faults,
			strings.Trim(fmt.Sprint(c.Found), "[]"))
	}
	var each []string
	all, hours, seeds := 0, 0.0, 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		all += kinds[kind]
		each = append(each, fmt.Sprint(kind, " ", kinds[kind]))
	}
	for _, c := range list {
		hours, seeds = hours+c.Hours, seeds+c.Seeds
	}
	b.WriteString("\n" + wrap(fmt.Sprintf("In %.0f simulated hours of %d seeds %d faults took effect: %s.", hours,
		seeds, all, strings.Join(each, ", "))))
	if l := longest.Longest; l.Server > 0 {
		b.WriteString(wrap(fmt.Sprintf("The longest session lived %.1f hours, the longest life of a server took "+
			"%.1f, and the longest wait of a watch %.1f.", l.Session, l.Server, l.Watch)))
	}
	return b.String(), nil
}

// waysOf() tells how many seeds chose goroutines in each way. Older lines of the ledger do not tell it.
func waysOf(seeds map[int]int) string {
	if len(seeds) == 0 {
		return "not noted"
	}
	return fmt.Sprintf("%d, %d, %d, %d", seeds[0], seeds[1], seeds[2], seeds[3])
}

// wrap() breaks a text into lines of at most 110 bytes.
func wrap(text string) string {
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case at == 0:
		case at+1+len(word) > 110:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String() + "\n"
}

// told() says which rare states were reached.
func told(visits map[string]int) string {
	seen := 0
	var never []string
	for _, s := range reached.States {
		if visits[s.Name] > 0 {
			seen++
		} else {
			never = append(never, s.Name)
		}
	}
	text := fmt.Sprintf("%d of %d rare states were reached (`test/sim/reached`)", seen, len(reached.States))
	if len(never) > 0 {
		text += "; not yet: " + strings.Join(never, "; ")
	}
	return text + "."
}
