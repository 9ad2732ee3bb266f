package test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// The command that test/run.sh runs prints a line for each package, distinguishes a crash of the race
// detector from a race, and counts an incomplete answer as a failure.
func TestProgress(t *testing.T) {
	program := t.TempDir() + "/progress"
	must.OK(t, exec.Command("go", "build", "-o", program, "progress.go").Run())
	for in, want := range map[string]string{
		`{"Action":"output","Package":"m/a","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"m/a","Elapsed":1.25}
{"Action":"output","Package":"m/b","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"m/b","Test":"TestB","Output":"    b_test.go:7: wrong\n"}
{"Action":"output","Package":"m/b","Test":"TestB","Output":"--- FAIL: TestB (0.00s)\n"}
{"Action":"fail","Package":"m/b","Test":"TestB"}
{"Action":"fail","Package":"m/b","Elapsed":2}
{"Action":"skip","Package":"m/c"}
{"Action":"build-output","ImportPath":"m/d","Output":"d.go:1: not Go\n"}
{"Action":"build-fail","ImportPath":"m/d"}
{"Action":"fail","Package":"m/d","Elapsed":0}`: `ok     1 of 0     1.2 s  m/a
FAIL   2 of 0     2.0 s  m/b
    b_test.go:7: wrong
--- FAIL: TestB (0.00s)
d.go:1: not Go
FAIL   4 of 0     0.0 s  m/d
failed: 2 crashed: `,
		`{"Action":"output","Package":"m/a","Output":"WARNING: DATA RACE\n"}{"Action":"fail","Package":"m/a"}
{"Action":"output","Package":"m/b","Output":"ThreadSanitizer: CHECK failed: x\n"}{"Action":"fail","Package":"m/b"}
{"Action":"output","Package":"m/c","Output":"SIGSEGV: segmentation violation\n"}
{"Action":"output","Package":"m/c","Output":"PC=0x41ca09 m=3 sigcode=1\n"}{"Action":"fail","Package":"m/c"}
{"Action":"output","Package":"m/d","Output":"[signal SIGSEGV: segmentation violation pc=0x4]\n"}
{"Action":"pass","Package":"m/d","Test":"TestA/x"}{"Action":"pass","Package":"m/d","Test":"TestA"}
{"Action":"fail","Package":"m/d"}`: "failed: 4 crashed: m/b m/c passed: map[m/d:[TestA]]",
		`{"Action":"pass","Package":"m/a"}{"Act`: "failed: 1 crashed: ",
	} {
		cmd := exec.Command(program)
		cmd.Stdin = strings.NewReader(in)
		out := must.Get(cmd.Output())(t)
		expect.Has(t, string(out), want)
	}
}

// test/run.sh -long runs the packages whose tests call testing.Short(). It finds these calls by their text,
// so code that tests share must not call testing.Short(), except package test/cluster.
func TestOnlyTestsAskForShort(t *testing.T) {
	cluster := filepath.Join("..", "test", "cluster")
	files := 0
	must.OK(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Dir(path) == cluster || !strings.HasSuffix(path, ".go") ||
			strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		expect.That(t, !strings.Contains(string(b), "testing.Short()"), "%s asks for -short", path)
		return err
	}))
	must.That(t, files > 100, "only %d files were read", files)
}
