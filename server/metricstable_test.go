package server

import (
	flags "flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

var updateDocs = flags.Bool("update-docs", false,
	"write the tables that docs/reference/metrics.md takes from the code")

const (
	tableBegin = "<!-- from the code: go test ./server -run EveryMetric -update-docs -->\n"
	tableEnd   = "<!-- end -->\n"
)

// checkMetricsTable compares the table of our own metrics in docs/reference/metrics.md
// with the help texts of the pages.
func checkMetricsTable(t *testing.T, pages []string) {
	t.Helper()
	rows := map[string]string{}
	for _, text := range pages {
		for _, m := range regexp.MustCompile(`(?m)^# HELP (zlockd_\w+) (.*)$`).FindAllStringSubmatch(text, -1) {
			name, labels := m[1], ""
			if l := regexp.MustCompile(`(?m)^` + name + `(?:_sum)?\{(.*?)\} `).FindStringSubmatch(text); l != nil {
				names := regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`).ReplaceAllString(l[1], "$1")
				labels = "{" + names + "}"
			}
			rows[name] = fmt.Sprintf("| `%s%s` | %s |\n", name, labels, m[2])
		}
	}
	var table strings.Builder
	table.WriteString("| metric | |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		table.WriteString(rows[name])
	}
	const file = "../docs/reference/metrics.md"
	page := must.Get(os.ReadFile(file))(t)
	before, rest, found := strings.Cut(string(page), tableBegin)
	old, after, closed := strings.Cut(rest, tableEnd)
	must.That(t, found && closed, "%s has no table between %q and %q", file, tableBegin, tableEnd)
	if old == table.String() {
		return
	}
	if *updateDocs {
		must.OK(t, os.WriteFile(file, []byte(before+tableBegin+table.String()+tableEnd+after), 0o644))
		return
	}
	t.Errorf("the metrics in %s are not those of the code; run the command above the table. Want:\n%s", file,
		table.String())
}
