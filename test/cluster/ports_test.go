package cluster

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// Two processes that choose ports at the same time never get the same port.
func TestPortsAreGivenOnce(t *testing.T) {
	if os.Getenv("LAUNCH_TEST_PORTS") != "" {
		list := must.Get(FreePorts(200))(t)
		os.Stdout.WriteString("ports " + strings.Join(list, " ") + "\n")
		return
	}
	list := must.Get(FreePorts(200))(t)
	other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), "LAUNCH_TEST_PORTS=1")
	out, err := other.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, line, found := strings.Cut(string(out), "ports ")
	line, _, _ = strings.Cut(line, "\n")
	if theirs := strings.Fields(line); !found || len(theirs) != 200 {
		t.Fatalf("the other process was given %d ports", len(theirs))
	} else {
		list = append(list, theirs...)
	}
	slices.Sort(list)
	expect.Equal(t, len(slices.Compact(list)), 400, "ports of 400 are different")
}
