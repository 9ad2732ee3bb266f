package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// The README's lock examples are followed as a new user would: the program in
// a module of its own, the shell lines as they stand.
func TestReadmeExamplesWork(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module of its own: make test-all")
	}
	t.Parallel()
	b := must.Get(os.ReadFile("../../README.md"))(t)
	_, text, _ := strings.Cut(string(b), "\n## Lock something\n")
	text, _, _ = strings.Cut(text, "\n## ")
	found := regexp.MustCompile("(?s)```(go|sh)\n(.*?)```").FindAllStringSubmatch(text, -1)
	must.That(t, len(found) == 3 && found[0][1] == "go" && found[1][1] == "sh" && found[2][1] == "sh",
		"%d examples; this test knows of a program, how to run it, and lines for the shell", len(found))
	// Side by side as the text says: zlockd, and the module.
	dir := t.TempDir()
	root := must.Get(filepath.Abs("../.."))(t)
	must.OK(t, os.Symlink(root, filepath.Join(dir, "zlockd")))
	module := filepath.Join(dir, "nightly")
	must.OK(t, os.MkdirAll(filepath.Join(module, "bin"), 0o700))
	must.OK(t, os.Symlink(filepath.Join(built.dir, "zlock"), filepath.Join(module, "bin", "zlock")))
	program := strings.ReplaceAll(found[0][2], "127.0.0.1:2181", server(t))
	must.OK(t, os.WriteFile(filepath.Join(module, "main.go"), []byte(program), 0o600))
	// What is known to be in the cache need not be asked for.
	if sums, err := os.ReadFile(filepath.Join(root, "go.sum")); err == nil {
		must.OK(t, os.WriteFile(filepath.Join(module, "go.sum"), sums, 0o600))
	}
	sh := func(script string) string {
		t.Helper()
		cmd := exec.Command("bash", "-ec", script)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off", "NO_COLOR=1", "ZLOCK_SERVERS="+server(t))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s%v\n%s", script, err, out)
		}
		return string(out)
	}
	if out := sh(found[1][2]); !regexp.MustCompile(`(?m)^the lock is ours; token \S+$`).MatchString(out) {
		t.Errorf("the program says %q", out)
	}
	out := sh(found[2][2])
	if !regexp.MustCompile(
		`(?s)^PATH +/jobs/nightly .*\n\* +W .*\nexit code 124: somebody holds it\nmy turn\n$`).MatchString(out) {
		t.Errorf("the shell says %q", out)
	}
}
