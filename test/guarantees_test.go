package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestEveryGuaranteeHasATest compares docs/guarantees.md with the tests: each
// number has one line, which names tests that there are, and each test that is
// named after a number is about one that the page has.
func TestEveryGuaranteeHasATest(t *testing.T) {
	tests := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	must.OK(t, filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range name.FindAllStringSubmatch(string(b), -1) {
			tests[m[1]] = true
		}
		return err
	}))
	b := must.Get(os.ReadFile("../docs/guarantees.md"))(t)
	lines := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([GRFL]\d+) \|.*\|(.*)\|$`).FindAllStringSubmatch(string(b),
		-1) {
		if lines[m[1]] != "" {
			t.Errorf("%s has two lines", m[1])
		}
		lines[m[1]] = m[2]
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(m[2], -1)
		if len(named) == 0 {
			t.Errorf("%s names no test", m[1])
		}
		for _, n := range named {
			if !tests[n[1]] {
				t.Errorf("%s names %s, which is no test", m[1], n[1])
			}
		}
	}
	for i := 1; i <= 26; i++ {
		for _, number := range []string{fmt.Sprintf("G%d", i), fmt.Sprintf("R%d", i)} {
			expect.That(t, lines[number] != "", "%s has no line", number)
		}
	}
	number := regexp.MustCompile(`[GRFL]\d+`)
	for test := range tests {
		for _, n := range number.FindAllString(test, -1) {
			expect.That(t, lines[n] != "", "%s is named after %s, which has no line", test, n)
		}
	}
}

// R7: the set of versions that was tested, and no older store below it.
func TestR7StoresAreNotOlderThanTested(t *testing.T) {
	b := must.Get(os.ReadFile("../go.mod"))(t)
	for module, least := range map[string][3]int{
		"go.etcd.io/bbolt": {1, 4, 3}, "github.com/hashicorp/raft": {1, 7, 3},
		"github.com/hashicorp/raft-boltdb/v2": {2, 3, 1},
	} {
		m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` v(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(
			string(b))
		if m == nil {
			t.Errorf("go.mod does not name %s", module)
			continue
		}
		var v [3]int
		fmt.Sscanf(strings.Join(m[1:], " "), "%d %d %d", &v[0], &v[1], &v[2])
		if v[0] < least[0] || v[0] == least[0] && (v[1] < least[1] || v[1] == least[1] && v[2] < least[2]) {
			t.Errorf("%s is %v, must be %v or newer", module, v, least)
		}
	}
}

// R20: raft's own restore takes the zxid and the sessions back. Nothing that
// runs may reach it.
func TestR20RaftRestoreIsNotReachable(t *testing.T) {
	for _, dir := range []string{"../raftfsm", "../server", "../server/admin", "../cmd/zlockd"} {
		files := must.Get(filepath.Glob(dir + "/*.go"))(t)
		for _, f := range files {
			b := must.Get(os.ReadFile(f))(t)
			if strings.Contains(string(b), "raft.Restore(") || strings.Contains(string(b), "raft.RecoverCluster(") &&
				!strings.HasSuffix(f, "_test.go") {
				t.Errorf("%s takes raft back", f)
			}
		}
	}
}
