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

// TestKazoosOwnTests runs the kazoo tests that need servers with special settings: reconfiguration, read-only
// mode, SASL.
func TestKazoosOwnTests(t *testing.T) {
	beside(t)
	zlockd := kerberosServers(t)
	need(t, "/usr/bin/python3", "/usr/lib/python3/dist-packages/kazoo/tests/test_client.py",
		"/usr/lib/python3/dist-packages/pytest/__init__.py",
		"/usr/lib/python3/dist-packages/mock/__init__.py", "/usr/lib/python3/dist-packages/puresasl/__init__.py")
	k := startKDC(t, "KAZOOTEST.ORG", "zookeeper/127.0.0.1", "client")
	k.keytab(t, "zookeeper/127.0.0.1", "server.keytab")
	k.keytab(t, "client", "client.keytab")
	bin := t.TempDir()
	text := must.Get(os.ReadFile("testdata/suites/java"))(t)
	must.OK(t, os.WriteFile(filepath.Join(bin, "java"), text, 0o755))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := func(failed []string) *exec.Cmd {
		which := "TestReconfig or TestReadOnlyMode or SASL"
		if len(failed) > 0 {
			which = "(" + strings.ReplaceAll(strings.Join(failed, ") or ("), "::", " and ") + ")"
		}
		cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-B", "-W", "ignore", "-m", "pytest", "-v", "-p",
			"no:cacheprovider", "--pyargs",
			"kazoo.tests.test_client", "kazoo.tests.test_connection", "kazoo.tests.test_sasl", "-k", which)
		cmd.Dir, cmd.WaitDelay = bin, time.Second
		cmd.Env = append(k.env, "KRB5_TEST_ENV="+k.dir, "ZLOCKD_BIN="+zlockd, "PATH="+bin+":"+os.Getenv("PATH"),
			"ZOOKEEPER_VERSION=3.8.0", "ZOOKEEPER_CLASSPATH=none")
		return cmd
	}
	suite{cmd: cmd, ended: regexp.MustCompile(`(?m)^\S*::(?P<name>\w+::\w+) (?P<word>[A-Z]+)`), passed: "PASSED",
		least: 10}.run(t)
}
