package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

var (
	docCommand = regexp.MustCompile("go test ((?:\\./\\S+ )+)-run ('[^']*'|[^\\s`]+)")
	docTest    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
)

// Each `go test PACKAGES -run PATTERN` of a page finds a test for every alternative of the pattern. So when a
// test moves to another package, its command on the page must change.
func TestPagesNameTestsThatExist(t *testing.T) {
	tests := testsByDir(t)
	commands := 0
	must.OK(t, filepath.WalkDir("../docs", func(page string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(page) != ".md" {
			return err
		}
		for _, m := range docCommand.FindAllStringSubmatch(string(must.Get(os.ReadFile(page))(t)), -1) {
			commands++
			pattern := strings.ReplaceAll(strings.Trim(m[2], "'"), `\|`, "|") // a bar in a table is escaped
			for want := range strings.SplitSeq(pattern, "|") {
				if want == "none" || want == "^$" { // the command runs only benchmarks
					continue
				}
				expect.That(t, finds(t, tests, strings.Fields(m[1]), want), "%s: %q names no test", page, m[0])
			}
		}
		return nil
	}))
	must.That(t, commands > 100, "the pages have %d commands, want more than 100", commands)
}

// testsByDir returns the names of all tests by their directory.
func testsByDir(t *testing.T) map[string][]string {
	tests := map[string][]string{}
	must.OK(t, filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(file))
		for _, m := range docTest.FindAllStringSubmatch(string(must.Get(os.ReadFile(file))(t)), -1) {
			tests[dir] = append(tests[dir], m[1])
		}
		return nil
	}))
	return tests
}

// finds() reports whether a package has a test that a pattern of -run finds.
func finds(t *testing.T, tests map[string][]string, packages []string, pattern string) bool {
	first, _, _ := strings.Cut(pattern, "/")
	run := must.Get(regexp.Compile(first))(t)
	for _, pkg := range packages {
		pkg, below := strings.CutSuffix("."+pkg, "/...")
		for dir, names := range tests {
			if dir != pkg && (!below || !strings.HasPrefix(dir, pkg+"/")) {
				continue
			}
			for _, name := range names {
				if run.MatchString(name) {
					return true
				}
			}
		}
	}
	return false
}
