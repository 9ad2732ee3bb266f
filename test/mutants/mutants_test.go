package mutants

import (
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/mutants/plant"
)

var allFlag = flag.Bool("mutants.all", false, "run all mutants, not only those marked short")

func all(t *testing.T) (list []plant.Bug) {
	files, err := filepath.Glob("testdata/*.txt")
	must.That(t, err == nil && len(files) != 0, "no mutants %v", err)
	for _, f := range files {
		m := must.Get(plant.Load(f))(t)
		list = append(list, m)
	}
	return list
}

// Each planted bug fails the test that must catch it.
func TestMutantsAreCaught(t *testing.T) {
	root := must.Get(filepath.Abs("../.."))(t)
	for _, m := range all(t) {
		t.Run(m.Name, func(t *testing.T) {
			dir := t.TempDir()
			list := must.Get(m.Overlay(root, dir))(t)
			if testing.Short() || !m.Short && !*allFlag {
				t.Skip("the edit applies; it is run with -mutants.all")
			}
			binary := filepath.Join(dir, "mutant.test")
			build := exec.Command("go", "test", "-c", "-ldflags=-w", "-overlay", list, "-o", binary, ".")
			build.Dir = filepath.Join(root, m.Pkg) // the package may be in another module
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("does not build: %v\n%s", err, out)
			}
			start := time.Now()
			out, failed := run(t, &m, binary, root)
			took := time.Since(start).Round(100 * time.Millisecond)
			switch lines := m.Catches.FindString(out); {
			case !failed:
				t.Errorf("not caught by %s: %s", m.Test, m.About)
			case lines == "":
				t.Errorf("%s fails, but does not say %s:\n%s", m.Test, m.Catches, head(out, 20))
			default:
				t.Logf("caught%s after %v: %s", seedOf(out), took, verdict(m.Catches, out))
			}
		})
	}
}

// run() runs the test binary of a mutant in its package's folder.
func run(t *testing.T, m *plant.Bug, binary, root string) (out string, failed bool) {
	args := []string{"-test.run", m.Test, "-test.timeout", "5m", "-test.v"}
	if m.Pkg == "./test/sim" {
		args = append(args, fmt.Sprintf("-sim.seed=%d", m.Seed),
			fmt.Sprintf("-sim.hours=%g", 0.1*float64(m.Seeds)), fmt.Sprintf("-sim.probes=%t", !m.NoProbes))
		if m.Long != "" {
			args = append(args, "-sim.long", "-sim.day="+m.Long)
		}
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = filepath.Join(root, m.Pkg)
	cmd.Env = append(cmd.Environ(), "GOMAXPROCS=1")
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	must.That(t, err == nil || errors.As(err, &exit), "%v", err)
	return string(b), err != nil
}

var failedSeed = regexp.MustCompile(`--- FAIL: \S+/seed=(\d+)`)

func seedOf(out string) string {
	if f := failedSeed.FindStringSubmatch(out); f != nil {
		return " with seed " + f[1]
	}
	return ""
}

// verdict() returns the first line that matches the expected message.
func verdict(want *regexp.Regexp, out string) string {
	for _, line := range strings.Split(out, "\n") {
		if want.MatchString(line) {
			return strings.TrimSpace(line[:min(len(line), 160)])
		}
	}
	return ""
}

// head() returns the first lines that say why the test failed.
func head(out string, lines int) string {
	var list []string
	for _, line := range strings.Split(out, "\n") {
		if !strings.Contains(line, "=== RUN") && !strings.Contains(line, "--- PASS") &&
			!strings.Contains(line, "requests answered") && len(list) < lines {
			list = append(list, line[:min(len(line), 300)])
		}
	}
	return strings.Join(list, "\n")
}
