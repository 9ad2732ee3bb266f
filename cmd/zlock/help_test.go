package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/zlockd/zlockd/test/expect"
)

// TestHelpIsInColumns: what the options do begins in one column, and no line ends in
// a space.
func TestHelpIsInColumns(t *testing.T) {
	for _, c := range new(app).program().Commands {
		var out strings.Builder
		(&app{stdout: &out, stderr: &out}).main([]string{c.Name, "--help"})
		_, options, _ := strings.Cut(out.String(), "\nOptions:\n")
		column := 0
		for line := range strings.Lines(options) {
			line = strings.TrimRight(line, "\n")
			if text := strings.TrimLeft(line, " "); strings.HasPrefix(text, "-") &&
				len(line)-len(text) <= len("  -h, ") {
				gap := strings.Index(text, "   ")
				if gap < 0 {
					t.Errorf("%s: %q", c.Name, line)
					continue
				}
				at := utf8.RuneCountInString(line[:len(line)-len(strings.TrimLeft(text[gap:], " "))])
				if column == 0 {
					column = at
				}
				expect.Equal(t, at, column, "%s: column %d in place of %d: %q", c.Name, at, column, line)
			}
		}
		for line := range strings.Lines(out.String()) {
			expect.That(t, !strings.HasSuffix(line, " \n"), "%s: a space ends %q", c.Name, line)
		}
	}
}
