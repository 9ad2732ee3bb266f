//go:build stock

package stock

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/expect"
	"github.com/zlockd/zlockd/test/must"
)

// TestCClient runs libzookeeper_mt. The library ends its process when a reply
// comes that it does not expect, so the driver's clean end is a check too.
func TestCClient(t *testing.T) {
	need(t, "gcc", "/usr/include/zookeeper/zookeeper.h")
	bin := filepath.Join(scratch, "c-driver")
	out, err := exec.Command("gcc", "-O1", "-Wall", "-DTHREADED", "-o", bin, "testdata/c/driver.c",
		"testdata/c/checks.c", "-lzookeeper_mt", "-lpthread").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	driver{name: "c", args: []string{bin}, least: 9, keys: 1}.run(t, startTarget(t, generous()))
}

// TestCliMt drives cli_mt, the C client's shell.
func TestCliMt(t *testing.T) {
	const cli = "/usr/lib/zookeeper/bin/cli_mt"
	need(t, cli)
	g := startTarget(t, generous())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, cli, g.String())
	in := must.Get(cmd.StdinPipe())(t)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must.OK(t, cmd.Start())
	root := "/cli" + strings.ReplaceAll(time.Now().Format("150405.000"), ".", "")
	for _, line := range []string{
		"", // the first line is spoken while it connects
		"create " + root, "create +s " + root + "/s-", "create +e " + root + "/e", "create +c " + root + "/c",
		"create2 " + root + "/two", "set " + root + " hello", "get " + root, "ls " + root, "ls2 " + root,
		"exists " + root + "/nope", "wexists " + root + "/born", "create " + root + "/born", "aget " + root,
		"delete " + root + "/born", "addauth digest u:p", "sync " + root, "config", "quit",
	} {
		time.Sleep(150 * time.Millisecond)
		if line == "" {
			time.Sleep(time.Second)
		}
		in.Write([]byte(line + "\n"))
	}
	expect.OK(t, cmd.Wait(), "cli_mt")
	for _, want := range []string{
		"Creating [" + root + "/s-] node", "name = " + root + "/s-0000000000", "name = " + root + "/e", "name = " +
			root + "/c",
		"value_len = 5", "CREATED_EVENT state = CONNECTED_STATE for path " + root + "/born", "Error -101 for " +
			root + "/nope", "hello",
	} {
		expect.Has(t, out.String(), want, "cli_mt did not print")
	}
	for _, bad := range []string{"rc = -4", "rc = -116", "ASSERT"} {
		expect.That(t, !strings.Contains(out.String(), bad), "cli_mt printed %q", bad)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
