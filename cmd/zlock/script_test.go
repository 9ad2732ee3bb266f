package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// `built` holds the binary that the tests run, and a server for it.
var built struct {
	dir     string // the directory that contains zlock
	servers string
	err     error
}

// TestMain builds the command and starts a server: zlockd, unless ZLOCK_TEST_TARGET says zookeeper.
func TestMain(m *testing.M) {
	// If a script starts the tests in the background, the tests ignore SIGINT, and so would zlock. Receive the
	// signal to undo that.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	code := 1
	func() {
		dir, err := os.MkdirTemp("", "zlock-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		defer os.RemoveAll(dir)
		built.dir = dir
		stop, err := leash()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		defer stop()
		if err := cluster.LinkZlock(filepath.Join(dir, "zlock")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		o := cluster.Options{Kind: cluster.Zlockd, Dev: true,
			Flags: []string{"--tick-time", "200ms", "--min-session-timeout", "400ms", "--max-session-timeout", "40s"}}
		if os.Getenv("ZLOCK_TEST_TARGET") == "zookeeper" {
			o = cluster.Options{Kind: cluster.ZooKeeper, Config: []string{"tickTime=200", "minSessionTimeout=400",
				"maxSessionTimeout=40000", "4lw.commands.whitelist=srvr"}}
		}
		o.Nodes = 1
		e, err := cluster.Start(o)
		if err != nil {
			built.err = err
		} else {
			defer e.Close()
			built.servers = e.Addrs()
		}
		code = m.Run()
		if left := leftovers(5 * time.Second); len(left) > 0 && code == 0 {
			fmt.Fprintf(os.Stderr, "these outlive the tests:\n%s\n", strings.Join(left, "\n"))
			code = 1
		}
	}()
	os.Exit(code)
}

// server() returns the address of the server.
func server(t testing.TB) string {
	t.Helper()
	must.OK(t, built.err)
	return built.servers
}

var chroots atomic.Int64

// scriptEnv is the environment of a script: a chroot of its own, and zlock in PATH.
func scriptEnv(t testing.TB) []string {
	env := []string{
		leashed + "=" + os.Getenv(leashed), "PATH=" + built.dir + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"TZ=UTC", "LC_ALL=C", "NO_COLOR=1",
		"ZLOCK_SERVERS=" + server(t), fmt.Sprintf("ZLOCK_CHROOT=/%s-%d", strings.NewReplacer("/", "_", " ",
			"_").Replace(t.Name()), chroots.Add(1)),
	}
	return env
}

// step is a command of a script, with its expected output and exit code.
type step struct {
	line    int
	command string
	out     []string
	err     []string
	code    int
}

// parseScript reads the steps of a script. A step is "$ command" (continued by "> "), then lines of standard
// output, then "! " and a line of standard error, then "? N" for an exit code other than 0. In expected lines
// … stands for any text, and a line … for any lines.
func parseScript(name, text string) (steps []step, err error) {
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: line[2:]})
			continue
		case strings.HasPrefix(line, "#") || len(steps) == 0 || line == "":
			continue
		}
		s := &steps[len(steps)-1]
		switch {
		case strings.HasPrefix(line, "> "):
			s.command += "\n" + line[2:]
		case strings.HasPrefix(line, "! "):
			s.err = append(s.err, line[2:])
		case strings.HasPrefix(line, "? "):
			if _, err := fmt.Sscan(line[2:], &s.code); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
			}
		default:
			s.out = append(s.out, line)
		}
	}
	return steps, nil
}

// matches() compares output with expected lines. Empty lines do not count.
func matches(want []string, got string) bool {
	var pattern strings.Builder
	pattern.WriteString(`^`)
	for _, w := range want {
		if w == "…" {
			pattern.WriteString(`(?:[^\n]*\n)*`)
			continue
		}
		for i, part := range strings.Split(w, "…") {
			if i > 0 {
				pattern.WriteString(`[^\n]*`)
			}
			pattern.WriteString(regexp.QuoteMeta(part))
		}
		pattern.WriteString(`\n`)
	}
	pattern.WriteString(`$`)
	got = regexp.MustCompile(`\n+`).ReplaceAllString("\n"+got+"\n", "\n")[1:]
	return regexp.MustCompile(pattern.String()).MatchString(got)
}

