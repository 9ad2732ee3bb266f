package main

import (
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
)

func TestEveryPackageHasItsLine(t *testing.T) {
	const in = `{"Action":"output","Package":"m/a","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"m/a","Elapsed":1.25}
{"Action":"output","Package":"m/b","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"m/b","Test":"TestB","Output":"    b_test.go:7: wrong\n"}
{"Action":"output","Package":"m/b","Test":"TestB","Output":"--- FAIL: TestB (0.00s)\n"}
{"Action":"fail","Package":"m/b","Test":"TestB"}
{"Action":"fail","Package":"m/b","Elapsed":2}
{"Action":"skip","Package":"m/c"}
{"Action":"build-output","ImportPath":"m/d","Output":"d.go:1: not Go\n"}
{"Action":"build-fail","ImportPath":"m/d"}
{"Action":"fail","Package":"m/d","Elapsed":0}
`
	const want = `ok     1 of 4     1.2 s  m/a
FAIL   2 of 4     2.0 s  m/b
    b_test.go:7: wrong
--- FAIL: TestB (0.00s)
d.go:1: not Go
FAIL   4 of 4     0.0 s  m/d
`
	var out strings.Builder
	failed, crashed := report(&out, strings.NewReader(in), 4)
	expect.That(t, failed == 2 && len(crashed) <= 0, "%d failed, want 2", failed)
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
}

func TestNonsenseIsAFailure(t *testing.T) {
	var out strings.Builder
	failed, _ := report(&out, strings.NewReader(`{"Action":"pass","Package":"m/a"}{"Act`), 1)
	expect.That(t, failed != 0, "half an answer counts as success")
}

// A crash of the race detector is told apart from what it finds.
func TestDetectorThatBreaksOff(t *testing.T) {
	var out strings.Builder
	in := `{"Action":"output","Package":"m/a","Output":"WARNING: DATA RACE\n"}{"Action":"fail","Package":"m/a"}` +
		`{"Action":"output","Package":"m/b","Output":"ThreadSanitizer: CHECK failed: x.cpp:1\n"}{"Action":"fail","Package":"m/b"}` +
		`{"Action":"output","Package":"m/c","Output":"SIGSEGV: segmentation violation\n"}{"Action":"output","Package":"m/c","Output":"PC=0x41ca09 m=3 sigcode=1 addr=0x0\n"}{"Action":"fail","Package":"m/c"}` +
		`{"Action":"output","Package":"m/d","Output":"[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4]\n"}{"Action":"fail","Package":"m/d"}`
	if failed, crashed := report(&out, strings.NewReader(in), 4); failed != 4 ||
		strings.Join(crashed, " ") != "m/b m/c" {
		t.Errorf("%d failed, %v crashed", failed, crashed)
	}
}
