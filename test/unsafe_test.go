package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// sharing names a test for each file in which strings and bytes share memory. The test overwrites the
// shared bytes; it is in the folder of the file or above.
var sharing = map[string]string{
	"jute/decode.go":              "TestStringsShareTheirInputUntilItIsHandled",
	"tree/acl/set.go":             "TestSetsShareNothingWithTheirInputs",
	"tree/internal/nodes/node.go": "TestTreesShareNothingWithTheirInputs",
}

// A string shares memory with a buffer in only a few places. Each of these places has a test, because a
// string that outlives its buffer shows bytes of another client.
func TestSharedMemoryHasItsTests(t *testing.T) {
	shares := regexp.MustCompile(`unsafe\.(String|Slice)\(`)
	files := must.Get(exec.Command("git", "-C", "..", "ls-files", "*.go").Output())(t)
	seen := map[string]bool{}
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil || strings.HasSuffix(file, "_test.go") || !shares.Match(text) {
			continue
		}
		seen[file] = true
		expect.That(t, sharing[file] != "", "%s makes strings and bytes share memory, and names no test here", file)
	}
	for file, name := range sharing {
		expect.That(t, seen[file], "%s makes nothing share memory any longer", file)
		out := must.Get(exec.Command("grep", "-rl", "func "+name+"(", filepath.Join("..", strings.Split(file, "/")[0])).Output())(t)
		expect.That(t, len(out) > 0, "there is no %s", name)
	}
}
