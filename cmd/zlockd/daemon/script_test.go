package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/cmd/zlockd/internal/settings"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/golden"
	"github.com/zlockd/zlockd/test/must"
)

// zlockd answers as the files testdata/*.txt say. A line "> ARGS" is a command, followed by its answer: lines
// of stdout ("out: ") and stderr ("err: "), and the exit code ("exit N"). The files that the commands read
// are at the end, each after a line "-- name --". $DIR is their directory.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	must.OK(t, err)
	must.That(t, len(scripts) != 0, "no scripts %v", err)
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
	compareScript(t, file, script, files, func(args string) string {
		return runZlockd(t, dir, strings.Fields(strings.ReplaceAll(args, "$DIR", dir)))
	})
}

// compareScript runs the commands of a script and compares their answers with the script. `files` is the end
// of the script's file, with the files that the commands read.
func compareScript(t *testing.T, file, script, files string, run func(args string) string) {
	t.Helper()
	var got strings.Builder
	for line := range strings.Lines(script) {
		args, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case isCommand:
			got.WriteString(line)
			got.WriteString(run(args))
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
	hide := func(text string) string { return strings.ReplaceAll(text, dir, "$DIR") }
	return transcript(hide(stdout.String()), hide(stderr.String())) + code
}

// transcript() returns the output of a command in the form of a script.
func transcript(stdout, stderr string) string {
	var b strings.Builder
	for _, stream := range []struct{ name, text string }{{"out: ", stdout}, {"err: ", stderr}} {
		for line := range strings.Lines(stream.text) {
			b.WriteString(stream.name + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	return b.String()
}

// runMain runs zlockd's command line in this process.
func runMain(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := (&daemon{stdout: &out, stderr: &errs}).program().Main(args)
	expect.Equal(t, code, exitOK, "%v: exit code", args)
	expect.That(t, errs.Len() <= 0, "%v: %d %s", args, code, &errs)
	return out.String()
}

// docs/reference/flags.md lists exactly the flags of the program.
func TestDocumentationHasTheFlags(t *testing.T) {
	p, table := new(daemon).program(), "| flag | what it does |\n|---|---|\n"
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	for _, g := range p.Groups() {
		for _, l := range p.FlagList(g.Flags) {
			table += fmt.Sprintf("| `%s` | %s |\n", cell(l.Word), cell(l.Means))
		}
	}
	golden.Table(t, "../../../docs/reference/flags.md",
		"go test ./cmd/zlockd/daemon -run Documentation -update-docs",
		table)
	for flag := range settings.Details {
		expect.Has(t, table, "--"+flag, "details of the unknown flag %s", flag)
	}
}

func TestManualPages(t *testing.T) {
	for _, page := range []string{"zlockd.8", "zlockd.conf.5"} {
		golden.Manual(t, page, runMain(t, "manual", page))
	}
}

// The shell gets flags, values and commands. The exit code tells the shell to complete names of files.
func TestCompletion(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"im", "import"}, {"--peer-tls-k", "--peer-tls-key"}, {"--log-format j", "json"},
		{"--log-format = j", "json"}, {"check --data-d", "--data-dir"}, {"verify --eph", "--ephemerals"},
		{"completion z", "zsh"}, {"--dev im", ""},
	} {
		out := runMain(t, append([]string{"__complete"}, strings.Fields(c.words)...)...)
		word, _, _ := strings.Cut(out, "\t")
		expect.Equal(t, word, c.want, "%s: word", c.words)
		expect.That(t, strings.Count(out, "\n") <= 1, "%s: %q, want %q", c.words, out, c.want)
	}
	for _, words := range [][]string{{"--config", ""}, {"verify", ""}, {"restore", "--data-dir", "x"}} {
		var out bytes.Buffer
		d := &daemon{stdout: &out, stderr: &out}
		code := d.program().Main(append([]string{"__complete"}, words...))
		expect.That(t, code != exitOK, "%q does not ask for the name of a file, but is completed", words)
		expect.Equal(t, out.String(), "", "%q: completion", words)
	}
}
