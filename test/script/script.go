// Package script runs tests that are written as texts. A script consists of blocks. A block has commands, a
// line ----, the text that the commands print, and an empty line. Lines with # are comments.
package script

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// Run runs each block of the files that match the pattern. The function block() gets the words of each
// command, and returns what the block prints.
func Run(t *testing.T, pattern string, block func(t *testing.T, commands [][]string) string) {
	files := must.Get(filepath.Glob(pattern))(t)
	must.That(t, len(files) > 0, "no scripts match %s", pattern)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { run(t, file, block) })
	}
}

func run(t *testing.T, file string, block func(*testing.T, [][]string) string) {
	text := string(must.Get(os.ReadFile(file))(t))
	var out []string
	for part := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		head, want, _ := strings.Cut(part+"\n", "\n----\n")
		var commands [][]string
		for line := range strings.Lines(head) {
			if words := strings.Fields(line); len(words) > 0 && line[0] != '#' {
				commands = append(commands, words)
			}
		}
		if len(commands) == 0 { // only comments
			out = append(out, part)
			continue
		}
		got := block(t, commands)
		if got != want && !*update {
			t.Errorf("%s:\n%s\nprints\n%s\nwant\n%s", file, head, got, want)
		}
		out = append(out, strings.TrimRight(head, "\n")+"\n----\n"+strings.TrimRight(got, "\n"))
	}
	if *update {
		must.OK(t, os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644))
	}
}
