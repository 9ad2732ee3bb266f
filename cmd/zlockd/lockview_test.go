package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/zlockd/zlockd/jute"
	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
	"github.com/zlockd/zlockd/test/wire"
)

// The lines of docs/lock-view.md are followed as they stand, in an empty
// directory: only ports, and the example's node and token, are other ones.
func TestTheLockViewsPageIsFollowed(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the page's lines need curl")
	}
	page := must.Get(os.ReadFile("../../docs/lock-view.md"))(t)
	// Blocks are lines that are indented.
	blocks := regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(string(page), -1)
	must.That(t, len(blocks) == 2 && strings.HasPrefix(blocks[0], "    zlockd --dev &\n"),
		"%d blocks; this test knows how to start and look, and how to break a lock: %q", len(blocks), blocks)
	p := launch(t, "--dev", "--client-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--super-digest",
		"super:lK75jTNcA+U9vtVEw5vB51mj/w4=")
	sh := func(script string) string {
		t.Helper()
		cmd := exec.Command("bash", "-ec", strings.ReplaceAll(script, "127.0.0.1:8181", p.ready["admin"]))
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s%v\n%s", script, err, out)
		}
		return string(out)
	}

	c := must.Get(wire.Open(p.ready["client"]))(t)
	defer c.Close()
	for _, dir := range []string{"/app", "/app/orders"} {
		must.Get(c.Create(dir, nil, 0))(t)
	}
	node := must.Get(c.Create("/app/orders/lock-", nil, jute.FlagEphemeralSequential))(t)
	st := must.Get(c.Exists(node, false))(t)

	_, look, _ := strings.Cut(blocks[0], "# or\n")
	if out := sh(look); !strings.Contains(out, `"v": 1`) && !strings.Contains(out, `"v":1`) ||
		!strings.Contains(out, "/app/orders") {
		t.Errorf("%s answers %s", look, out)
	}
	out := sh(strings.NewReplacer("lock-0000000003", strings.TrimPrefix(node, "/app/orders/"), `"1234"`,
		fmt.Sprintf("%q", fmt.Sprint(st.Czxid))).Replace(blocks[1]))
	if strings.Contains(out, `"error"`) || !strings.Contains(out, fmt.Sprintf("0x%x", c.Session.ID)) {
		t.Errorf("breaking, as a dry run, answers %s", out)
	}
	expect.OK(t, expect.Err(c.Exists(node, false)), "a dry run broke the lock")
}
