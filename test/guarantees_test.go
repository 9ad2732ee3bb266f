package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// withoutTest are the rules that have no test of their own name, and why.
var withoutTest = map[string]string{
	"R22": "is about when leadership is handed over: tested by G24, and by every orderly stop",
	"R26": "needs a share of the processor to be taken away, which a test cannot do on every machine",
}

// TestEveryGuaranteeHasATest looks for the names of the guarantees, and of the
// rules that say how they are tested, in the names of the tests.
func TestEveryGuaranteeHasATest(t *testing.T) {
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	rule := regexp.MustCompile(`[GRF]\d+`)
	tests := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range name.FindAllStringSubmatch(string(b), -1) {
			for _, r := range rule.FindAllString(m[1], -1) {
				tests[r] = append(tests[r], m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for i := 1; i <= 26; i++ {
		rules = append(rules, fmt.Sprintf("G%d", i), fmt.Sprintf("R%d", i))
	}
	rules = append(rules, "F1", "F3", "F5")
	for _, r := range rules {
		switch why, none := withoutTest[r]; {
		case none && len(tests[r]) > 0:
			t.Errorf("%s has a test after all: %v", r, tests[r])
		case !none && len(tests[r]) == 0:
			t.Errorf("no test is named after %s", r)
		case none:
			t.Logf("%s has no test of its own: it %s", r, why)
		default:
			t.Logf("%s: %s", r, strings.Join(tests[r], " "))
		}
	}
}

// R7: the set of versions that was tested, and no older store below it.
func TestR7StoresAreNotOlderThanTested(t *testing.T) {
	b, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for module, least := range map[string][3]int{
		"go.etcd.io/bbolt": {1, 4, 3}, "github.com/hashicorp/raft": {1, 7, 3}, "github.com/hashicorp/raft-boltdb/v2": {2, 3, 1},
	} {
		m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` v(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(string(b))
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
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), "raft.Restore(") || strings.Contains(string(b), "raft.RecoverCluster(") && !strings.HasSuffix(f, "_test.go") {
				t.Errorf("%s takes raft back", f)
			}
		}
	}
}
