package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// TestScripts runs zlockd as the files of testdata/*.txt say. A line "> ARGS"
// is a command; the lines after it are what it must answer: "out: " and
// "err: " lines of stdout and stderr, "exit N" the exit code. Files that a
// command reads follow at the end, each behind a line "-- name --"; $DIR is
// the directory they are in.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	must.That(t, err == nil && len(scripts) != 0, "no scripts %v", err)
	for _, file := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	text := must.Get(os.ReadFile(file))(t)
	dir := t.TempDir()
	script, files, hasFiles := strings.Cut(string(text), "\n-- ")
	if hasFiles {
		script += "\n"
		for section := range strings.SplitSeq(files, "\n-- ") {
			name, body, _ := strings.Cut(section, " --")
			body = strings.TrimPrefix(body, "\n")
			name = filepath.Join(dir, name)
			must.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
			must.OK(t, os.WriteFile(name, []byte(strings.ReplaceAll(body, "$DIR", dir)), 0o600))
		}
		files = "-- " + files
	}
	var got strings.Builder
	for line := range strings.Lines(script) {
		args, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case isCommand:
			got.WriteString(line)
			got.WriteString(runZlockd(t, dir, strings.Fields(strings.ReplaceAll(args, "$DIR", dir))))
		case line == "\n" || strings.HasPrefix(line, "#"):
			got.WriteString(line)
		}
	}
	if got.String() == script {
		return
	}
	if *update {
		must.OK(t, os.WriteFile(file, []byte(got.String()+files), 0o644))
		return
	}
	t.Errorf("got:\n%s\nwant:\n%s", got.String(), script)
}

// runZlockd runs one command and returns its transcript.
func runZlockd(t *testing.T, dir string, args []string) string {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TEST_ZLOCKD_MAIN=1")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	code := "exit 0\n"
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		must.That(t, errors.As(err, &exit), "%v", err)
		code = strings.Replace(exit.String(), "exit status", "exit", 1) + "\n"
	}
	var b strings.Builder
	for _, stream := range []struct{ name, text string }{{"out: ", stdout.String()},
		{"err: ", stderr.String()}} {
		for line := range strings.Lines(strings.ReplaceAll(stream.text, dir, "$DIR")) {
			b.WriteString(stream.name + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	return b.String() + code
}
