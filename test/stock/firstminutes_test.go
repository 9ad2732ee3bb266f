//go:build stock

package stock

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/bench/measure"
	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

var writeFirst = flag.Bool("first.write", false, "write the measured times into docs/first-minutes.md")

const firstPage = "../../docs/first-minutes.md"

// firstSection is one section of docs/first-minutes.md: it shows a program, and the shell commands that run
// it.
type firstSection struct {
	title, language, file string
	needs                 []string // the section is skipped if one of these is missing
	dir                   string   // the directory in which the test ran the section
}

// TestFirstMinutes does what docs/first-minutes.md says: it builds a clone without a build cache, runs the
// server and takes the lock in a shell, and runs each client's program. Only the addresses differ from the
// page.
func TestFirstMinutes(t *testing.T) {
	page := string(must.Get(os.ReadFile(firstPage))(t))
	times := [][2]string{{"shell: make build with an empty build cache, the server, lock, election", ""}}
	t.Run("shell", func(t *testing.T) { times[0][1] = firstShell(t, page) })
	for _, s := range []*firstSection{
		{title: "Python", language: "python", file: "first.py", needs: []string{"python3"}},
		{title: "Java", language: "java", file: "First.java",
			needs: []string{"javac", "/usr/share/java/curator-recipes.jar"}},
		{title: "Node", language: "js", file: "first.mjs", needs: []string{"node", "npm"}},
		{title: "C", language: "c", file: "first.c",
			needs: []string{"gcc", "/usr/include/zookeeper/zookeeper.h"}},
		{title: "Go", language: "go", file: "main.go"},
	} {
		t.Run(s.title, func(t *testing.T) {
			need(t, s.needs...)
			times = append(times, [2]string{s.title, s.follow(t, page)})
		})
	}
	if !*writeFirst || t.Failed() {
		return
	}
	table := fmt.Sprintf("Written on %s, %s, by this run:\n\n"+
		"| in | seconds to the end of the lines |\n|---|---|\n",
		time.Now().UTC().Format(time.DateOnly), measure.Machine())
	for _, row := range times {
		table += fmt.Sprintf("| %s | %s |\n", row[0], row[1])
	}
	before, rest, _ := strings.Cut(page, "<!-- times -->\n")
	_, behind, found := strings.Cut(rest, "<!-- end of times -->\n")
	must.That(t, found, "%s has no marks around the times", firstPage)
	must.OK(t, os.WriteFile(firstPage,
		[]byte(before+"<!-- times -->\n"+table+"<!-- end of times -->\n"+behind), 0o600))
}

