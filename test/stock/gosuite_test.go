//go:build stock

package stock

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/stock/launch"
)

// zkServer is what go-zookeeper's tests call to start a server with a zoo.cfg,
// its super user in the JVM's flags.
const zkServer = `#!/bin/sh
super=$(printf '%s\n' "$SERVER_JVMFLAGS" | sed -n 's/.*superDigest=\([^ ]*\).*/\1/p')
exec "$ZLOCKD_BIN" --config "$2" --super-digest "$super" --log-level error
`

// ownTest is a line that says how one of the client's tests ended.
var ownTest = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+)`)

// TestGoClientsOwnTests runs the tests that go-zookeeper/zk brings along, which
// start, stop and kill servers of one and three, against zlockd.
func TestGoClientsOwnTests(t *testing.T) {
	if os.Getenv("ZLOCKD_STOCK_SERVERS") != "" || os.Getenv("ZLOCKD_STOCK_TARGET") == "zookeeper" {
		t.Skip("these tests start servers of their own, which are zlockd")
	}
	zlockd, err := launch.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir, bin := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "zkServer.sh"), []byte(zkServer), 0o755); err != nil {
		t.Fatal(err)
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/go-zookeeper/zk").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(module)))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "test", "-mod=mod", "-c", "-o", "own.test", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the client's tests: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "own.test"), "-test.v", "-test.timeout=5m")
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(os.Environ(), "ZOOKEEPER_BIN_PATH="+bin, "ZLOCKD_BIN="+zlockd)
	out, runErr := cmd.CombinedOutput()
	passed := 0
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	lines.Buffer(nil, len(out)+1)
	for lines.Scan() {
		m := ownTest.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		t.Run(m[2], func(t *testing.T) {
			switch m[1] {
			case "PASS":
				passed++
			case "SKIP":
				t.Skip("skipped by the client")
			default:
				t.Error("failed")
			}
		})
	}
	if runErr != nil || passed < 40 {
		t.Fatalf("%d passed; %v\n%s", passed, runErr, out)
	}
}
