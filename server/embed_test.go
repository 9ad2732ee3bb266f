package server

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// module copies one program or test of the documentation into an empty directory and makes a Go module of it,
// as a reader of the documentation would.
func module(t *testing.T, name, text string) func(args ...string) *exec.Cmd {
	t.Helper()
	root := must.Get(filepath.Abs(".."))(t)
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	// With this file the go command takes the modules from its cache and needs no network.
	if sums, err := os.ReadFile(filepath.Join(root, "go.sum")); err == nil {
		must.OK(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
		return cmd
	}
	for _, args := range [][]string{
		{"go", "mod", "init", "example.org/job"},
		{"go", "mod", "edit", "-replace", "github.com/zlockd/zlockd=" + root},
		{"go", "mod", "tidy"},
	} {
		if out, err := command(args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return command
}

// goBlocks returns the programs of a page or, if `section` is not empty, of that section.
func goBlocks(t *testing.T, page, section string) (list []string) {
	t.Helper()
	b := must.Get(os.ReadFile(page))(t)
	text := string(b)
	if section != "" {
		_, text, _ = strings.Cut(text, "\n## "+section+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
	}
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// The documentation about embedding a server has programs and tests. All of them build and run.
func TestEmbeddingExamplesWork(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds modules of its own: make test-all")
	}
	readme := goBlocks(t, "../README.md", "Embed a server")
	embedding, tests := goBlocks(t, "../docs/embedding.md", ""), goBlocks(t, "../docs/testing.md", "")
	must.Equal(t, len(readme), 2, "number of readme %v", readme)
	must.Equal(t, len(embedding), 1, "number of embedding %v", embedding)
	must.Equal(t, len(tests), 1, "number of tests %v", tests)
	for _, text := range []string{readme[1], tests[0]} {
		out, err := module(t, "job_test.go", text)("go", "test", ".").CombinedOutput()
		expect.OK(t, err)
		expect.That(t, bytes.HasPrefix(out, []byte("ok")), "go test: %v\n%s\n%s", err, out, text)
	}

	out, err := module(t, "main.go", readme[0])("go", "run", ".").CombinedOutput()
	expect.OK(t, err)
	expect.That(t, bytes.Contains(out, []byte("any ZooKeeper client may connect to 127.0.0.1:")),
		"the README's program: %v\n%s", err, out)

	// The next program serves until it gets a signal, and keeps its data in a directory.
	run := module(t, "main.go", embedding[0])
	if out, err := run("go", "build", "-o", "server", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The program ends without an error, whether it is stopped before it has its lock or while it holds the
	// lock.
	for _, when := range []string{"clients: ", "holding, token "} {
		cmd := run("./server")
		var said must.Text
		cmd.Stdout, cmd.Stderr = &said, &said
		must.OK(t, cmd.Start())
		said.Await(t, when)
		must.OK(t, cmd.Process.Signal(syscall.SIGTERM))
		err := cmd.Wait()
		if expect.OK(t, err) {
			expect.Lacks(t, said.String(), "level=ERROR")
		}
		expect.OK(t, expect.Err(os.Stat(filepath.Join(cmd.Dir, "locks", "identity"))))
	}
}
