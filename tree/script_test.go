package tree_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/script"
)

// TestScripts runs testdata/*.txt. A block of a script has commands, a line ----, the output of the commands,
// and an empty line. A line with # is a comment. All blocks of a script work on one tree. The commands are in
// scriptcmd_test.go. A line that starts with a space continues the command before it.
func TestScripts(t *testing.T) {
	script.Each(t, "testdata/*.txt", func(t *testing.T, file string) {
		s := newScene(t)
		script.Play(t, file, func(commands string) string {
			got := s.block(strings.Split(commands, "\n"))
			if err := s.tree.Verify(); err != nil {
				t.Fatalf("%s:\n%s\n%v", file, commands, err)
			}
			return got
		})
	})
}

// block() runs the commands of a block and returns what they print.
func (s *scene) block(lines []string) string {
	s.out.Reset()
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" || lines[i][0] == '#' {
			continue
		}
		var more [][]string
		for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], " "); i++ {
			more = append(more, words(lines[i+1]))
		}
		s.run(words(lines[i-len(more)]), more)
	}
	return s.out.String()
}

var wordRE = regexp.MustCompile(`(?:[^\s"]|"(?:[^"\\]|\\.)*")+`)

// words() splits a line at spaces outside of quotes, as Go writes quotes.
func words(line string) []string {
	list := wordRE.FindAllString(line, -1)
	for i, w := range list {
		if at := strings.IndexByte(w, '"'); at >= 0 {
			if q, err := strconv.Unquote(w[at:]); err == nil {
				list[i] = w[:at] + q
			}
		}
	}
	return list
}
