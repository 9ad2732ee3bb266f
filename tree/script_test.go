package tree_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// TestScripts runs testdata/*.txt. A block of a script has commands, a line ----, the output of the commands,
// and an empty line. A line with # is a comment. All blocks of a script work on one tree. The commands are in
// scriptcmd_test.go. A line that starts with a space continues the command before it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	must.OK(t, err, "no scripts %v", err)
	must.That(t, len(files) != 0, "no scripts %v: want len(files) != 0", err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	text := must.Get(os.ReadFile(file))(t)
	s := newScript(t)
	var out bytes.Buffer
	for block := range strings.SplitSeq(strings.TrimRight(string(text), "\n"), "\n\n") {
		commands, want, found := strings.Cut(block+"\n", "\n----\n")
		out.WriteString(strings.TrimRight(commands, "\n") + "\n")
		if !found && !hasCommand(commands) {
			out.WriteString("\n")
			continue
		}
		got := s.block(strings.Split(commands, "\n"))
		if got != want && !*update {
			t.Errorf("%s:\n%s\nprints\n%s\nwant\n%s", file, commands, got, want)
		}
		out.WriteString("----\n" + got + "\n")
		if err := s.tree.Verify(); err != nil {
			t.Fatalf("%s:\n%s\n%v", file, commands, err)
		}
	}
	if *update {
		must.OK(t, os.WriteFile(file, append(bytes.TrimRight(out.Bytes(), "\n"), '\n'), 0o644))
	}
}

func hasCommand(block string) bool {
	for line := range strings.Lines(block) {
		if strings.TrimSpace(line) != "" && line[0] != '#' {
			return true
		}
	}
	return false
}

// block() runs the commands of a block and returns what they print.
func (s *script) block(lines []string) string {
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
