//go:build stock

package stock

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlockd/zlockd/test/cluster"
	"github.com/zlockd/zlockd/test/must"
)

// ownServers skips a suite that starts its own servers if the run tests other servers. It returns the zlockd
// binary to start.
func ownServers(t *testing.T) (zlockd string) {
	t.Helper()
	if os.Getenv("ZLOCKD_STOCK_SERVERS") != "" || os.Getenv("ZLOCKD_STOCK_TARGET") == "zookeeper" {
		t.Skip("these tests start servers of their own, which are zlockd")
	}
	zlockd = must.Get(cluster.Binary())(t)
	return zlockd
}

// kerberosServers is like ownServers, for zlockd with Kerberos, which is a separate module.
func kerberosServers(t *testing.T) (zlockd string) {
	t.Helper()
	ownServers(t)
	zlockd = filepath.Join(t.TempDir(), "zlockd-kerberos")
	build := exec.Command("go", "build", "-o", zlockd, "./cmd/zlockd-kerberos")
	build.Dir = "../../server/sasl/kerberos"
	out, err := build.CombinedOutput()
	must.That(t, err == nil, "build zlockd-kerberos: %v\n%s", err, out)
	return zlockd
}

// suite is a program that runs a client's own tests.
type suite struct {
	cmd    func(failed []string) *exec.Cmd // runs all tests, or the tests that failed before
	ended  *regexp.Regexp                  // finds the name of a test and the word that says how it ended
	passed string                          // the word for a test that passed
	least  int                             // how many tests must pass
}

// run() turns the tests of the suite into subtests. The clients' tests wait only for seconds, and their
// session timeouts are as short, but a busy machine can be slower. So run() repeats a failed test at most
// twice.
func (s suite) run(t *testing.T) {
	t.Helper()
	name, word := s.ended.SubexpIndex("name"), s.ended.SubexpIndex("word")
	words := map[string]string{}
	var failed []string
	var out []byte
	var err error
	for try := range 3 {
		out, err = s.cmd(failed).CombinedOutput()
		failed = nil
		for _, m := range s.ended.FindAllStringSubmatch(string(out), -1) {
			words[m[name]] = m[word]
			if m[word] != s.passed && !strings.HasPrefix(m[word], "SKIP") {
				failed = append(failed, m[name])
			}
		}
		if err == nil && len(failed) == 0 {
			break
		}
		t.Logf("try %d: %v, %v\n%s", try, failed, err, out[max(0, len(out)-20_000):])
	}
	passed := 0
	for _, name := range slices.Sorted(maps.Keys(words)) {
		t.Run(name, func(t *testing.T) {
			switch {
			case words[name] == s.passed:
				passed++
			case strings.HasPrefix(words[name], "SKIP"):
				t.Skip("skipped by the client")
			default:
				t.Error(words[name])
			}
		})
	}
	if err != nil || passed < s.least {
		t.Errorf("%d passed, %d expected: %v", passed, s.least, err)
	}
}

