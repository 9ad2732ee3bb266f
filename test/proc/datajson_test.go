package proc

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// answerOf runs a command and returns the last object that it prints.
func answerOf(t *testing.T, fails bool, bin string, args ...string) map[string]any {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must.Equal(t, err != nil, fails, "%v: %v %s", args, err, out)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var a map[string]any
	for _, line := range lines {
		a = nil
		output(t, line, json.Unmarshal([]byte(line), &a))
		expect.Equal(t, a["v"], 1.0, "%v: %s", args, line)
	}
	return a
}

// TestAnswersInJSON compares the fields of every answer with those that
// docs/data.md names.
func TestAnswersInJSON(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers as processes")
	}
	text := must.Get(os.ReadFile("../../docs/data.md"))(t)
	bin, dir := cluster.Build(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	fill(t, at("zoo"), 2000)
	check := func(row string, a map[string]any) {
		t.Helper()
		_, rest, ok := strings.Cut(string(text), "| "+row+" |")
		line, _, _ := strings.Cut(rest, "\n")
		must.That(t, ok, "docs/data.md has no row %s", row)
		for field := range a {
			expect.That(t, field == "v" || strings.Contains(line, "`"+field+"`"),
				"%s: %s is not described", row, field)
		}
	}
	const makes = "`zlockd import`, `export`, `restore`"
	a := answerOf(t, false, bin, "import", "-o", "json", "--from", at("zoo"), "--data-dir", at("ours"))
	check(makes, a)
	if a["nodes"] != 2004.0 || a["zxid"] != "0x7d0" || a["command"] != "import" || len(a) != 10 {
		t.Errorf("import: %v", a)
	}
	check(makes, answerOf(t, false, bin, "export", "--json", "--data-dir", at("ours"), "--to", at("back")))
	a = answerOf(t, false, bin, "verify", "--json", at("zoo"), at("ours"))
	check("`zlockd verify`", a)
	expect.Equal(t, a["equal"], true, "verify: %v", a)
	a = answerOf(t, false, bin, "dump", "--json", at("ours"))
	check("`zlockd dump`", a)
	expect.That(t, a["lines"].(float64) >= 3, "dump: %v", a)
	r := serve(t, bin, at("ours"))
	object := func(args ...string) (a map[string]any) {
		t.Helper()
		out := r.zlock(t, args...)
		output(t, out, json.Unmarshal([]byte(out), &a))
		expect.Equal(t, a["v"], 1.0, "%v: %s", args, out)
		return a
	}
	const gives = "`zlock backup`, `export`"
	check(gives, object("backup", "-o", "json", at("backup")))
	check(gives, object("export", "-o", "json", at("snapshot")))
	name, _ := os.ReadFile(filepath.Join(at("ours"), "identity"))
	var identity struct{ Cluster string }
	must.OK(t, json.Unmarshal(name, &identity))
	check("`zlock restore`", object("restore", "-o", "json", at("backup"), "--yes", identity.Cluster))
	r.stop()
	check(makes, answerOf(t, false, bin, "restore", "--json", at("backup"), "--data-dir", at("restored")))
	a = answerOf(t, true, bin, "recover", "--json", "--data-dir", at("restored"))
	check("`zlockd recover`", a)
	expect.Equal(t, a["done"], false, "recover: %v", a)
	a = answerOf(t, false, bin, "recover", "--json", "--yes", "--data-dir", at("restored"))
	check("`zlockd recover`", a)
	expect.That(t, a["done"] == true && a["newCluster"] != a["cluster"], "recover: %v", a)
}
