// Package script runs tests that are written as texts. A script consists of blocks. A block has commands, a
// line ----, the text that the commands print, and an empty line. Lines with # are comments.
package script

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// Run plays the files that match the pattern. The function block() gets the words of each command of a block,
// and returns what the block prints.
func Run(t *testing.T, pattern string, block func(t *testing.T, commands [][]string) string) {
	Each(t, pattern, func(t *testing.T, file string) {
		Play(t, file, func(commands string) string {
			var list [][]string
			for line := range strings.Lines(commands) {
				if isCommand(line) {
					list = append(list, strings.Fields(line))
				}
			}
			return block(t, list)
		})
	})
}

// Each calls play() for each file that matches the pattern, in a test with the file's name. Use it in place of
// Run if the blocks of a file belong together: make what they share, and call Play.
func Each(t *testing.T, pattern string, play func(t *testing.T, file string)) {
	files := must.Get(filepath.Glob(pattern))(t)
	must.That(t, len(files) > 0, "no scripts match %s", pattern)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file) })
	}
}

// Play runs the blocks of a file one after the other. The function block() gets the lines of a block above
// ----, comments among them, and returns what the block prints.
func Play(t *testing.T, file string, block func(commands string) string) {
	text := string(must.Get(os.ReadFile(file))(t))
	var out []string
	for part := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		head, want, found := strings.Cut(part+"\n", "\n----\n")
		head = strings.TrimRight(head, "\n")
		if !found && !slices.ContainsFunc(strings.Split(head, "\n"), isCommand) { // only comments
			out = append(out, part)
			continue
		}
		got := block(head)
		if got != want && !*update {
			t.Errorf("%s:\n%s\nprints\n%s\nwant\n%s", file, head, got, want)
		}
		out = append(out, head+"\n----\n"+strings.TrimRight(got, "\n"))
	}
	if *update {
		must.OK(t, os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644))
	}
}

func isCommand(line string) bool { return strings.TrimSpace(line) != "" && line[0] != '#' }