// runScript runs the steps of a script in one directory.
func runScript(t *testing.T, name, text string) {
	steps := must.Get(parseScript(name, text))(t)
	must.That(t, len(steps) != 0, "%s has no command", name)
	dir, env := t.TempDir(), scriptEnv(t)
	for _, s := range steps {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, "bash", "-c", s.command)
		cmd.Dir, cmd.Env = dir, env
		cmd.WaitDelay = time.Second // a process that the script leaves may keep its output open
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		cancel()
		code := 0
		var e *exec.ExitError
		if errors.As(err, &e) {
			code = e.ExitCode()
		} else if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			t.Fatalf("%s:%d: %v", name, s.line, err)
		}
		expect.Equal(t, code, s.code, "%s:%d: exit code", name, s.line)
		expect.That(t, matches(s.out, out.String()),
			"%s:%d: $ %s\nexit code %d, want %d\nstdout:\n%swant:\n%s\nstderr:\n%swant:\n%s", name, s.line, s.command,
			code, s.code, out.String(), strings.Join(s.out, "\n"), errs.String(), strings.Join(s.err, "\n"))
		expect.That(t, matches(s.err, errs.String()),
			"%s:%d: $ %s\nexit code %d, want %d\nstdout:\n%swant:\n%s\nstderr:\n%swant:\n%s", name, s.line, s.command,
			code, s.code, out.String(), strings.Join(s.out, "\n"), errs.String(), strings.Join(s.err, "\n"))
	}
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	must.OK(t, err)
	must.That(t, len(files) != 0, "no scripts %v", err)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			t.Parallel()
			b := must.Get(os.ReadFile(f))(t)
			runScript(t, f, string(b))
		})
	}
}

// The examples of the documentation are scripts too.
func TestDocumentedExamplesWork(t *testing.T) {
	const doc = "../../docs/zlock.md"
	b := must.Get(os.ReadFile(doc))(t)
	// Replace the rest of the page by empty lines, so that line numbers stay.
	inside := false
	lines := strings.Split(string(b), "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
			lines[i] = ""
		case !inside:
			lines[i] = ""
		}
	}
	runScript(t, doc, strings.Join(lines, "\n"))
}

// The README's lock examples and the Go program of its first minutes work as written: the program in a module
// of its own, the lines in a shell.
func TestReadmeExamplesWork(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module of its own: make test-all")
	}
	t.Parallel()
	b := must.Get(os.ReadFile("../../README.md"))(t)
	_, text, _ := strings.Cut(string(b), "\n## Install\n")
	first := regexp.MustCompile("(?s)```sh\nzlockd --dev & sleep 1\n(.*?)```").FindStringSubmatch(text)
	must.That(t, first != nil, "the README has no lines that take a lock in a shell")
	_, text, _ = strings.Cut(text, "\n## Lock something\n")
	text, _, _ = strings.Cut(text, "\n## ")
	lines := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1)
	minutes := must.Get(os.ReadFile("../../docs/first-minutes.md"))(t)
	_, program, _ := strings.Cut(string(minutes), "\n## Go\n")
	found := regexp.MustCompile("(?s)```(go|sh)\n(.*?)```").FindAllStringSubmatch(program, -1)
	must.Equal(t, len(lines), 1, "number of lines %v", lines)
	must.Equal(t, len(found), 2, "length of %v", found)
	must.Equal(t, found[0][1], "go", "found")
	// As first-minutes.md says, zlockd and the user's module are beside each other in one directory.
	dir := t.TempDir()
	root := must.Get(filepath.Abs("../.."))(t)
	must.OK(t, os.Symlink(root, filepath.Join(dir, "zlockd")))
	module := filepath.Join(dir, "nightly")
	must.OK(t, os.MkdirAll(filepath.Join(module, "bin"), 0o700))
	must.OK(t, os.Symlink(filepath.Join(built.dir, "zlock"), filepath.Join(module, "bin", "zlock")))
	program = strings.ReplaceAll(found[0][2], "127.0.0.1:2181", server(t))
	must.OK(t, os.WriteFile(filepath.Join(module, "main.go"), []byte(program), 0o600))
	// The checksums of the modules are known, so the build does not need the network for them.
	if sums, err := os.ReadFile(filepath.Join(root, "go.sum")); err == nil {
		must.OK(t, os.WriteFile(filepath.Join(module, "go.sum"), sums, 0o600))
	}
	sh := func(script, want string) error {
		t.Helper()
		cmd := exec.Command("bash", "-ec", script)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "PATH="+built.dir+":"+os.Getenv("PATH"), "GOWORK=off", "NO_COLOR=1",
			"ZLOCK_SERVERS="+server(t))
		out, err := cmd.CombinedOutput()
		if err == nil && !regexp.MustCompile(want).Match(out) {
			err = errors.New("it says something else")
		}
		if err != nil {
			return fmt.Errorf("%s%w\n%s", script, err, out)
		}
		return nil
	}
	// Each program has a second to start while the next lines run. On a busy machine it may start later, so the
	// test tries again. The waiting program may name the holder before or after the lines of zlock show.
	again := func(script, want string) {
		t.Helper()
		err := sh(script, want)
		for try := 1; err != nil && try < 5; try++ {
			t.Log(err)
			err = sh(script, want)
		}
		expect.OK(t, err)
	}
	again(first[1], `(?s)(^|\n)PATH +/jobs/nightly .*\n\* +W .*\n1 +W .*next\n$`)
	expect.OK(t, sh(found[1][2], `(?m)^the lock is ours; token \S+\nelected$`))
	again(lines[0][1], `(?s)(^|\n)PATH +/jobs/nightly .*\n\* +W .*\nexit code 124: it is held\n.*my turn\n$`)
}
