package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/zlockd/zlockd/"

// allowed is the picture of docs/architecture.md: what each package may import
// of ours. Packages under test may import anything.
var allowed = map[string][]string{
	"jute":           {},
	"tree":           {"jute"},
	"tree/treetest":  {"jute", "tree"},
	"session":        {"jute"},
	"raftfsm":        {"jute", "tree", "session", "raftfsm/seglog"},
	"raftfsm/seglog": {},
	"server":         {"jute", "tree", "session", "raftfsm", "server/admin"},
	"server/admin":   {},
	"cmd/zlockd":     {"server", "server/admin", "raftfsm"},
	"client":         {"client/fence"},
	"client/fence":   {},
	"cmd/zlock":      {"client", "client/fence"},
}

// pure packages must not be able to see a clock, a network, a file or a lock.
var pure = []string{"jute", "tree", "session"}

var impure = []string{"net", "os", "sync", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "context", "io/fs", "runtime"}

func TestImportsMatchTheArchitecture(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}:{{join .Imports ","}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		path, imports, _ := strings.Cut(line, ":")
		pkg := strings.TrimPrefix(path, module)
		if pkg == "test" || strings.HasPrefix(pkg, "test/") || strings.HasPrefix(pkg, "examples/") {
			continue
		}
		may, known := allowed[pkg]
		if !known {
			t.Errorf("package %s is not in the picture", pkg)
			continue
		}
		seen[pkg] = true
		for _, imp := range strings.Split(imports, ",") {
			if ours, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(may, ours) {
				t.Errorf("%s imports %s", pkg, ours)
			}
			if slices.Contains(pure, pkg) && slices.Contains(impure, imp) && !(pkg == "tree" && imp == "sync/atomic") {
				t.Errorf("%s imports %s, but is to be pure", pkg, imp)
			}
		}
	}
	clock := regexp.MustCompile(`time\.(Now|Since|Until|Sleep|After|Tick|New)`)
	for _, pkg := range pure {
		files, err := filepath.Glob("../" + pkg + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(f, "_test.go") && clock.Match(b) {
				t.Errorf("%s looks at a clock", f)
			}
		}
	}
	for pkg := range allowed {
		if !seen[pkg] {
			t.Errorf("package %s of the picture does not exist", pkg)
		}
	}
}