// firstBlock returns the first code block in this language in the section with this title.
func firstBlock(t *testing.T, page, title, language string) string {
	t.Helper()
	_, text, _ := strings.Cut(page, "\n## "+title+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(text)
	must.That(t, m != nil, "%s: no block of %s below %q", firstPage, language, title)
	return m[1]
}

// firstRun runs shell commands, and returns their output.
func firstRun(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-ec", script)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), env...), time.Second
	out, err := cmd.CombinedOutput()
	must.OK(t, err, "%s\n%s", script, out)
	return string(out)
}

func seconds(began time.Time) string { return fmt.Sprintf("%.1f", time.Since(began).Seconds()) }

// firstShell follows the section for the shell in a clone, and returns how long it took.
func firstShell(t *testing.T, page string) string {
	root, dir := must.Get(cluster.ModuleRoot())(t), t.TempDir()
	firstRun(t, dir, "git clone -q --depth 1 'file://"+root+"' zlockd")
	ports := must.Get(cluster.FreePorts(1))(t)
	lines := firstBlock(t, page, "In a shell", "sh")
	began := time.Now()
	out := firstRun(t, filepath.Join(dir, "zlockd"), lines+"kill $!; wait",
		"GOCACHE="+filepath.Join(dir, "cache"), "GOFLAGS=",
		"ZLOCKD_CLIENT_ADDR="+ports[0], "ZLOCKD_ADMIN_ADDR=off", "ZLOCK_SERVERS="+ports[0])
	took := seconds(began)
	expect.Has(t, out, "the lock is ours\n")
	expect.Has(t, out, "elected\n")
	return took
}

// follow() writes the section's program to a file, and runs the section's shell commands against a new
// server. The lines in README.md must come from the same program. If the program implements its own lock,
// waits() checks that lock.
func (s *firstSection) follow(t *testing.T, page string) string {
	program := firstBlock(t, page, s.title, s.language)
	shown := readmeBlock(t, s.language)
	expect.That(t, strings.Contains(unindented(program), unindented(shown)),
		"README.md shows other lines of %s than %s:\n%s", s.title, firstPage, shown)
	g := startTarget(t, cluster.Options{})
	dir := t.TempDir()
	s.dir = filepath.Join(dir, "first")
	root := must.Get(cluster.ModuleRoot())(t)
	must.OK(t, os.Mkdir(s.dir, 0o700))
	must.OK(t, os.Symlink(root, filepath.Join(dir, "zlockd")))
	sums := must.Get(os.ReadFile(filepath.Join(root, "go.sum")))(t) // so that go asks no server for checksums
	must.OK(t, os.WriteFile(filepath.Join(s.dir, "go.sum"), sums, 0o600))
	must.OK(t, os.WriteFile(filepath.Join(s.dir, s.file),
		[]byte(strings.ReplaceAll(program, "127.0.0.1:2181", g.addrs[0])), 0o600))

	var lines, last string
	known := string(must.Get(os.ReadFile("install.sh"))(t))
	for line := range strings.Lines(firstBlock(t, page, s.title, "sh")) {
		packages, apt := strings.CutPrefix(strings.TrimSpace(line), "apt install ")
		if !apt {
			lines, last = lines+line, line
			continue
		}
		for name := range strings.FieldsSeq(packages) {
			expect.That(t, regexp.MustCompile(`[" \n]`+regexp.QuoteMeta(name)+`[" \n\\]`).MatchString(known),
				"install.sh does not install %s", name)
		}
	}
	began := time.Now()
	out := firstRun(t, s.dir, lines, "PATH=/usr/bin:"+os.Getenv("PATH")) // Debian's python3, which has kazoo
	took := seconds(began)
	expect.That(t, lockedAndElected.MatchString(out), "it wrote:\n%s", out)
	if strings.Contains(program, "turn(") {
		s.waits(t, g, last)
	}
	return took
}

var lockedAndElected = regexp.MustCompile(`(?s)the lock is ours.*\n.*elected`)

// waits() runs the program while another client's node is before the program's node. The program must not
// hold the lock as long as that node exists.
func (s *firstSection) waits(t *testing.T, g target, command string) {
	other := must.Get(wire.Open(g.addrs[0]))(t)
	defer other.Close()
	before := must.Get(other.Create("/jobs/nightly/lock-", nil, jute.FlagEphemeralSequential))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-ec", "exec "+command)
	out := new(must.Text)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, out, out
	must.OK(t, cmd.Start())
	must.Await(t, "the program stands behind the other", time.Minute, func() bool {
		names, _, err := other.Children("/jobs/nightly", false)
		return err == nil && len(names) == 2 && other.Ping() == nil
	})
	time.Sleep(300 * time.Millisecond) // a program that does not wait would hold the lock by now
	expect.That(t, !strings.Contains(out.String(), "ours"), "held beside %s:\n%s", before, out)
	must.OK(t, other.Delete(before, -1))
	expect.OK(t, cmd.Wait(), "%s", out)
	expect.That(t, lockedAndElected.MatchString(out.String()), "it wrote:\n%s", out)
}

// readmeBlock returns the lines of a language that the README shows.
func readmeBlock(t *testing.T, language string) string {
	t.Helper()
	_, text, _ := strings.Cut(string(must.Get(os.ReadFile("../../README.md"))(t)), "\n## Lock something\n")
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(text)
	must.That(t, m != nil, "README.md has no lines of %s", language)
	return m[1]
}

// unindented() removes the indentation of each line.
func unindented(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "")
}
