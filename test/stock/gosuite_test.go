//go:build stock

package stock

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/must"
)

// zkServer is what go-zookeeper's tests call to start a server with a zoo.cfg,
// its super user in the JVM's flags.
const zkServer = `#!/bin/sh
super=$(printf '%s\n' "$SERVER_JVMFLAGS" | sed -n 's/.*superDigest=\([^ ]*\).*/\1/p')
exec "$ZLOCKD_BIN" --config "$2" --super-digest "$super" --log-level error
`

// ownTest is a line that says how one of the client's tests ended.
var ownTest = regexp.MustCompile(`(?m)^--- (?P<word>PASS|FAIL|SKIP): (?P<name>\S+)`)

// byChance removes a server and goes on by the connection it has, which may be to
// that server. ZooKeeper leaves one that was removed to serve on; here it stops.
const byChance = "TestIntegration_Reconfig"

// TestGoClientsOwnTests runs the tests that go-zookeeper/zk brings along, which
// start, stop and kill servers of one and three, against zlockd.
func TestGoClientsOwnTests(t *testing.T) {
	zlockd := ownServers(t)
	dir, bin := t.TempDir(), t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(bin, "zkServer.sh"), []byte(zkServer), 0o755))
	module := must.Get(exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/go-zookeeper/zk").Output())(t)
	must.OK(t, os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(module)))))
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "test", "-mod=mod", "-c", "-o", "own.test", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the client's tests: %v\n%s", err, out)
	}
	own := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "own.test"),
			append(args, "-test.v", "-test.timeout=5m")...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		cmd.Env = append(os.Environ(), "ZOOKEEPER_BIN_PATH="+bin, "ZLOCKD_BIN="+zlockd, "ZK_VERSION=3.8.0")
		return cmd
	}
	suite{cmd: own("-test.skip", "^"+byChance+"$"), ended: ownTest, passed: "PASS", least: 46}.run(t)
	t.Run(byChance, func(t *testing.T) {
		const tries = 8
		for n := range tries {
			out, err := own("-test.run", "^"+byChance+"$").CombinedOutput()
			if err == nil {
				return
			}
			must.That(t, n != tries-1 && strings.Contains(string(out), "zk: connection closed"),
				"%v\n%s", err, out)
		}
	})
}
