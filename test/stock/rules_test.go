//go:build stock

package stock

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/must"
)

// TestAlertRules lets promtool check the alert rules and try each of them, with
// its cause and without it, and holds the manual against them.
func TestAlertRules(t *testing.T) {
	const dir = "../../deploy/prometheus"
	need(t, "/usr/bin/promtool")
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.Command("/usr/bin/promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	read := func(name string) string {
		b := must.Get(os.ReadFile(name))(t)
		return string(b)
	}
	rules, tests, manual := read(dir+"/rules.yml"), read(dir+"/rules_test.yml"), read("../../docs/operations.md")
	names := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	must.That(t, len(names) != 0, "no alerts")
	for _, n := range names {
		if strings.Count(tests, "alertname: "+n[1]+"\n") < 2 {
			t.Errorf("%s has no case with its cause and one without", n[1])
		}
		if !strings.Contains(manual, "`"+n[1]+"`") {
			t.Errorf("%s is not in the manual", n[1])
		}
	}
}
