package test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Pages end lines after sentences and at 110 columns, so that a review shows which sentence has changed.
// Tables, examples and commands longer than a line stay as they are.
func TestPagesEndTheirLines(t *testing.T) {
	list := exec.Command("git", "ls-files", "*.md")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Skip("a copy of the sources without git: ", err)
	}
	command := regexp.MustCompile("`[^`]{60,}`")
	pages := strings.Fields(string(out))
	must.That(t, len(pages) > 20, "git names %d pages, want more than 20", len(pages))
	for _, page := range pages {
		example := false
		n := 0
		for line := range strings.Lines(string(must.Get(os.ReadFile("../" + page))(t))) {
			n++
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				example = !example
				continue
			}
			if example || strings.HasPrefix(line, "|") || command.MatchString(line) {
				continue
			}
			expect.That(t, utf8.RuneCountInString(line) <= 110, "%s:%d has %d columns, want 110 at most",
				page, n, utf8.RuneCountInString(line))
		}
	}
}
