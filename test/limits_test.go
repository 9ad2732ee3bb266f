package test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Every test that docs/limits.md names exists.
func TestLimitsNameTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../docs/limits.md")
	must.OK(t, err)
	names := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	expect.That(t, len(names) >= 20, "only %d tests are named", len(names))
	out, err := exec.Command("git", "-C", "..", "grep", "-h", "^func Test").Output()
	if err != nil {
		t.Skip("not a clone: ", err)
	}
	for _, n := range names {
		if !strings.Contains(string(out), "func "+n[1]+"(") {
			t.Errorf("%s does not exist", n[1])
		}
	}
}