// TestCClientsOwnTests runs the tests of the C client that start servers: Zookeeper_readOnly,
// Zookeeper_SASLAuth, and TestReconfigServer, which starts three servers with ids from 0.
func TestCClientsOwnTests(t *testing.T) {
	beside(t)
	zlockd := ownServers(t)
	need(t, "gcc", "g++", "java", "apt-get", "/usr/share/java/zookeeper-jute.jar", "/usr/include/cppunit/Test.h",
		"/usr/include/sasl/sasl.h", "/usr/include/openssl/ssl.h", "openssl")
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cache := must.Get(os.UserCacheDir())(t)
	source, dir := filepath.Join(cache, "zlockd-stock"), t.TempDir()
	for _, d := range []string{source, filepath.Join(dir, "bin")} {
		must.OK(t, os.MkdirAll(d, 0o755))
	}
	script := func(name string, args ...string) *exec.Cmd {
		path := must.Get(filepath.Abs(filepath.Join("testdata/suites", name)))(t)
		cmd := exec.CommandContext(ctx, "sh", append([]string{path}, args...)...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		return cmd
	}
	server := filepath.Join(dir, "bin", "zkServer.sh")
	text := must.Get(os.ReadFile("testdata/suites/zkServer.sh"))(t)
	must.OK(t, os.WriteFile(server, text, 0o755))
	for _, cmd := range []*exec.Cmd{script("source.sh", source),
		script("build-c.sh", filepath.Join(source, "zookeeper"), server)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	ended := regexp.MustCompile(`(?m)^\w+::(?P<name>\w+)\s* : (?:elapsed \d+ : )?(?P<word>OK|assertion|error)`)
	endServers := func() { // if a C assertion ends a test, its servers still run
		if out, err := exec.Command("find", dir, "-name", "*.pid", "-exec", "pkill", "-KILL", "-F", "{}",
			";").CombinedOutput(); err != nil {
			t.Logf("end servers: %v %s", err, out)
		}
	}
	t.Cleanup(endServers)
	for name, count := range map[string]int{"TestReconfigServer": 5, "Zookeeper_readOnly": 2,
		"Zookeeper_SASLAuth": 5} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(ctx, 6*time.Minute)
			defer cancel()
			again := func([]string) *exec.Cmd {
				endServers()
				cmd := exec.CommandContext(ctx, filepath.Join(dir, "tests"), name)
				cmd.Dir, cmd.WaitDelay = dir, time.Second
				cmd.Env = append(os.Environ(), "ZLOCKD_BIN="+zlockd, "ZKROOT="+dir)
				return cmd
			}
			suite{cmd: again, ended: ended, passed: "OK", least: count}.run(t)
		})
	}
}

// zkServer is the script that go-zookeeper's tests call to start a server with a zoo.cfg. The super user is
// in the JVM's flags.
const zkServer = `#!/bin/sh
super=$(printf '%s\n' "$SERVER_JVMFLAGS" | sed -n 's/.*superDigest=\([^ ]*\).*/\1/p')
exec "$ZLOCKD_BIN" --config "$2" --super-digest "$super" --log-level error
`

// ownTest is a line that says how one of the client's tests ended.
var ownTest = regexp.MustCompile(`(?m)^--- (?P<word>PASS|FAIL|SKIP): (?P<name>\S+)`)

// byChance are tests that fail by chance, and the errors with which they fail. One test removes a server and
// continues on its connection, which may be to that server. A removed ZooKeeper continues to serve, but a
// removed zlockd stops. Another test kills the server to which it is connected. On a busy machine it sends
// its create before the client has read that the connection is gone, and the client does not repeat the
// create. A third test has a session timeout of one second, which is too short for a busy machine.
var byChance = map[string]string{
	"TestIntegration_DNSHostProviderReconnect": "zk: connection closed",
	"TestIntegration_Reconfig":                 "zk: connection closed",
	"TestIntegration_SlowServer":               "zk: could not connect to a server",
}

// TestGoClientsOwnTests runs go-zookeeper/zk's own tests against zlockd. They start, stop and kill single
// servers and ensembles of three.
func TestGoClientsOwnTests(t *testing.T) {
	beside(t)
	zlockd := ownServers(t)
	dir, bin := t.TempDir(), t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(bin, "zkServer.sh"), []byte(zkServer), 0o755))
	module := must.Get(exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/go-zookeeper/zk").Output())(t)
	must.OK(t, os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(module)))))
	ctx, cancel := context.WithTimeout(context.Background(), 12*time.Minute)
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
	only := func(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }
	others := func(failed []string) *exec.Cmd {
		if len(failed) > 0 {
			return own("-test.run", only(failed))
		}
		return own("-test.skip", only(slices.Sorted(maps.Keys(byChance))))
	}
	suite{cmd: others, ended: ownTest, passed: "PASS", least: 44}.run(t)
	for name, says := range byChance {
		t.Run(name, func(t *testing.T) {
			const tries = 8
			for n := range tries {
				out, err := own("-test.run", "^"+name+"$").CombinedOutput()
				if err == nil {
					return
				}
				must.That(t, n != tries-1 && strings.Contains(string(out), says), "%v\n%s", err, out)
			}
		})
	}
}
